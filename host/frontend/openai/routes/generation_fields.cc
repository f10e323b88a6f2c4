#include "host/frontend/openai/routes/generation_fields.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "host/frontend/client_input.h"
#include "host/frontend/http/transport/http_request.h"
#include "host/frontend/openai/routes/output_guide.h"

namespace nereid::openai {
namespace {

constexpr size_t kMaxRequestId = 128;
constexpr size_t kMaxBiases = 1024;
// What models whose max_tokens is required get for an answer without a limit. The engine reduces it
// to what the context leaves.
constexpr int64_t kUnlimitedTokens = 1 << 30;

// The seed has 31 bits, because a model may declare any integer type for it.
int64_t RandomSeed() {
  thread_local std::mt19937_64 generator{std::random_device{}()};
  return static_cast<int64_t>(generator() >> 33);
}

}  // namespace

Result<std::string> ReadModelName(ParsedBody& body) {
  const FieldValue* const model = body.Find("model");
  if (model == nullptr) return body.Refuse("model", "missing", "model: this field is required");
  NEREID_RETURN_IF_ERROR(RejectZeroByte("model", model->text));
  return std::string(model->text);
}

Status GenerationFields::RequireInput(const FieldValue& value, std::string_view tensor) {
  if (model_.FindInput(tensor) != nullptr) return Status::Ok();
  return body_.Refuse(value.field->name, "unsupported_parameter", "field '", value.field->name,
                      "' is not supported by model '", model_.name, "': it has no input '", tensor,
                      "'");
}

Status GenerationFields::RequireOutput(const FieldValue& value, std::string_view tensor) {
  if (model_.HasOutput(tensor)) return Status::Ok();
  return body_.Refuse(value.field->name, "unsupported_parameter", "field '", value.field->name,
                      "' is not supported by model '", model_.name, "': it has no output '", tensor,
                      "'");
}

Status GenerationFields::ReadRequest(GenerationRequest& request) {
  NEREID_RETURN_IF_ERROR(ReadStreamOptions(request));
  NEREID_RETURN_IF_ERROR(CheckChoices());
  NEREID_RETURN_IF_ERROR(ReadNumAnswers(request));
  if (const FieldValue* const id = body_.Find("request_id"); id != nullptr && request.id.empty()) {
    if (id->text.size() > kMaxRequestId || http::HasControlCharacter(id->text)) {
      return body_.Refuse("request_id", "invalid_value", "request_id: expected at most ",
                          kMaxRequestId, " characters without control characters");
    }
    request.id = id->text;
  }
  request.length_tokens = LengthTokens(request);
  request.outputs = {"text_output"};
  for (const char* const output : {"finish_reason", "stop_reason", "num_input_tokens",
                                   "num_output_tokens", "num_cached_tokens", "sequence_index"}) {
    if (model_.HasOutput(output)) request.outputs.emplace_back(output);
  }
  if (request.kept_per_prompt != 0) request.outputs.emplace_back("cum_log_probs");
  if (const FieldValue* const ids = body_.Find("return_token_ids"); ids && ids->boolean) {
    NEREID_RETURN_IF_ERROR(RequireOutput(*ids, "output_token_ids"));
    request.has_token_ids = true;
    request.outputs.emplace_back("output_token_ids");
    if (model_.HasOutput("prompt_ids")) request.outputs.emplace_back("prompt_ids");
  }
  return Status::Ok();
}

// An end token is not counted among those of an answer, a stop word may be, and several answers may
// have one count together.
int64_t GenerationFields::LengthTokens(const GenerationRequest& request) const {
  for (const char* const field : {"stop", "stop_token_ids", "include_stop_str_in_output"}) {
    if (body_.Find(field) != nullptr) return 0;
  }
  const FieldValue* const limit = MaxTokens();
  return limit == nullptr || request.answers_per_prompt > 1 ? 0 : limit->integer;
}

// Reads `n` and `best_of`.
Status GenerationFields::ReadNumAnswers(GenerationRequest& request) {
  const FieldValue* const n = body_.Find("n");
  const FieldValue* const best_of = body_.Find("best_of");
  const int64_t num_kept = n == nullptr ? 1 : n->integer;
  const int64_t num_made = best_of == nullptr ? num_kept : best_of->integer;
  if (num_made < num_kept) {
    return body_.Refuse("best_of", "invalid_value", "best_of: expected at least ", num_kept,
                        ", the value of 'n', got ", num_made);
  }
  if (num_made == 1) return Status::Ok();
  const FieldValue& value = num_made > num_kept ? *best_of : *n;
  const std::string_view name = value.field->name;
  NEREID_RETURN_IF_ERROR(RequireInput(value, "num_return_sequences"));
  if (!model_.is_decoupled) {
    return body_.Refuse(name, "unsupported_parameter", "field '", name,
                        "' is not supported by model '", model_.name,
                        "': it is not decoupled, so that one response has all answers and does "
                        "not say why and where each ends");
  }
  request.answers_per_prompt = static_cast<size_t>(num_made);
  if (num_made == num_kept) return Status::Ok();
  if (request.is_stream) {
    return body_.Refuse("best_of", "invalid_value", "best_of: expected ", num_kept,
                        ", the value of 'n', in a stream, got ", num_made,
                        ": which answers are the best is known at the end");
  }
  NEREID_RETURN_IF_ERROR(RequireInput(value, "return_log_probs"));
  NEREID_RETURN_IF_ERROR(RequireOutput(value, "cum_log_probs"));
  NEREID_RETURN_IF_ERROR(RequireOutput(value, "num_output_tokens"));
  request.kept_per_prompt = static_cast<size_t>(num_kept);
  return Status::Ok();
}

Status GenerationFields::ReadPromptLogProbs(GenerationRequest& request) {
  const FieldValue* const value = body_.Find("prompt_logprobs");
  if (value == nullptr) return Status::Ok();
  if (request.is_stream) {
    return body_.Refuse("prompt_logprobs", "invalid_value",
                        "prompt_logprobs: not with 'stream': true");
  }
  request.has_prompt_log_probs = true;
  return RequestPromptLogProbs(*value, value->integer, request);
}

Status GenerationFields::RequestLogProbs(const FieldValue& log_probs, const FieldValue* top,
                                         GenerationRequest& request) {
  NEREID_RETURN_IF_ERROR(RequireInput(log_probs, "return_log_probs"));
  NEREID_RETURN_IF_ERROR(RequireOutput(log_probs, "output_log_probs"));
  NEREID_RETURN_IF_ERROR(RequireOutput(log_probs, "token_texts"));
  request.has_log_probs = true;
  request.outputs.insert(request.outputs.end(), {"output_log_probs", "token_texts"});
  if (top == nullptr) return Status::Ok();
  NEREID_RETURN_IF_ERROR(RequireInput(*top, "num_top_logprobs"));
  for (const char* const output : {"top_logprobs", "top_token_texts"}) {
    NEREID_RETURN_IF_ERROR(RequireOutput(*top, output));
    request.outputs.emplace_back(output);
  }
  return Status::Ok();
}

Status GenerationFields::RequestPromptLogProbs(const FieldValue& value, int64_t num_top,
                                               GenerationRequest& request) {
  const auto ask = [&](std::string_view output) -> Status {
    NEREID_RETURN_IF_ERROR(RequireOutput(value, output));
    std::vector<std::string>& asked = request.outputs;
    if (std::find(asked.begin(), asked.end(), output) == asked.end()) asked.emplace_back(output);
    return Status::Ok();
  };
  NEREID_RETURN_IF_ERROR(RequireInput(value, "return_prompt_log_probs"));
  for (const char* const output : {"prompt_log_probs", "prompt_ids", "prompt_token_texts"}) {
    NEREID_RETURN_IF_ERROR(ask(output));
  }
  if (num_top == 0) return Status::Ok();
  NEREID_RETURN_IF_ERROR(RequireInput(value, "num_prompt_logprobs"));
  for (const char* const output :
       {"prompt_top_logprob_ids", "prompt_top_logprobs", "prompt_top_token_texts"}) {
    NEREID_RETURN_IF_ERROR(ask(output));
  }
  return Status::Ok();
}

Status GenerationFields::WritePromptLogProbs(int64_t num_top, http::InputTensors& inputs) {
  InputWriter writer(model_, inputs);
  NEREID_RETURN_IF_ERROR(writer.AddBool("return_prompt_log_probs", true));
  return num_top == 0 ? Status::Ok() : writer.AddInteger("num_prompt_logprobs", num_top);
}

Status GenerationFields::WriteThinkingBudget(InputWriter& writer) {
  const FieldValue* const budget = body_.Find("thinking_token_budget");
  if (budget == nullptr) return Status::Ok();
  NEREID_RETURN_IF_ERROR(RequireInput(*budget, "thinking_token_budget"));
  return writer.AddInteger("thinking_token_budget", budget->integer);
}

Status GenerationFields::WriteTruncation(int64_t default_max_tokens, http::InputTensors& inputs) {
  const FieldValue* const value = body_.Find("truncate_prompt_tokens");
  if (value == nullptr) return Status::Ok();
  NEREID_RETURN_IF_ERROR(RequireInput(*value, "truncate_prompt_tokens"));
  int64_t num_kept = value->integer;
  if (num_kept == 0) {
    return body_.Refuse("truncate_prompt_tokens", "invalid_value",
                        "truncate_prompt_tokens: expected -1 or at least 1, got 0");
  }
  if (num_kept < 0) {
    if (model_.max_model_len == 0) {
      return body_.Refuse("truncate_prompt_tokens", "unsupported_parameter",
                          "truncate_prompt_tokens: -1, but model '", model_.name,
                          "' does not say how many tokens its context holds (parameter "
                          "max_model_len)");
    }
    const int64_t max_tokens =
        body_.IntegerOr("max_completion_tokens", body_.IntegerOr("max_tokens", default_max_tokens));
    num_kept = std::max<int64_t>(model_.max_model_len - std::max<int64_t>(max_tokens, 1), 1);
  }
  InputWriter writer(model_, inputs);
  return writer.AddInteger("truncate_prompt_tokens", num_kept);
}

Status GenerationFields::ReadStreamOptions(GenerationRequest& request) {
  request.is_stream = body_.BoolOr("stream", false);
  const FieldValue* const options = body_.Find("stream_options");
  if (options == nullptr) return Status::Ok();
  if (!request.is_stream) {
    return body_.Refuse("stream_options", "invalid_value",
                        "stream_options: only with 'stream': true");
  }
  http::JsonReader reader = body_.ReaderOf(*options);
  return reader.ReadObject([&](std::string_view name) -> Status {
    bool* const target = name == "include_usage"            ? &request.has_usage_event
                         : name == "continuous_usage_stats" ? &request.has_usage_everywhere
                                                            : nullptr;
    if (target == nullptr && name != "include_obfuscation") {
      return body_.Refuse(StrCat("stream_options.", name), "unknown_parameter",
                          "stream_options: unknown field '", name, "'");
    }
    if (reader.Peek() == http::JsonKind::kNull) return reader.SkipValue();
    if (reader.Peek() != http::JsonKind::kBool) {
      return body_.Refuse(StrCat("stream_options.", name), "invalid_type", "stream_options.", name,
                          ": expected a boolean, got ", http::Describe(reader.Peek()));
    }
    NEREID_ASSIGN_OR_RETURN(const bool value, reader.ReadBool());
    if (target != nullptr) *target = value;
    return Status::Ok();
  });
}

// Fields that have one supported value.
Status GenerationFields::CheckChoices() {
  if (const FieldValue* const modalities = body_.Find("modalities")) {
    for (const std::string_view modality : modalities->texts) {
      if (modality == "text") continue;
      return body_.Refuse("modalities", "unsupported_parameter", "modalities: '", modality,
                          "' is not supported, only 'text'");
    }
  }
  return Status::Ok();
}

Status GenerationFields::WriteInputs(const GenerationRequest& request, int64_t default_max_tokens,
                                     http::InputTensors& inputs) {
  InputWriter writer(model_, inputs);
  for (const FieldValue& value : body_.values()) {
    if (value.field->handling != Handling::kTensor || value.IsNeutral()) continue;
    NEREID_RETURN_IF_ERROR(RequireInput(value, value.field->tensor));
    Status status = WriteTensor(value, writer);
    if (!status.ok()) return body_.Refuse(value.field->name, "invalid_value", status.message());
  }
  NEREID_RETURN_IF_ERROR(WriteAdapter(writer));
  NEREID_RETURN_IF_ERROR(WriteSampling(writer));
  NEREID_RETURN_IF_ERROR(WriteLogitBias(writer));
  NEREID_RETURN_IF_ERROR(WriteGuide(writer));
  NEREID_RETURN_IF_ERROR(WriteMaxTokens(default_max_tokens, writer));
  if (request.is_stream && model_.is_decoupled && writer.Has("stream")) {
    NEREID_RETURN_IF_ERROR(writer.AddBool("stream", true));
  }
  // `usage` needs the counts, which models of TensorRT-LLM's newest release send only if asked.
  for (const char* const name : {"return_num_input_tokens", "return_num_output_tokens"}) {
    if (writer.Has(name)) NEREID_RETURN_IF_ERROR(writer.AddBool(name, true));
  }
  if (request.answers_per_prompt > 1) {
    const auto count = static_cast<int64_t>(request.answers_per_prompt);
    NEREID_RETURN_IF_ERROR(writer.AddInteger("num_return_sequences", count));
  }
  return Status::Ok();
}

Status GenerationFields::WriteGuide(InputWriter& writer) {
  NEREID_ASSIGN_OR_RETURN(const auto guide, ReadOutputGuide(body_));
  if (!guide) return Status::Ok();
  for (const char* const tensor : {"guided_decoding_guide_type", "guided_decoding_guide"}) {
    NEREID_RETURN_IF_ERROR(RequireInput(*guide->field, tensor));
  }
  NEREID_RETURN_IF_ERROR(writer.AddText("guided_decoding_guide_type", guide->type));
  return writer.AddText("guided_decoding_guide", guide->text);
}

Status GenerationFields::WriteTensor(const FieldValue& value, InputWriter& writer) {
  const std::string_view tensor = value.field->tensor;
  switch (value.field->kind) {
    case FieldKind::kBool:
      return writer.AddBool(tensor, value.boolean);
    case FieldKind::kInteger:
      return writer.AddInteger(tensor, value.integer);
    case FieldKind::kNumber:
      return writer.AddNumber(tensor, value.number);
    case FieldKind::kText:
      return writer.AddText(tensor, value.text);
    case FieldKind::kTextOrTexts:
    case FieldKind::kTexts:
      return writer.AddTexts(tensor, value.texts);
    case FieldKind::kIntegers:
      return writer.AddIntegers(tensor, value.integers);
    default:
      return InternalError("field '", value.field->name, "' has no form as a tensor");
  }
}

// What the client leaves open is what the model recommends, else OpenAI's default: sampling from
// all tokens. Where the engine itself has defaults from the checkpoint, it uses those.
Status GenerationFields::WriteSampling(InputWriter& writer) {
  const FieldValue* const top_p = body_.Find("top_p");
  // To the engine, a top_p of 0 means that none is set. So it gets a top_k of 1 instead.
  const bool is_one_token = top_p != nullptr && top_p->number == 0;
  struct Parameter {
    const char* name;
    double fallback;
  };
  for (const auto& [name, fallback] :
       {Parameter{"temperature", 1}, Parameter{"top_k", 0}, Parameter{"top_p", 1}}) {
    const FieldValue* const value = body_.Find(name);
    if (value != nullptr) NEREID_RETURN_IF_ERROR(RequireInput(*value, name));
    if (!writer.Has(name)) continue;
    const std::optional<double> recommended = model_.Recommended(name);
    double number = recommended.value_or(fallback);
    if (value != nullptr) number = value->number;
    const bool is_open = value == nullptr && !recommended && model_.has_sampling_defaults;
    if (is_one_token) number = std::string_view(name) == "top_k" ? 1 : number == 0 ? 1 : number;
    if (is_open && !is_one_token) continue;
    NEREID_RETURN_IF_ERROR(writer.AddNumber(name, std::max(number, 0.0)));
  }
  // The same request without a seed gets another answer each time.
  if (body_.Find("seed") == nullptr && writer.Has("seed")) {
    NEREID_RETURN_IF_ERROR(writer.AddInteger("seed", RandomSeed()));
  }
  for (const char* const name : {"min_p", "repetition_penalty"}) {
    const std::optional<double> recommended = model_.Recommended(name);
    if (!recommended || body_.Find(name) != nullptr || !writer.Has(name)) continue;
    NEREID_RETURN_IF_ERROR(writer.AddNumber(name, *recommended));
  }
  return Status::Ok();
}

// The adapter that the model's name stands for.
Status GenerationFields::WriteAdapter(InputWriter& writer) {
  if (model_.adapter.empty()) return Status::Ok();
  if (const FieldValue* const field = body_.Find("lora_name"); field && !field->text.empty()) {
    return body_.Refuse("lora_name", "invalid_value", "lora_name: '", field->text,
                        "', but the model '", model_.name, "' is an adapter itself");
  }
  if (writer.Has("lora_name")) return writer.AddText("lora_name", model_.adapter);
  return body_.Refuse("model", "unsupported_parameter", "model '", model_.name,
                      "' is a LoRA adapter, but model '", model_.model,
                      "' has no input 'lora_name'");
}

Status GenerationFields::WriteLogitBias(InputWriter& writer) {
  const FieldValue* const value = body_.Find("logit_bias");
  if (value == nullptr) return Status::Ok();
  std::vector<int64_t> ids;
  std::vector<double> biases;
  http::JsonReader reader = body_.ReaderOf(*value);
  NEREID_RETURN_IF_ERROR(reader.ReadObject([&](std::string_view name) -> Status {
    int64_t id = -1;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
    const std::string path = StrCat("logit_bias.", name);
    if (error != std::errc() || end != name.data() + name.size() || id < 0 || id > INT32_MAX) {
      return body_.Refuse(path, "invalid_value", path, ": expected a token id as name");
    }
    if (reader.Peek() != http::JsonKind::kNumber) {
      return body_.Refuse(path, "invalid_type", path, ": expected a number, got ",
                          http::Describe(reader.Peek()));
    }
    NEREID_ASSIGN_OR_RETURN(const double bias, reader.ReadDouble());
    if (bias < value->field->min || bias > value->field->max || ids.size() == kMaxBiases) {
      return body_.Refuse(path, "invalid_value", path, ": expected at most ", kMaxBiases,
                          " values from ", value->field->min, " to ", value->field->max, ", got ",
                          bias);
    }
    ids.push_back(id);
    biases.push_back(bias);
    return Status::Ok();
  }));
  if (ids.empty()) return Status::Ok();
  NEREID_RETURN_IF_ERROR(RequireInput(*value, "logit_bias_ids"));
  NEREID_RETURN_IF_ERROR(RequireInput(*value, "logit_bias_values"));
  NEREID_RETURN_IF_ERROR(writer.AddIntegers("logit_bias_ids", ids));
  return writer.AddNumbers("logit_bias_values", biases);
}

const FieldValue* GenerationFields::MaxTokens() const {
  const FieldValue* const new_name = body_.Find("max_completion_tokens");
  return new_name != nullptr ? new_name : body_.Find("max_tokens");
}

Status GenerationFields::WriteMaxTokens(int64_t default_max_tokens, InputWriter& writer) {
  const FieldValue* const old_name = body_.Find("max_tokens");
  const FieldValue* const new_name = body_.Find("max_completion_tokens");
  if (old_name != nullptr && new_name != nullptr && old_name->integer != new_name->integer) {
    return body_.Refuse("max_tokens", "invalid_value", "max_tokens: ", old_name->integer,
                        " contradicts 'max_completion_tokens': ", new_name->integer);
  }
  if (const FieldValue* const value = MaxTokens()) {
    NEREID_RETURN_IF_ERROR(RequireInput(*value, "max_tokens"));
    return writer.AddInteger("max_tokens", std::max<int64_t>(value->integer, 1));
  }
  const LlmInput* const input = model_.FindInput("max_tokens");
  if (input == nullptr || (default_max_tokens == 0 && input->is_optional)) return Status::Ok();
  return writer.AddInteger("max_tokens",
                           default_max_tokens == 0 ? kUnlimitedTokens : default_max_tokens);
}

}  // namespace nereid::openai
