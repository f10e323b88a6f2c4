// Steps that were submitted and not collected, and the sequences that they hold: what one of them
// refers to lives until it is collected, and tokens that it draws stand as pending until then.
// [engine thread]
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <vector>

#include "backends/llm_core/engine/batch.h"
#include "backends/llm_core/engine/sequence.h"

namespace nereid::llm {

struct Flight {
  std::vector<Sequence*> sequences;  // parallel to the batch's
  std::vector<bool> samples;
  bool may_overlap = false;  // the next step can be planned without its result
  bool is_decode = false;    // one token of each sequence
  std::chrono::steady_clock::time_point began;
};

class StepFlights {
 public:
  bool is_empty() const { return flights_.empty(); }
  size_t size() const { return flights_.size(); }
  // Of the newest; true when there is none.
  bool may_overlap() const { return flights_.empty() || flights_.back().may_overlap; }
  const Flight& newest() const { return flights_.back(); }

  // `batch` was submitted for `sequences`.
  void Add(const Batch& batch, const std::vector<Sequence*>& sequences, bool overlaps,
           std::chrono::steady_clock::time_point began);
  // The newest may be overlapped: each token that it draws is pending in its sequence.
  void ExpectTokens();
  // Takes the oldest out: its results are there.
  Flight Land();
  // `removed` have left the scheduler. Their requests go at once; what steps still refer to is kept
  // until Sweep finds that none does.
  void Retire(std::vector<std::unique_ptr<Sequence>> removed);
  void Sweep();
  void Clear();

 private:
  std::deque<Flight> flights_;
  std::vector<std::unique_ptr<Sequence>> retired_;
};

}  // namespace nereid::llm
