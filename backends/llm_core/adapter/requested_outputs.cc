// Reads the flags that ask for outputs.
#include "backends/llm_core/adapter/requested_outputs.h"

#include <string_view>
#include <vector>

namespace nereid::llm {
namespace {

// `is_declared`: whether the model has the output `output`, which the input asks for.
Status ReadLogitsFlag(BatchInputs& inputs, int64_t row, const char* name, const char* output,
                      bool is_declared, bool& flag) {
  NEREID_RETURN_IF_ERROR(inputs.Scalar<Bool>(name, row, flag));
  if (!flag || is_declared) return {};
  return InvalidArgError("input '", name, "' is true: the model has no output '", output,
                         "'; add it to config.pbtxt");
}

}  // namespace

Status RefuseOutputs(const Request& request, size_t num_outputs) {
  NEREID_ASSIGN_OR_RETURN(const std::vector<std::string_view> names, request.RequestedOutputs());
  if (names.size() >= num_outputs) return {};
  for (const std::string_view name : names) {
    const EngineOutput* const output = FindEngineOutput(name);
    if (output == nullptr || output->rule != OutputRule::kRefuse) continue;
    return UnsupportedError("output '", name, "': this feature is not supported (", output->about,
                            ")");
  }
  return {};
}

Status ReadCountRequests(BatchInputs& inputs, const RequestDefaults& defaults,
                         ClientRequest& request) {
  request.returns_num_input_tokens = !defaults.asks_for_num_input;
  request.returns_num_output_tokens = !defaults.asks_for_num_output;
  NEREID_RETURN_IF_ERROR(
      inputs.Scalar<Bool>("return_num_input_tokens", 0, request.returns_num_input_tokens));
  return inputs.Scalar<Bool>("return_num_output_tokens", 0, request.returns_num_output_tokens);
}

Status ReadRequestedOutputs(BatchInputs& inputs, int64_t row, const RequestDefaults& defaults,
                            RequestItem& out) {
  GenerationRequest& generation = *out.generation;
  NEREID_RETURN_IF_ERROR(ReadLogitsFlag(inputs, row, "return_context_logits", "context_logits",
                                        defaults.has_context_logits,
                                        generation.returns_context_logits));
  NEREID_RETURN_IF_ERROR(ReadLogitsFlag(inputs, row, "return_generation_logits",
                                        "generation_logits", defaults.has_generation_logits,
                                        generation.returns_generation_logits));
  NEREID_RETURN_IF_ERROR(
      inputs.Scalar<Bool>("return_prompt_log_probs", row, generation.returns_prompt_log_probs));
  NEREID_RETURN_IF_ERROR(
      inputs.Scalar<int32_t>("num_prompt_logprobs", row, generation.num_prompt_top_log_probs));
  generation.returns_prompt_log_probs |= generation.num_prompt_top_log_probs > 0;
  ExtraOutputs& extras = out.extras;
  extras.log_probs = generation.sampling.returns_log_probs;
  extras.num_top_log_probs = generation.sampling.num_top_log_probs;
  extras.num_prompt_top_log_probs = generation.num_prompt_top_log_probs;
  extras.generation_logits = generation.returns_generation_logits;
  NEREID_RETURN_IF_ERROR(
      inputs.Scalar<Bool>("return_kv_cache_reuse_stats", row, extras.cache_stats));
  NEREID_RETURN_IF_ERROR(inputs.Scalar<Bool>("return_perf_metrics", row, extras.perf_metrics));
  NEREID_RETURN_IF_ERROR(inputs.Scalar<Bool>("return_token_ids", row, extras.token_ids));
  extras.prompt_ids = extras.token_ids || generation.returns_prompt_log_probs;
  return inputs.Scalar<Bool>("skip_special_tokens", row, extras.skips_special_tokens);
}

}  // namespace nereid::llm
