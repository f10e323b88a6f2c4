// Row counts of trials, and the choice of the fastest candidate.
#include "backends/gpu_llm/model/algorithm_trial.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <set>

namespace nereid::gpu {
namespace {

TEST(AlgorithmTrialTest, ATrialUsesTheLargestRowCountThatSharesIt) {
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

// Makes calls until the trial is over; each reports its duration after `num_ahead` later calls.
// nullopt: the candidate cannot run. Returns the number of calls that the trial requested.
int RunTrial(AlgorithmTrial& trial, size_t num_ahead,
             const std::function<std::optional<double>(int i)>& take) {
  std::deque<int> under_way;
  int num_requested = 0;
  for (int call = 0; call < 1000 && !trial.is_over(); ++call) {
    if (under_way.size() > num_ahead) {
      trial.Report(under_way.front(), take(under_way.front()));
      under_way.pop_front();
    }
    const std::optional<int> next = trial.Next();
    num_requested += next ? 1 : 0;
    if (next) {
      under_way.push_back(*next);
    } else if (!under_way.empty()) {
      trial.Report(under_way.front(), take(under_way.front()));
      under_way.pop_front();
    }
  }
  EXPECT_TRUE(under_way.empty());
  return num_requested;
}

TEST(AlgorithmTrialTest, TheFastestWinsWhateverTheReportingDelay) {
  const double seconds[] = {5, 3, 4, 2, 6, 7};
  for (const size_t num_ahead : {0u, 1u, 5u, 100u}) {
    AlgorithmTrial trial(6);
    EXPECT_EQ(trial.fastest(), 0);  // no duration is known
    const int num_requested = RunTrial(trial, num_ahead, [&](int i) { return seconds[i]; });
    EXPECT_TRUE(trial.is_over()) << num_ahead;
    EXPECT_EQ(trial.fastest(), 3) << num_ahead;
    EXPECT_EQ(num_requested, 6 * 2 + 3 * 2) << num_ahead;
  }
}

// The first run of a kernel also loads it.
TEST(AlgorithmTrialTest, ASlowFirstCallDoesNotDecide) {
  int num_calls[5] = {};
  AlgorithmTrial trial(5);
  RunTrial(trial, 2, [&](int i) {
    const double usual[] = {10, 11, 8, 12, 20};
    return usual[i] * (++num_calls[i] == 1 && i == 2 ? 100.0 : 1.0);
  });
  EXPECT_EQ(trial.fastest(), 2);
  EXPECT_EQ(num_calls[4], 2);  // the last of five is not tried again
  EXPECT_EQ(num_calls[2], 4);
}

TEST(AlgorithmTrialTest, CandidatesThatCanNotRunAreSkipped) {
  const auto take = [](int i) { return i == 1 ? std::optional<double>(9.0) : std::nullopt; };
  AlgorithmTrial one_of_three(3), none(1 + 1);
  EXPECT_EQ(RunTrial(one_of_three, 0, take), 3 + 1);
  EXPECT_TRUE(one_of_three.is_over());
  EXPECT_EQ(one_of_three.fastest(), 1);
  RunTrial(none, 0, [](int) { return std::optional<double>(); });
  EXPECT_TRUE(none.is_over());
  EXPECT_EQ(none.fastest(), std::nullopt);
}

TEST(AlgorithmTrialTest, ASingleCandidateIsNotTried) {
  AlgorithmTrial one(1), none(0);
  EXPECT_TRUE(one.is_over());
  EXPECT_EQ(one.Next(), std::nullopt);
  EXPECT_EQ(one.fastest(), 0);
  EXPECT_TRUE(none.is_over());
  EXPECT_EQ(none.fastest(), std::nullopt);
}

// Calls that steps make in the meantime need an algorithm.
TEST(AlgorithmTrialTest, TheFastestSoFarIsKnownWhileOthersArePending) {
  AlgorithmTrial trial(3);
  for (const int i : {0, 1, 2, 0, 1, 2}) EXPECT_EQ(trial.Next(), i);
  EXPECT_EQ(trial.Next(), std::nullopt);
  trial.Report(0, 4.0);
  trial.Report(1, 3.0);
  EXPECT_EQ(trial.fastest(), 1);
  trial.Report(2, std::nullopt);
  EXPECT_EQ(trial.fastest(), 1);
  EXPECT_EQ(trial.Next(), std::nullopt);
  EXPECT_FALSE(trial.is_over());
}

TEST(SharedRowsTest, FewCountsServeAll) {
  EXPECT_EQ(SharedRows(1), 64);
  EXPECT_EQ(SharedRows(64), 64);
  EXPECT_EQ(SharedRows(200), 256);
  EXPECT_EQ(SharedRows(257), 384);
  EXPECT_EQ(SharedRows(520), 768);
  EXPECT_EQ(SharedRows(2048), 2048);
  int num_counts = 0;
  for (int rows = 1; rows <= 2048; rows = SharedRows(rows) + 1) ++num_counts;
  EXPECT_EQ(num_counts, 10);
  for (int rows = 1; rows <= 4096; ++rows) {
    EXPECT_GE(SharedRows(rows), rows);
    EXPECT_EQ(SharedRows(SharedRows(rows)), SharedRows(rows));
    EXPECT_LE(SharedRows(rows), std::max(128, 3 * rows / 2 + 1)) << rows;
  }
}

}  // namespace
}  // namespace nereid::gpu
