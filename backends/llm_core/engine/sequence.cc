// Creates the sequences of a request.
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
  const bool keeps_each_step =
      request->returns_generation_logits || request->sampling.num_top_log_probs > 0;
  if (index == 0 && (request->needs_whole_prompt() || keeps_each_step)) {
    sequence->kept_logits = std::make_unique<SequenceLogits>();
  } else if (keeps_each_step) {
    sequence->kept_logits = std::make_unique<SequenceLogits>();
    sequence->kept_logits->num_prompt_done =
        sequence->num_prompt;  // the first sequence emits the prompt's outputs
  }
  if (request->grammar != nullptr) {
    sequence->grammar = std::make_unique<SequenceGrammar>(request->grammar, request->stop.end_ids);
    sequence->has_grammar = true;
  }
  if (request->reasoning) {
    sequence->reasoning = std::make_unique<ReasoningBudget>(*request->reasoning);
    sequence->has_reasoning_budget = true;
  }
  sequence->has_beams_or_logits = request->uses_beams() || sequence->kept_logits != nullptr;
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
    first->siblings.push_back(MakeSequence(shared, i));
  }
  if (shared->uses_beams()) BeamGroup::CreateFor(*first);
  return first;
}

}  // namespace nereid::llm
