// Sizes and rounds.
#include "gpu_llm/model/algorithm_trial.h"

#include <algorithm>
#include <utility>

namespace nereid::gpu {
namespace {

constexpr size_t kFinalists = 3;
constexpr int kRounds = 2;

// Decode steps come in multiples of 8 up to here, each of which has an algorithm of its own.
constexpr int kFewRows = 256;
// Tiles of cuBLASLt are 64 to 256 rows high.
constexpr int kTileRows = 128, kPairRows = 256;

int RoundUp(int value, int unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

int TrialRows(int num_rows) {
  if (num_rows <= kFewRows) return RoundUp(num_rows, 8);
  if (num_rows <= 512) return RoundUp(num_rows, 32);
  if (num_rows <= 1024) return RoundUp(num_rows, 64);
  if (num_rows <= 2048) return RoundUp(num_rows, 256);
  if (num_rows <= 8192) return RoundUp(num_rows, 1024);
  int rows = 16384;
  while (rows < num_rows) rows *= 2;
  return rows;
}

std::vector<int> ProposalRows(int trial_rows) {
  std::vector<int> sizes = {trial_rows};
  if (trial_rows <= kFewRows) return sizes;
  for (const int more : {RoundUp(trial_rows, kTileRows), RoundUp(trial_rows, kPairRows)}) {
    if (more != sizes.back()) sizes.push_back(more);
  }
  return sizes;
}

Result<std::optional<int>> FindFastest(int count, const TimeCandidate& time) {
  std::vector<std::pair<double, int>> seen;
  for (int i = 0; i < count; ++i) {
    NEREID_ASSIGN_OR_RETURN(const std::optional<double> seconds, time(i));
    if (seconds) seen.push_back({*seconds, i});
  }
  if (seen.empty()) return std::optional<int>();
  std::sort(seen.begin(), seen.end());
  seen.resize(std::min(seen.size(), kFinalists));
  for (int round = 0; round < kRounds && seen.size() > 1; ++round) {
    for (auto& [least, i] : seen) {
      NEREID_ASSIGN_OR_RETURN(const std::optional<double> seconds, time(i));
      if (seconds) least = std::min(least, *seconds);
    }
  }
  return std::optional<int>(std::min_element(seen.begin(), seen.end())->second);
}

}  // namespace nereid::gpu
