// The sequences of one request with beam search. Moves them as the search decides. [engine thread]
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
  // Creates the group of a request: its first sequence is the first beam, and its siblings are
  // suspended.
  static void CreateFor(Sequence& first);

  // Takes the candidates of one beam. With those of the last beam, the beams advance or the search
  // ends. At the end, the outputs go to the sink and every sequence gets a finish reason. Returns
  // the number of tokens by which the beams grew.
  int64_t Apply(Sequence& beam, std::vector<SampledToken> candidates, Scheduler& scheduler);
  bool is_over() const { return is_over_; }
  // The search cannot continue and has no output, because every token is banned. Nothing was sent
  // to the sink.
  bool is_stuck() const { return is_stuck_; }
  // Appends all sequences of the group.
  void AppendSequences(std::vector<const Sequence*>& sequences) const;

 private:
  explicit BeamGroup(const GenerationRequest& request) : search_(request.beams, request.stop) {}

  void ApplyContinuations(std::span<const BeamContinuation> next, Scheduler& scheduler);
  void EmitHypotheses() const;

  BeamSearch search_;
  std::vector<Sequence*> beams_;      // active beams
  std::vector<Sequence*> suspended_;  // sequences without a beam at present
  int32_t num_ready_ = 0;             // active beams whose candidates for this step have arrived
  const SequenceLogits* prompt_logits_ = nullptr;  // of the sequence that computed the prompt
  bool is_over_ = false;
  bool is_stuck_ = false;
};

}  // namespace nereid::llm
