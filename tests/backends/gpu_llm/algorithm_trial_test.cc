// For which rows algorithms are tried, and which of them wins.
#include "gpu_llm/model/algorithm_trial.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace nereid::gpu {
namespace {

TEST(AlgorithmTrialTest, ATrialTakesTheMostRowsOfThoseThatShareIt) {
  int last = 0;
  std::set<int> sizes;
  for (int rows = 1; rows <= 40000; ++rows) {
    const int trial = TrialRows(rows);
    EXPECT_GE(trial, rows);
    EXPECT_GE(trial, last) << rows;
    EXPECT_EQ(TrialRows(trial), trial) << rows;
    if (rows > 256 && rows <= 8192) {
      EXPECT_LT(trial - rows, std::max(64, rows / 2)) << rows;
    }
    sizes.insert(last = trial);
  }
  EXPECT_EQ(TrialRows(8192), 8192);
  EXPECT_EQ(TrialRows(250), 256);
  EXPECT_EQ(TrialRows(272), 288);
  EXPECT_EQ(TrialRows(528), 576);
  EXPECT_EQ(sizes.size(), 61u);  // each costs a trial
}

TEST(AlgorithmTrialTest, ProposalsForLargerSizesAreTriedToo) {
  EXPECT_EQ(ProposalRows(64), (std::vector<int>{64}));
  EXPECT_EQ(ProposalRows(512), (std::vector<int>{512}));
  EXPECT_EQ(ProposalRows(576), (std::vector<int>{576, 640, 768}));
  EXPECT_EQ(ProposalRows(640), (std::vector<int>{640, 768}));
}

Result<std::optional<double>> Seconds(double seconds) {
  return std::optional<double>(seconds);
}

TEST(AlgorithmTrialTest, TheFastestWins) {
  const double seconds[] = {5, 3, 4, 2, 6, 7};
  const auto best = FindFastest(6, [&](int i) { return Seconds(seconds[i]); });
  ASSERT_TRUE(best.ok());
  EXPECT_EQ(*best, 3);
}

// Candidate 2 is the fastest, but slow when it is looked at first.
TEST(AlgorithmTrialTest, ASlowFirstLookDoesNotDecide) {
  int looks[5] = {};
  const auto best = FindFastest(5, [&](int i) {
    const double usual[] = {10, 11, 8, 12, 20};
    return Seconds(usual[i] * (++looks[i] == 1 && i == 2 ? 1.4 : 1.0));
  });
  ASSERT_TRUE(best.ok());
  EXPECT_EQ(*best, 2);
  EXPECT_EQ(looks[4], 1);  // the last of five is not looked at again
  EXPECT_GT(looks[0], 1);
}

TEST(AlgorithmTrialTest, ThoseThatCanNotRunAreLeftOut) {
  const auto cannot = [](int i) -> Result<std::optional<double>> {
    if (i != 1) return std::optional<double>();
    return Seconds(9);
  };
  EXPECT_EQ(*FindFastest(3, cannot), 1);
  EXPECT_EQ(*FindFastest(1, cannot), std::nullopt);
  EXPECT_EQ(*FindFastest(0, cannot), std::nullopt);
}

TEST(AlgorithmTrialTest, AFaultEndsTheTrial) {
  const auto broken = [](int) -> Result<std::optional<double>> { return InternalError("lost"); };
  EXPECT_EQ(FindFastest(2, broken).status().message(), "lost");
}

}  // namespace
}  // namespace nereid::gpu
