// Reads the input tensors of the `tensorrt_llm` model, one batch item after the other.
#include "backends/llm_core/adapter/request_reader.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "backends/llm_core/adapter/batch_inputs.h"
#include "backends/llm_core/adapter/decoding_inputs.h"
#include "backends/llm_core/adapter/draft_inputs.h"
#include "backends/llm_core/adapter/guide_inputs.h"
#include "backends/llm_core/adapter/input_rules.h"
#include "backends/llm_core/adapter/prompt_embeddings_reader.h"
#include "backends/llm_core/adapter/requested_outputs.h"
#include "backends/llm_core/adapter/retention_inputs.h"
#include "backends/llm_core/adapter/stop_inputs.h"

namespace nereid::llm {
namespace {

Status ReadPrompt(BatchInputs& inputs, int64_t row, llm::TokenIds& prompt) {
  if (inputs.Find("input_ids") == nullptr) {
    return InvalidArgError("input 'input_ids' is missing: this model is a decoder");
  }
  NEREID_ASSIGN_OR_RETURN(const std::span<const int32_t> ids,
                          inputs.Row<int32_t>("input_ids", row));
  int64_t length = static_cast<int64_t>(ids.size());
  NEREID_RETURN_IF_ERROR(inputs.Scalar<int32_t>("input_lengths", row, length));
  if (length < 0 || length > static_cast<int64_t>(ids.size())) {
    return InvalidArgError("input 'input_lengths' is ", length, ", expected 0 to ", ids.size(),
                           ", the number of input_ids");
  }
  prompt.assign(ids.begin(), ids.begin() + length);
  return {};
}

Status ReadSampling(BatchInputs& inputs, int64_t row, llm::SamplingParams& sampling) {
  using Params = llm::SamplingParams;
  constexpr std::pair<const char*, float Params::*> kFloats[] = {
      {"temperature", &Params::temperature},
      {"runtime_top_p", &Params::top_p},
      {"min_p", &Params::min_p},
      {"runtime_top_p_decay", &Params::top_p_decay},
      {"repetition_penalty", &Params::repetition_penalty},
      {"presence_penalty", &Params::presence_penalty},
      {"frequency_penalty", &Params::frequency_penalty}};
  constexpr std::pair<const char*, int32_t Params::*> kInts[] = {
      {"runtime_top_k", &Params::top_k},
      {"runtime_top_p_reset_ids", &Params::top_p_reset_id},
      {"no_repeat_ngram_size", &Params::no_repeat_ngram_size},
      {"prompt_ignore_length", &Params::prompt_ignore_length},
      {"num_top_logprobs", &Params::num_top_log_probs}};
  for (const auto& [name, member] : kFloats)
    NEREID_RETURN_IF_ERROR(inputs.Scalar<float>(name, row, sampling.*member));
  for (const auto& [name, member] : kInts)
    NEREID_RETURN_IF_ERROR(inputs.Scalar<int32_t>(name, row, sampling.*member));
  // An input with two names is checked here, where the name that the client used is known.
  for (const char* name : {"runtime_top_k_min", "runtime_top_p_min"}) {
    NEREID_RETURN_IF_ERROR(inputs.Scalar<float>(name, row, sampling.top_p_min));
    NEREID_RETURN_IF_ERROR(llm::CheckTopPMin(name, sampling.top_p_min));
  }
  NEREID_RETURN_IF_ERROR(inputs.Scalar<uint64_t>("random_seed", row, sampling.seed));
  NEREID_RETURN_IF_ERROR(inputs.Scalar<uint64_t>("seed", row, sampling.seed));
  return inputs.Scalar<Bool>("return_log_probs", row, sampling.returns_log_probs);
}

// Decides what a temperature without an input that limits the tokens means. The C++ backend of
// TensorRT-LLM is greedy then; its newer LLM API samples.
void ApplyTemperatureAlone(BatchInputs& inputs, const RequestDefaults& defaults,
                           llm::SamplingParams& sampling, ClientRequest& request) {
  if (inputs.Find("temperature") == nullptr) return;
  for (const char* name : {"runtime_top_k", "runtime_top_p", "min_p"}) {
    if (inputs.Find(name) != nullptr) return;
  }
  if (!sampling.is_greedy() || !(sampling.temperature > 0.0f) || sampling.top_k == 1) return;
  if (defaults.temperature_samples) {
    sampling.top_p = 1.0f;
  } else if (sampling.temperature != 1.0f) {
    request.unused_temperature = sampling.temperature;
  }
}

// Returns the end ids for the requested `end_id`; -1 means none. A default end id of the checkpoint
// (for example the tokenizer's eos) selects all default end ids, because chat models end a turn
// with a different id than a document.
llm::TokenIds EndIds(int32_t end_id, const llm::TokenIds& defaults) {
  if (end_id < 0) return {};
  const bool is_default = std::find(defaults.begin(), defaults.end(), end_id) != defaults.end();
  return is_default ? defaults : llm::TokenIds{end_id};
}

Status ReadLength(BatchInputs& inputs, int64_t row, const RequestDefaults& defaults,
                  RequestItem& out) {
  llm::StopCriteria& stop = out.generation->stop;
  // Only a configuration that declares the input as optional lets a request without it pass.
  const bool fills_context = inputs.Find("request_output_len") == nullptr;
  out.generation->output_fills_cache = fills_context;
  stop.max_tokens = std::numeric_limits<int32_t>::max();
  NEREID_RETURN_IF_ERROR(inputs.Scalar<int32_t>("request_output_len", row, stop.max_tokens));
  for (const char* name : {"min_length", "min_tokens"}) {
    NEREID_RETURN_IF_ERROR(inputs.Scalar<int32_t>(name, row, stop.min_tokens));
    if (stop.min_tokens < 0)
      return InvalidArgError("'", name, "' is ", stop.min_tokens, ", expected 0 or more");
  }
  // Limit the output to what the model's context can hold. The client sees finish_reason "length",
  // and in stop_reason that it got less than it asked for.
  const int64_t num_free = defaults.max_positions - std::ssize(out.generation->prompt);
  if (num_free <= 0 || stop.max_tokens <= num_free) return {};
  if (!fills_context) {
    out.stop_reasons.cut_length =
        StrCat("max_tokens ", stop.max_tokens, " was cut to ", num_free, ": the model's limit is ",
               defaults.max_positions, " tokens, prompt and output together");
  }
  stop.max_tokens = static_cast<int32_t>(num_free);
  return {};
}

Status ReadItem(Request& request, BatchInputs& inputs, int64_t row, const RequestDefaults& defaults,
                ClientRequest& client, RequestItem& out) {
  llm::GenerationRequest& generation = *out.generation;
  NEREID_RETURN_IF_ERROR(ReadPrompt(inputs, row, generation.prompt));
  NEREID_ASSIGN_OR_RETURN(
      out.embeddings, ReadPromptEmbeddings(inputs, row, defaults.vocab_size, defaults.hidden_size,
                                           generation.prompt));
  generation.sampling = defaults.sampling;
  NEREID_RETURN_IF_ERROR(ReadSampling(inputs, row, generation.sampling));
  // Output tokens always count.
  generation.sampling.prompt_ignore_length =
      std::min(generation.sampling.prompt_ignore_length,
               static_cast<int32_t>(std::ssize(generation.prompt)));
  NEREID_RETURN_IF_ERROR(ReadTokenRules(inputs, row, generation.sampling));
  generation.stop.end_ids = defaults.end_ids;
  int32_t end_id = -1;
  NEREID_RETURN_IF_ERROR(inputs.Scalar<int32_t>("end_id", row, end_id));
  if (inputs.Find("end_id") != nullptr) generation.stop.end_ids = EndIds(end_id, defaults.end_ids);
  NEREID_RETURN_IF_ERROR(ReadLength(inputs, row, defaults, out));
  NEREID_RETURN_IF_ERROR(ReadBeams(inputs, row, defaults, generation));
  NEREID_RETURN_IF_ERROR(CheckDecodingMode(defaults.decoding_mode, generation));
  if (!generation.uses_beams())
    ApplyTemperatureAlone(inputs, defaults, generation.sampling, client);
  NEREID_RETURN_IF_ERROR(ReadRequestedOutputs(inputs, row, defaults, out));
  NEREID_RETURN_IF_ERROR(ReadStops(inputs, row, defaults, out));
  NEREID_RETURN_IF_ERROR(inputs.Scalar<int32_t>("priority", row, generation.priority));
  NEREID_RETURN_IF_ERROR(ReadGuide(inputs, row, out));
  NEREID_RETURN_IF_ERROR(ReadCacheSalt(inputs, row, generation.cache_salt));
  NEREID_ASSIGN_OR_RETURN(generation.retention, ReadRetention(request, inputs, row));
  NEREID_ASSIGN_OR_RETURN(generation.adapter, defaults.lora->Find(request, inputs, row));
  NEREID_ASSIGN_OR_RETURN(generation.lookahead, ReadLookahead(inputs, row, defaults.lookahead));
  return ReadDraftInputs(request, inputs, row, generation);
}

}  // namespace

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

Result<ClientRequest> ReadRequest(Request& request, const RequestDefaults& defaults) {
  NEREID_ASSIGN_OR_RETURN(BatchInputs inputs, BatchInputs::Of(request));
  ClientRequest result;
  NEREID_ASSIGN_OR_RETURN(const std::string_view id, request.Id());
  result.id = id;
  NEREID_RETURN_IF_ERROR(inputs.Scalar<Bool>("stop", 0, result.is_stop));
  if (result.is_stop) return result;
  NEREID_ASSIGN_OR_RETURN(result.noted_inputs, ApplyInputRules(inputs));
  NEREID_RETURN_IF_ERROR(RefuseRequestType(request));
  NEREID_RETURN_IF_ERROR(RefuseOutputs(request, defaults.num_outputs));
  NEREID_RETURN_IF_ERROR(ReadCountRequests(inputs, defaults, result));
  NEREID_RETURN_IF_ERROR(inputs.Scalar<Bool>("streaming", 0, result.is_streaming));
  result.exclude_input = defaults.exclude_input_in_output;
  NEREID_RETURN_IF_ERROR(inputs.Scalar<Bool>("exclude_input_in_output", 0, result.exclude_input));
  for (int64_t row = 0; row < inputs.num_rows(); ++row) {
    NEREID_RETURN_IF_ERROR(
        ReadItem(request, inputs, row, defaults, result, result.items.emplace_back()));
  }
  NEREID_RETURN_IF_ERROR(ReadGuideParameters(request, result));
  return result;
}

}  // namespace nereid::llm
