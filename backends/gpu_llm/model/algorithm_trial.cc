// Row counts of trials, and the rounds of AlgorithmTrial. [engine thread]
#include "backends/gpu_llm/model/algorithm_trial.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace nereid::gpu {
namespace {

constexpr int kPasses = 2;  // over all candidates
constexpr size_t kFinalists = 3;
constexpr int kRounds = 2;

// Up to here decode steps have multiples of 8 rows, each with its own algorithm.
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

int SharedRows(int num_rows) {
  constexpr int kLeast = 64;
  const auto power = static_cast<int>(std::bit_ceil(static_cast<unsigned>(std::max(1, num_rows))));
  return RoundUp(num_rows, std::max(kLeast, power / 4));
}

std::vector<int> ProposalRows(int trial_rows) {
  std::vector<int> sizes = {trial_rows};
  if (trial_rows <= kFewRows) return sizes;
  for (const int more : {RoundUp(trial_rows, kTileRows), RoundUp(trial_rows, kPairRows)}) {
    if (more != sizes.back()) sizes.push_back(more);
  }
  return sizes;
}

AlgorithmTrial::AlgorithmTrial(int count) : candidates_(count), is_over_(count <= 1) {
  for (int pass = 0; pass < kPasses; ++pass) {
    for (int i = 0; i < count; ++i) turns_.push_back(i);
  }
}

std::optional<int> AlgorithmTrial::Next() {
  while (!is_over_ && next_ < turns_.size()) {
    const int i = turns_[next_++];
    if (candidates_[i].fails) continue;
    ++num_pending_;
    return i;
  }
  if (num_pending_ == 0) EndRound();  // the remaining candidates were skipped
  return std::nullopt;
}

void AlgorithmTrial::Report(int i, std::optional<double> seconds) {
  Candidate& candidate = candidates_[i];
  candidate.fails |= !seconds;
  if (seconds) candidate.least = std::min(candidate.least.value_or(*seconds), *seconds);
  --num_pending_;
  if (num_pending_ == 0 && next_ == turns_.size()) EndRound();
}

std::optional<int> AlgorithmTrial::fastest() const {
  std::optional<int> best;
  for (int i = 0; i < static_cast<int>(candidates_.size()); ++i) {
    const Candidate& candidate = candidates_[i];
    if (candidate.fails) continue;
    const bool is_better =
        !best || (candidate.least &&
                  (!candidates_[*best].least || *candidate.least < *candidates_[*best].least));
    if (is_better) best = i;
  }
  return best;
}

void AlgorithmTrial::EndRound() {
  std::vector<std::pair<double, int>> seen;
  for (int i = 0; i < static_cast<int>(candidates_.size()); ++i) {
    if (!candidates_[i].fails && candidates_[i].least) seen.push_back({*candidates_[i].least, i});
  }
  is_over_ = is_over_ || is_final_ || seen.size() <= 1;
  if (is_over_) return;
  std::sort(seen.begin(), seen.end());
  seen.resize(std::min(seen.size(), kFinalists));
  is_final_ = true;
  turns_.clear();
  next_ = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (const auto& [least, i] : seen) turns_.push_back(i);
  }
}

}  // namespace nereid::gpu
