// From a request to its sequences.
#include "backends/llm_core/engine/sequence.h"

#include <utility>

#include "backends/llm_core/engine/beam_group.h"
#include "backends/llm_core/sampling/philox.h"

namespace nereid::llm {
namespace {

std::unique_ptr<Sequence> MakeSequence(std::shared_ptr<GenerationRequest> request, int32_t index) {
  auto sequence = std::make_unique<Sequence>();
  sequence->num_prompt = static_cast<int32_t>(request->prompt.size());
  sequence->token_ids = request->prompt;
  sequence->index = index;
  if (index == 0 && (request->needs_whole_prompt() || request->want_generation_logits)) {
    sequence->rows = std::make_unique<SequenceRows>();
  } else if (request->want_generation_logits) {
    sequence->rows = std::make_unique<SequenceRows>();
    sequence->rows->num_prompt_rows = sequence->num_prompt;  // the first sequence's to put out
  }
  sequence->is_special = request->uses_beams() || sequence->rows != nullptr;
  if (index > 0 && !request->sampling.is_greedy()) {
    sequence->own_sampling = std::make_unique<SamplingParams>(request->sampling);
    sequence->own_sampling->seed =
        SequenceSeed(request->sampling.seed, static_cast<uint32_t>(index));
  }
  sequence->request = std::move(request);
  return sequence;
}

}  // namespace

std::unique_ptr<Sequence> MakeSequences(std::unique_ptr<GenerationRequest> request) {
  std::shared_ptr<GenerationRequest> shared = std::move(request);
  std::unique_ptr<Sequence> first = MakeSequence(shared, 0);
  for (int32_t i = 1; i < shared->num_running(); ++i) {
    first->companions.push_back(MakeSequence(shared, i));
  }
  if (shared->uses_beams()) BeamGroup::Join(*first);
  return first;
}

}  // namespace nereid::llm
