// Search for the fastest algorithm of a matrix product: which row counts share an algorithm, and
// which candidate wins. No CUDA here.
#pragma once

#include <optional>
#include <vector>

namespace nereid::gpu {

// The largest row count that shares an algorithm with `num_rows`. Trials use this count: an
// algorithm that is fast for it is at most as slow for fewer rows. An algorithm whose tiles just
// fit a smaller count may take 50 % longer for a few more rows.
int TrialRows(int num_rows);

// For products whose algorithms are not tried: the largest number of rows that uses the same first
// proposal of cuBLASLt as `num_rows`. There are few such numbers, because finding a proposal and
// loading its kernel takes milliseconds.
int SharedRows(int num_rows);

// Row counts whose proposals are tried for `trial_rows`, which comes first. cuBLASLt's proposals
// for some sizes are slower than those for larger ones.
std::vector<int> ProposalRows(int trial_rows);

// Assigns a candidate to each call of a matrix product until the fastest is known. The calls are
// those that steps make anyway, so a trial delays no request. All candidates run twice, since the
// first run also loads the kernel. Then the best few run again in turns and are compared by their
// minimum times, so that changing clocks favour none. [engine thread]
class AlgorithmTrial {
 public:
  // For candidates [0, count).
  explicit AlgorithmTrial(int count);

  // The candidate of the next call. nullopt: enough calls are pending, or the trial is over.
  std::optional<int> Next();
  // Reports the duration of a call with candidate `i`, which Next() returned. nullopt: the
  // candidate cannot run.
  void Report(int i, std::optional<double> seconds);

  bool is_over() const { return is_over_; }
  // The fastest so far. Before any report, the first candidate that is not known to fail. nullopt:
  // none can run.
  std::optional<int> fastest() const;

 private:
  struct Candidate {
    std::optional<double> least;  // seconds
    bool fails = false;
  };
  void EndRound();

  std::vector<Candidate> candidates_;
  std::vector<int> turns_;  // of this round
  size_t next_ = 0;         // of turns_
  int num_pending_ = 0;
  bool is_final_ = false;  // the round of the best few
  bool is_over_ = false;
};

}  // namespace nereid::gpu
