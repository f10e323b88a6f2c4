// Defaults of requests.
#include "backends/llm_core/adapter/client_request.h"

namespace nereid::llm {

RequestDefaults MakeRequestDefaults(const ModelConfig& config, const LlmParameters& parameters,
                                    const DecoderSpec& spec) {
  RequestDefaults defaults;
  defaults.end_ids = spec.end_ids;
  if (parameters.uses_generation_config) defaults.sampling = spec.sampling_defaults;
  defaults.hidden_size = spec.hidden_size;
  defaults.max_beam_width = parameters.max_beam_width;
  defaults.decoding_mode = parameters.decoding_mode;
  if (parameters.speculation.kind == DrafterKind::kLookahead) {
    defaults.lookahead = parameters.speculation.lookahead;
  }
  for (const TensorSpec& input : config.inputs()) {
    defaults.asks_for_num_input |= input.name == "return_num_input_tokens";
    defaults.asks_for_num_output |= input.name == "return_num_output_tokens";
  }
  for (const TensorSpec& output : config.outputs()) {
    defaults.has_context_logits |= output.name == "context_logits";
    defaults.has_generation_logits |= output.name == "generation_logits";
  }
  defaults.num_outputs = config.outputs().size();
  defaults.exclude_input_in_output = parameters.exclude_input_in_output;
  defaults.matches_words_as_text = parameters.stop_words_in_text;
  defaults.temperature_samples = parameters.uses_generation_config;
  return defaults;
}

}  // namespace nereid::llm
