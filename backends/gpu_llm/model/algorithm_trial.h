// How the fastest algorithm of a product is found: for which numbers of rows it is looked for, and
// which of the candidates wins. No CUDA here.
#pragma once

#include <optional>
#include <vector>

namespace nereid::gpu {

// The largest of the numbers of rows that share an algorithm with `num_rows`. Trials take this one:
// what is fast for it is at most as slow for fewer rows, while an algorithm whose tiles just fit
// one number may take half as long again for a few rows more.
int TrialRows(int num_rows);

// Numbers of rows whose candidates are tried for `trial_rows`, itself first: cuBLASLt's proposals
// for some sizes are slower than those for larger ones.
std::vector<int> ProposalRows(int trial_rows);

// Which candidate each of a product's calls takes until the fastest is known. The calls are those
// that steps make in any case, so that a trial holds nobody up: all candidates twice, since what
// runs for the first time has to be loaded first, then the best few again in turns, by their least
// times, so that clocks that rise or fall meanwhile favour none. [engine thread]
class AlgorithmTrial {
 public:
  // Of candidates [0, count).
  explicit AlgorithmTrial(int count);

  // The next call's; nothing: as many calls as are wanted have not said yet what they took, or the
  // trial is over.
  std::optional<int> Next();
  // What a call with candidate `i`, which Next() gave, took; nothing: the candidate can not run.
  void Report(int i, std::optional<double> seconds);

  bool is_over() const { return is_over_; }
  // So far; before any has said what it took, the first that is not known to fail. Nothing: none
  // can run.
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
  int num_under_way_ = 0;
  bool is_final_ = false;  // the round of the best few
  bool is_over_ = false;
};

}  // namespace nereid::gpu
