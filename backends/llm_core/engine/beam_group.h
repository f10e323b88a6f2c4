// The beams of one request: which sequences they are, and how they follow what the search decides.
// [engine thread]
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backends/llm_core/engine/beam_search.h"
#include "backends/llm_core/engine/scheduler.h"
#include "backends/llm_core/engine/sequence.h"

namespace nereid::llm {

class BeamGroup {
 public:
  // Makes a group of a request's first sequence, the first beam, and its companions, which rest.
  static void Join(Sequence& first);

  // The candidates of one beam have come. With those of the last one, the beams move on, or the
  // search ends: then its outputs go to the sink and every sequence has a finish reason. Returns
  // the number of tokens by which the search grew.
  int64_t Apply(Sequence& beam, std::vector<SampledToken> candidates, Scheduler& scheduler);
  bool is_over() const { return is_over_; }
  // Appends its sequences.
  void ListAll(std::vector<const Sequence*>& sequences) const;

 private:
  explicit BeamGroup(const GenerationRequest& request) : search_(request.beams, request.stop) {}

  void Move(std::span<const BeamContinuation> next, Scheduler& scheduler);
  void PutOut() const;

  BeamSearch search_;
  std::vector<Sequence*> beams_;        // that go on
  std::vector<Sequence*> resting_;      // dormant ones
  int32_t num_ready_ = 0;               // beams whose candidates for this step are there
  const SequenceRows* rows_ = nullptr;  // of the sequence that computed the prompt
  bool is_over_ = false;
};

}  // namespace nereid::llm
