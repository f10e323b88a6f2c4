// Reads the input tensors of the `tensorrt_llm` model, one batch item after the other.
#include "backends/llm_core/adapter/request_reader.h"

#include <algorithm>
#include <limits>

#include "backends/llm_core/adapter/batch_inputs.h"
#include "backends/llm_core/adapter/input_rules.h"
#include "backends/llm_core/adapter/prompt_embeddings_reader.h"
#include "backends/llm_core/adapter/retention_inputs.h"
#include "backends/llm_core/adapter/stop_words.h"

namespace nereid::llm {
namespace {

constexpr size_t kMaxStopBytes = 65536;  // limit for the stop words of one batch item
constexpr size_t kMaxStopTokenIds = 1024;

// Refuses what asks for a feature that does not exist, and collects what is only noted.
Status ApplyRules(BatchInputs& inputs, ClientRequest& request) {
  static const std::vector<const EngineInput*> rules = [] {
    std::vector<const EngineInput*> all;
    for (const EngineInput& input : EngineInputs()) {
      if (input.rule != InputRule::kUsed) all.push_back(&input);
    }
    return all;
  }();
  for (const EngineInput* const input : rules) {
    TensorView* view = inputs.Find(input->name);
    if (view == nullptr) continue;
    NEREID_ASSIGN_OR_RETURN(const bool refuse,
                            AsksForFeature(*view, input->rule, inputs.num_rows()));
    if (refuse) return RefusalOf(*input);
    if (input->rule == InputRule::kNoted) request.noted_inputs.push_back(input);
  }
  return {};
}

// A client that names no output gets all that exist. One that names an output which is never set
// would wait for it in vain.
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

// The parameter by which a client divides a request into its context and its generation.
Status RefuseRequestType(const Request& request) {
  NEREID_ASSIGN_OR_RETURN(const std::optional<ParameterView> type,
                          request.FindParameter("request_type"));
  if (!type) return {};
  const std::string_view text =
      type->type == TRITONSERVER_PARAMETER_STRING ? static_cast<const char*>(type->value) : "";
  if (text == "context_and_generation") return {};
  return UnsupportedError("parameter 'request_type' is '", text,
                          "': context and generation on different servers are not supported, ",
                          "expected context_and_generation");
}

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

// An input with two names is checked here, where the name that the client used is known.
Status ReadMinTokens(BatchInputs& inputs, int64_t row, int32_t& min_tokens) {
  for (const char* name : {"min_length", "min_tokens"}) {
    NEREID_RETURN_IF_ERROR(inputs.Scalar<int32_t>(name, row, min_tokens));
    if (min_tokens < 0)
      return InvalidArgError("'", name, "' is ", min_tokens, ", expected 0 or more");
  }
  return {};
}

Status ReadTopPMin(BatchInputs& inputs, int64_t row, float& top_p_min) {
  for (const char* name : {"runtime_top_k_min", "runtime_top_p_min"}) {
    NEREID_RETURN_IF_ERROR(inputs.Scalar<float>(name, row, top_p_min));
    NEREID_RETURN_IF_ERROR(llm::CheckTopPMin(name, top_p_min));
  }
  return {};
}

Status ReadLogitRules(BatchInputs& inputs, int64_t row, llm::SamplingParams& sampling) {
  NEREID_ASSIGN_OR_RETURN(const std::span<const int32_t> ids,
                          inputs.Row<int32_t>("logit_bias_ids", row));
  NEREID_ASSIGN_OR_RETURN(const std::span<const float> values,
                          inputs.Row<float>("logit_bias_values", row));
  if (ids.size() != values.size()) {
    return InvalidArgError("input 'logit_bias_ids' has ", ids.size(),
                           " values and 'logit_bias_values' has ", values.size(),
                           ", expected as many");
  }
  if (ids.size() > llm::kMaxLogitBias) {
    return InvalidArgError("input 'logit_bias_ids' has ", ids.size(), " values, expected at most ",
                           llm::kMaxLogitBias);
  }
  for (size_t i = 0; i < ids.size(); ++i) sampling.logit_bias.push_back({ids[i], values[i]});
  NEREID_ASSIGN_OR_RETURN(const std::span<const int32_t> allowed,
                          inputs.Row<int32_t>("allowed_token_ids", row));
  sampling.allowed_ids.assign(allowed.begin(), allowed.end());
  return {};
}

Status ReadSampling(BatchInputs& inputs, int64_t row, const RequestDefaults& defaults,
                    llm::SamplingParams& sampling) {
  sampling = defaults.sampling;
  NEREID_RETURN_IF_ERROR(inputs.Scalar<float>("temperature", row, sampling.temperature));
  NEREID_RETURN_IF_ERROR(inputs.Scalar<int32_t>("runtime_top_k", row, sampling.top_k));
  NEREID_RETURN_IF_ERROR(inputs.Scalar<float>("runtime_top_p", row, sampling.top_p));
  NEREID_RETURN_IF_ERROR(inputs.Scalar<float>("min_p", row, sampling.min_p));
  NEREID_RETURN_IF_ERROR(ReadTopPMin(inputs, row, sampling.top_p_min));
  NEREID_RETURN_IF_ERROR(inputs.Scalar<float>("runtime_top_p_decay", row, sampling.top_p_decay));
  NEREID_RETURN_IF_ERROR(
      inputs.Scalar<int32_t>("runtime_top_p_reset_ids", row, sampling.top_p_reset_id));
  NEREID_RETURN_IF_ERROR(
      inputs.Scalar<float>("repetition_penalty", row, sampling.repetition_penalty));
  NEREID_RETURN_IF_ERROR(inputs.Scalar<float>("presence_penalty", row, sampling.presence_penalty));
  NEREID_RETURN_IF_ERROR(
      inputs.Scalar<float>("frequency_penalty", row, sampling.frequency_penalty));
  NEREID_RETURN_IF_ERROR(
      inputs.Scalar<int32_t>("no_repeat_ngram_size", row, sampling.no_repeat_ngram_size));
  NEREID_RETURN_IF_ERROR(
      inputs.Scalar<int32_t>("prompt_ignore_length", row, sampling.prompt_ignore_length));
  NEREID_RETURN_IF_ERROR(inputs.Scalar<uint64_t>("random_seed", row, sampling.seed));
  NEREID_RETURN_IF_ERROR(inputs.Scalar<uint64_t>("seed", row, sampling.seed));
  NEREID_RETURN_IF_ERROR(inputs.Scalar<Bool>("return_log_probs", row, sampling.returns_log_probs));
  NEREID_ASSIGN_OR_RETURN(const std::span<const float> bias,
                          inputs.Row<float>("embedding_bias", row));
  sampling.embedding_bias.assign(bias.begin(), bias.end());
  NEREID_ASSIGN_OR_RETURN(const std::span<const int32_t> words,
                          inputs.Row<int32_t>("bad_words_list", row));
  NEREID_ASSIGN_OR_RETURN(sampling.bad_words, ReadWords("bad_words_list", words));
  NEREID_RETURN_IF_ERROR(
      inputs.Scalar<int32_t>("num_top_logprobs", row, sampling.num_top_log_probs));
  return ReadLogitRules(inputs, row, sampling);
}

// Whether the client has sent a temperature, but none of the inputs that limit the tokens.
bool HasTemperatureAlone(BatchInputs& inputs) {
  return inputs.Find("temperature") != nullptr && inputs.Find("runtime_top_k") == nullptr &&
         inputs.Find("runtime_top_p") == nullptr && inputs.Find("min_p") == nullptr;
}

// Decides what a temperature without a limit means. The C++ backend of TensorRT-LLM is greedy then;
// its newer LLM API samples.
void ApplyTemperatureAlone(const RequestDefaults& defaults, RequestItem& out,
                           ClientRequest& request) {
  llm::SamplingParams& sampling = out.sampling;
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

Status ReadBeams(BatchInputs& inputs, int64_t row, const RequestDefaults& defaults,
                 RequestItem& out) {
  llm::BeamParams& beams = out.beams;
  NEREID_RETURN_IF_ERROR(inputs.Scalar<int32_t>("beam_width", row, beams.width));
  if (beams.width > defaults.max_beam_width) {
    return InvalidArgError("input 'beam_width' is ", beams.width, ", expected 1 to ",
                           defaults.max_beam_width, " (parameter max_beam_width)");
  }
  NEREID_RETURN_IF_ERROR(inputs.Scalar<float>("len_penalty", row, beams.length_penalty));
  NEREID_RETURN_IF_ERROR(inputs.Scalar<Bool>("early_stopping", row, beams.early_stopping));
  NEREID_RETURN_IF_ERROR(
      inputs.Scalar<float>("beam_search_diversity_rate", row, beams.diversity_rate));
  out.num_sequences = std::max(1, beams.width);
  NEREID_RETURN_IF_ERROR(inputs.Scalar<int32_t>("num_return_sequences", row, out.num_sequences));
  // Checked before the engine sees it, because the number of responses depends on it.
  if (out.num_sequences < 1 || out.num_sequences > defaults.max_num_sequences) {
    return InvalidArgError("input 'num_return_sequences' is ", out.num_sequences,
                           ", expected 1 to ", defaults.max_num_sequences);
  }
  return {};
}

// Refuses inputs that the model's decoding_mode does not provide, because their effect would be
// missed. Values without effect pass, because clients send them as defaults.
Status CheckDecodingMode(DecodingMode mode, const RequestItem& item) {
  if (mode == DecodingMode::kAny) return {};
  const llm::SamplingParams& sampling = item.sampling;
  const auto refuse = [&](const char* input, auto value, const char* name) {
    return InvalidArgError("input '", input, "' is ", value,
                           ": the model's parameter decoding_mode is ", name);
  };
  const bool uses_top_p = sampling.top_p > 0.0f && sampling.top_p < 1.0f;
  if (mode == DecodingMode::kBeamSearch) {
    if (sampling.top_k > 1) return refuse("runtime_top_k", sampling.top_k, "beam_search");
    if (uses_top_p) return refuse("runtime_top_p", sampling.top_p, "beam_search");
    return {};
  }
  const char* const name = mode == DecodingMode::kTopK   ? "top_k"
                           : mode == DecodingMode::kTopP ? "top_p"
                                                         : "top_k_top_p";
  if (item.beams.width > 1) return refuse("beam_width", item.beams.width, name);
  if (mode == DecodingMode::kTopK && uses_top_p) {
    return refuse("runtime_top_p", sampling.top_p, name);
  }
  const bool uses_top_k = sampling.top_k > 1 || (sampling.top_k == 1 && uses_top_p);
  if (mode == DecodingMode::kTopP && uses_top_k) {
    return refuse("runtime_top_k", sampling.top_k, name);
  }
  return {};
}

// The hash of any text. Requests share cached prefixes only if their texts are equal.
uint64_t SaltOf(std::string_view text) {
  uint64_t salt = 0xcbf29ce484222325u;
  for (const char c : text) salt = (salt ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return text.empty() ? 0 : salt;
}

// The text of one row, or nothing if the input is absent.
Result<std::optional<std::string_view>> ReadText(BatchInputs& inputs, std::string_view name,
                                                 int64_t row) {
  TensorView* view = inputs.Find(name);
  if (view == nullptr) return std::optional<std::string_view>();
  NEREID_ASSIGN_OR_RETURN(const std::vector<std::string_view> texts, view->Strings());
  if (static_cast<int64_t>(texts.size()) != inputs.num_rows()) {
    return InvalidArgError("input '", name, "': expected one value a row, got ", texts.size(),
                           " for ", inputs.num_rows(), " rows");
  }
  return std::optional(texts[row]);
}

Status ReadGuide(BatchInputs& inputs, int64_t row, RequestItem& out) {
  constexpr const char* kType = "guided_decoding_guide_type";
  constexpr const char* kGuide = "guided_decoding_guide";
  NEREID_ASSIGN_OR_RETURN(const auto type, ReadText(inputs, kType, row));
  NEREID_ASSIGN_OR_RETURN(const auto text, ReadText(inputs, kGuide, row));
  if (type.value_or("").empty()) {
    if (text.value_or("").empty()) return {};
    return InvalidArgError("input '", kGuide, "' needs '", kType, "'");
  }
  Result<grammar::GuideType> parsed = grammar::ParseGuideType(*type);
  if (!parsed.ok()) return std::move(parsed).status().WithContext(StrCat("input '", kType, "'"));
  if (text.value_or("").empty() && *parsed != grammar::GuideType::kJson) {
    return InvalidArgError("input '", kType, "' is '", *type, "': it needs '", kGuide, "'");
  }
  if (out.beams.width > 1) {
    return UnsupportedError("input '", kType, "' is '", *type, "' and 'beam_width' is ",
                            out.beams.width, ": beam search follows no grammar, expected 1");
  }
  out.guide = grammar::Guide{*parsed, std::string(text.value_or(""))};
  return {};
}

// A guide that a request parameter names, for all rows.
Status ReadGuideParameters(const Request& request, ClientRequest& result) {
  const char* found = nullptr;
  for (const char* name : grammar::GuideParameters()) {
    NEREID_ASSIGN_OR_RETURN(const std::optional<ParameterView> parameter,
                            request.FindParameter(name));
    if (!parameter) continue;
    const std::string what = StrCat("request parameter '", name, "'");
    if (parameter->type != TRITONSERVER_PARAMETER_STRING) {
      return InvalidArgError(what, ": expected a text");
    }
    if (found != nullptr) return InvalidArgError(what, ": not beside '", found, "'");
    found = name;
    Result<std::optional<grammar::Guide>> guide =
        grammar::ReadGuideParameter(name, parameter->AsString());
    if (!guide.ok()) return std::move(guide).status().WithContext(what);
    if (!*guide) continue;
    for (RequestItem& item : result.items) {
      if (item.guide) {
        return InvalidArgError(what, ": not beside the input 'guided_decoding_guide_type'");
      }
      if (item.beams.width > 1) {
        return UnsupportedError(what, ": 'beam_width' is ", item.beams.width,
                                ": beam search follows no grammar, expected 1");
      }
      item.guide = **guide;
    }
  }
  return {};
}

// The budget has no effect where the preprocessing knows no text that would end the reasoning.
Status ReadReasoning(BatchInputs& inputs, int64_t row, RequestItem& out) {
  if (inputs.Find("thinking_token_budget") == nullptr) return {};
  llm::ReasoningLimit limit;
  NEREID_RETURN_IF_ERROR(inputs.Scalar<int32_t>("thinking_token_budget", row, limit.max_tokens));
  NEREID_ASSIGN_OR_RETURN(const std::span<const int32_t> begin_ids,
                          inputs.Row<int32_t>("thinking_begin_ids", row));
  NEREID_ASSIGN_OR_RETURN(const std::span<const int32_t> end_ids,
                          inputs.Row<int32_t>("thinking_end_ids", row));
  limit.begin_ids.assign(begin_ids.begin(), begin_ids.end());
  limit.end_ids.assign(end_ids.begin(), end_ids.end());
  if (!end_ids.empty()) out.reasoning = std::move(limit);
  return {};
}

// `is_declared`: whether the model has the output `output`, which the input asks for.
Status ReadLogitsFlag(BatchInputs& inputs, int64_t row, const char* name, const char* output,
                      bool is_declared, bool& flag) {
  NEREID_RETURN_IF_ERROR(inputs.Scalar<Bool>(name, row, flag));
  if (!flag || is_declared) return {};
  return InvalidArgError("input '", name, "' is true: the model has no output '", output,
                         "'; add it to config.pbtxt");
}

Status ReadExtras(BatchInputs& inputs, int64_t row, const RequestDefaults& defaults,
                  RequestItem& out) {
  NEREID_RETURN_IF_ERROR(ReadLogitsFlag(inputs, row, "return_context_logits", "context_logits",
                                        defaults.has_context_logits, out.returns_context_logits));
  NEREID_RETURN_IF_ERROR(ReadLogitsFlag(inputs, row, "return_generation_logits",
                                        "generation_logits", defaults.has_generation_logits,
                                        out.returns_generation_logits));
  NEREID_RETURN_IF_ERROR(
      inputs.Scalar<Bool>("return_prompt_log_probs", row, out.returns_prompt_log_probs));
  NEREID_RETURN_IF_ERROR(
      inputs.Scalar<int32_t>("num_prompt_logprobs", row, out.num_prompt_top_log_probs));
  out.returns_prompt_log_probs |= out.num_prompt_top_log_probs > 0;
  NEREID_RETURN_IF_ERROR(ReadReasoning(inputs, row, out));
  NEREID_RETURN_IF_ERROR(
      inputs.Scalar<Bool>("return_kv_cache_reuse_stats", row, out.returns_cache_stats));
  NEREID_RETURN_IF_ERROR(inputs.Scalar<Bool>("return_perf_metrics", row, out.returns_perf_metrics));
  NEREID_RETURN_IF_ERROR(inputs.Scalar<Bool>("return_token_ids", row, out.returns_token_ids));
  NEREID_RETURN_IF_ERROR(inputs.Scalar<int32_t>("priority", row, out.priority));
  NEREID_ASSIGN_OR_RETURN(const auto salt, ReadText(inputs, "cache_salt", row));
  if (salt) out.cache_salt = SaltOf(*salt);
  return ReadGuide(inputs, row, out);
}

// Removes the end ids if the request ignores them, and adds the request's own.
Status ReadStopTokenIds(BatchInputs& inputs, int64_t row, const RequestDefaults& defaults,
                        RequestItem& out) {
  llm::TokenIds& end_ids = out.stop.end_ids;
  Bool ignores_end = false;
  NEREID_RETURN_IF_ERROR(inputs.Scalar<Bool>("ignore_eos", row, ignores_end));
  if (ignores_end) end_ids.clear();
  NEREID_ASSIGN_OR_RETURN(const std::span<const int32_t> ids,
                          inputs.Row<int32_t>("stop_token_ids", row));
  if (ids.size() > kMaxStopTokenIds) {
    return InvalidArgError("input 'stop_token_ids' has ", ids.size(), " values, expected at most ",
                           kMaxStopTokenIds);
  }
  for (const int32_t id : ids) {
    if (id < 0 || id >= defaults.vocab_size) {
      return InvalidArgError("input 'stop_token_ids' holds token id ", id, ", expected 0 to ",
                             defaults.vocab_size - 1);
    }
    if (std::find(end_ids.begin(), end_ids.end(), id) == end_ids.end()) {
      out.stop_reasons.stop_token_ids.push_back(id);
      end_ids.push_back(id);
    }
  }
  return {};
}

Status ReadStop(BatchInputs& inputs, int64_t row, const RequestDefaults& defaults,
                RequestItem& out) {
  llm::StopCriteria& stop = out.stop;
  // Only a configuration that declares the input as optional lets a request without it pass.
  out.output_fills_context = inputs.Find("request_output_len") == nullptr;
  stop.max_tokens = std::numeric_limits<int32_t>::max();
  NEREID_RETURN_IF_ERROR(inputs.Scalar<int32_t>("request_output_len", row, stop.max_tokens));
  NEREID_RETURN_IF_ERROR(ReadMinTokens(inputs, row, stop.min_tokens));
  stop.end_ids = defaults.end_ids;
  if (inputs.Find("end_id") != nullptr) {
    int32_t end_id = -1;
    NEREID_RETURN_IF_ERROR(inputs.Scalar<int32_t>("end_id", row, end_id));
    stop.end_ids = EndIds(end_id, defaults.end_ids);
  }
  NEREID_RETURN_IF_ERROR(ReadStopTokenIds(inputs, row, defaults, out));
  NEREID_RETURN_IF_ERROR(
      inputs.Scalar<Bool>("include_stop_str_in_output", row, stop.includes_stop));
  NEREID_RETURN_IF_ERROR(inputs.Scalar<Bool>("skip_special_tokens", row, out.skips_special_tokens));
  NEREID_ASSIGN_OR_RETURN(const std::span<const int32_t> words,
                          inputs.Row<int32_t>("stop_words_list", row));
  NEREID_ASSIGN_OR_RETURN(stop.stop_words, ReadWords("stop_words_list", words));
  // Limit the output to what the model's context can hold. The client sees finish_reason "length",
  // and in stop_reason that it got less than it asked for.
  const int64_t num_free_positions =
      defaults.max_positions - static_cast<int64_t>(out.prompt.size());
  if (num_free_positions <= 0 || stop.max_tokens <= num_free_positions) return {};
  if (!out.output_fills_context) {
    out.stop_reasons.cut_length = StrCat(
        "max_tokens ", stop.max_tokens, " was cut to ", num_free_positions,
        ": the model's limit is ", defaults.max_positions, " tokens, prompt and output together");
  }
  stop.max_tokens = static_cast<int32_t>(num_free_positions);
  return {};
}

Result<std::vector<std::string_view>> ReadTextWords(BatchInputs& inputs, int64_t row) {
  TensorView* view = inputs.Find("stop_words");
  if (view == nullptr) return std::vector<std::string_view>();
  NEREID_ASSIGN_OR_RETURN(const std::vector<std::string_view> all, view->Strings());
  const auto num_rows = static_cast<size_t>(inputs.num_rows());
  if (all.size() % num_rows != 0) {
    return InvalidArgError("input 'stop_words': shape ", ToString(view->shape()),
                           " does not divide into ", num_rows, " rows");
  }
  const auto per_row = static_cast<ptrdiff_t>(all.size() / num_rows);
  std::vector<std::string_view> words(all.begin() + row * per_row,
                                      all.begin() + (row + 1) * per_row);
  size_t num_bytes = 0;
  for (const std::string_view word : words) num_bytes += word.size();
  if (num_bytes > kMaxStopBytes) {
    return InvalidArgError("input 'stop_words': ", num_bytes, " bytes in a row, expected at most ",
                           kMaxStopBytes);
  }
  return words;
}

// Decides which stop words are matched in the text: those given as text, and those of
// stop_words_list that stand for a text.
Status ReadStopTexts(BatchInputs& inputs, int64_t row, const RequestDefaults& defaults,
                     RequestItem& out) {
  NEREID_ASSIGN_OR_RETURN(const std::vector<std::string_view> words, ReadTextWords(inputs, row));
  const auto is_nonempty = [](std::string_view word) { return !word.empty(); };
  const bool has_texts = std::any_of(words.begin(), words.end(), is_nonempty);
  const bool matches_ids_as_text =
      defaults.matches_words_as_text && !out.stop.stop_words.empty() && out.beams.width <= 1;
  if (!has_texts && !matches_ids_as_text) return {};
  Result<std::shared_ptr<const tokenizer::Tokenizer>> loaded = defaults.tokenizer->Get();
  if (!loaded.ok()) {
    if (!has_texts) return {};  // the words are then matched by ids only
    return std::move(loaded).status().WithContext("input 'stop_words' needs a tokenizer");
  }
  tokenizer::DecodeOptions decoding = defaults.tokenizer->decode_options(**loaded);
  decoding.skip_special_tokens = out.skips_special_tokens.value_or(decoding.skip_special_tokens);
  const StopWordOptions options = {.ids_match_in_text = defaults.matches_words_as_text,
                                   .is_beam_search = out.beams.width > 1,
                                   .cleans_up_spaces = decoding.cleans_up_spaces,
                                   .max_text_bytes = kMaxStopBytes};
  Result<StopWords> combined =
      CombineStopWords(**loaded, std::move(out.stop.stop_words), words, options);
  if (!combined.ok()) return std::move(combined).status().WithContext("input 'stop_words'");
  out.stop.stop_words = std::move(combined->ids);
  out.stop_reasons.id_word_texts = std::move(combined->id_texts);
  if (combined->texts.empty()) return {};
  tokenizer::StopStringMatcher matcher(combined->texts, out.stop.includes_stop);
  out.stop_strings = std::make_shared<const StopStrings>(StopStrings{
      *loaded, decoding, out.stop.min_tokens, std::move(matcher), std::move(combined->texts)});
  return {};
}

// Whether the numbers of tokens are sent: if asked for, or if the model has no input for that.
Status ReadCountRequests(BatchInputs& inputs, const RequestDefaults& defaults,
                         ClientRequest& request) {
  request.returns_num_input_tokens = !defaults.asks_for_num_input;
  request.returns_num_output_tokens = !defaults.asks_for_num_output;
  NEREID_RETURN_IF_ERROR(
      inputs.Scalar<Bool>("return_num_input_tokens", 0, request.returns_num_input_tokens));
  return inputs.Scalar<Bool>("return_num_output_tokens", 0, request.returns_num_output_tokens);
}

}  // namespace

Result<std::vector<llm::TokenIds>> ReadWords(const char* name, std::span<const int32_t> elements) {
  std::vector<llm::TokenIds> words;
  if (elements.size() % 2 != 0) {
    return InvalidArgError("input '", name, "': expected shape [2, n] (ids, then offsets), got ",
                           elements.size(), " values");
  }
  const std::span<const int32_t> ids = elements.first(elements.size() / 2);
  const std::span<const int32_t> ends = elements.last(elements.size() / 2);
  int32_t begin = 0;
  for (const int32_t end : ends) {
    if (end < 0) break;
    if (end == 0 && begin == 0) continue;  // zeros as padding also mean that there are no words
    if (end <= begin || end > static_cast<int32_t>(ids.size())) {
      return InvalidArgError("input '", name, "': offset ", end, " after ", begin,
                             ", expected rising offsets up to ", ids.size());
    }
    words.emplace_back(ids.begin() + begin, ids.begin() + end);
    begin = end;
  }
  return words;
}

Result<ClientRequest> ReadRequest(Request& request, const RequestDefaults& defaults) {
  NEREID_ASSIGN_OR_RETURN(BatchInputs inputs, BatchInputs::Of(request));
  ClientRequest result;
  NEREID_ASSIGN_OR_RETURN(const std::string_view id, request.Id());
  result.id = id;
  Bool stop = false;
  NEREID_RETURN_IF_ERROR(inputs.Scalar<Bool>("stop", 0, stop));
  result.is_stop = stop;
  if (result.is_stop) return result;
  NEREID_RETURN_IF_ERROR(ApplyRules(inputs, result));
  NEREID_RETURN_IF_ERROR(RefuseOutputs(request, defaults.num_outputs));
  NEREID_RETURN_IF_ERROR(RefuseRequestType(request));
  NEREID_RETURN_IF_ERROR(ReadCountRequests(inputs, defaults, result));
  NEREID_RETURN_IF_ERROR(inputs.Scalar<Bool>("streaming", 0, result.is_streaming));
  NEREID_RETURN_IF_ERROR(ReadSpeculates(request, result.speculates));
  result.exclude_input = defaults.exclude_input_in_output;
  NEREID_RETURN_IF_ERROR(inputs.Scalar<Bool>("exclude_input_in_output", 0, result.exclude_input));
  for (int64_t row = 0; row < inputs.num_rows(); ++row) {
    RequestItem& out = result.items.emplace_back();
    NEREID_RETURN_IF_ERROR(ReadPrompt(inputs, row, out.prompt));
    NEREID_ASSIGN_OR_RETURN(out.embeddings, ReadPromptEmbeddings(inputs, row, defaults.vocab_size,
                                                                 defaults.hidden_size, out.prompt));
    NEREID_RETURN_IF_ERROR(ReadSampling(inputs, row, defaults, out.sampling));
    // Output tokens always count.
    out.sampling.prompt_ignore_length =
        std::min(out.sampling.prompt_ignore_length, static_cast<int32_t>(out.prompt.size()));
    NEREID_RETURN_IF_ERROR(ReadStop(inputs, row, defaults, out));
    NEREID_RETURN_IF_ERROR(ReadBeams(inputs, row, defaults, out));
    NEREID_RETURN_IF_ERROR(CheckDecodingMode(defaults.decoding_mode, out));
    if (out.beams.width <= 1 && HasTemperatureAlone(inputs))
      ApplyTemperatureAlone(defaults, out, result);
    NEREID_RETURN_IF_ERROR(ReadStopTexts(inputs, row, defaults, out));
    NEREID_RETURN_IF_ERROR(ReadExtras(inputs, row, defaults, out));
    NEREID_ASSIGN_OR_RETURN(out.retention, ReadRetention(request, inputs, row));
    NEREID_ASSIGN_OR_RETURN(out.adapter, defaults.lora->Find(request, inputs, row));
    NEREID_RETURN_IF_ERROR(ReadDraftInputs(inputs, row, out.drafts));
  }
  NEREID_RETURN_IF_ERROR(ReadGuideParameters(request, result));
  return result;
}

}  // namespace nereid::llm
