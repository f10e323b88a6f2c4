// The steps that were submitted and not yet collected, and their sequences. A sequence stays alive
// until every step that refers to it is collected. Tokens that such a step samples are pending
// until then. [engine thread]
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <vector>

#include "backends/llm_core/engine/batch.h"
#include "backends/llm_core/engine/sequence.h"

namespace nereid::llm {

struct StepInFlight {
  std::vector<Sequence*> sequences;  // parallel to the entries of the batch
  std::vector<bool> samples;
  bool may_overlap = false;        // the next step can be planned without this step's result
  bool is_kept_by_drafts = false;  // it could, if no sequence speculated
  bool is_decode = false;          // one token per sequence
  bool is_prefill = false;         // most of its tokens are of prompts
  int32_t num_tokens = 0;
  bool decodes_with_drafts = false;  // one token per sequence, and any draft tokens
  int32_t num_drafts = 0;
  std::chrono::steady_clock::time_point began, submitted;
};

class StepsInFlight {
 public:
  bool is_empty() const { return steps_.empty(); }
  size_t size() const { return steps_.size(); }
  // Whether a step may be submitted next to the newest one; true if there is none.
  bool may_overlap() const { return steps_.empty() || steps_.back().may_overlap; }
  const StepInFlight& newest() const { return steps_.back(); }
  const StepInFlight& oldest() const { return steps_.front(); }

  // Adds the step `batch`, which was submitted for `sequences`.
  void Add(const StepBatch& batch, const std::vector<Sequence*>& sequences, bool overlaps,
           std::chrono::steady_clock::time_point began,
           std::chrono::steady_clock::time_point submitted);
  // For a newest step that may be overlapped: appends a pending token to each sequence that it
  // samples.
  void AddPendingTokens();
  // Removes and returns the oldest step, whose results are available.
  StepInFlight TakeCompleted();
  // Takes sequences that have left the scheduler. Their requests are destroyed at once. Sequences
  // that a step refers to are kept until FreeRetired finds them unused.
  void Retire(std::vector<std::unique_ptr<Sequence>> removed);
  void FreeRetired();
  void Clear();

 private:
  std::deque<StepInFlight> steps_;
  std::vector<std::unique_ptr<Sequence>> retired_;
};

}  // namespace nereid::llm
