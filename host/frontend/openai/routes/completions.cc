#include "host/frontend/openai/routes/completions.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "host/frontend/http/bodies/base64.h"
#include "host/frontend/http/json/json_writer.h"
#include "host/frontend/openai/routes/chunk_format.h"
#include "host/frontend/openai/routes/generation_fields.h"
#include "host/frontend/openai/tensors/torch_tensor.h"

namespace nereid::openai {
namespace {

using http::AppendJsonInt;
using http::AppendLossyJsonString;
using http::JsonKind;

constexpr size_t kMaxAnswers = 2048;  // of one request
constexpr int64_t kDefaultMaxTokens = 16;

class PromptReader {
 public:
  explicit PromptReader(ParsedBody& body, const FieldValue& value)
      : body_(body), reader_(body.ReaderOf(value)) {}

  Result<std::vector<Prompt>> Read() {
    if (reader_.Peek() == JsonKind::kString) {
      NEREID_RETURN_IF_ERROR(ReadText());
      return std::move(prompts_);
    }
    if (reader_.Peek() != JsonKind::kArray) {
      return Mismatch("prompt", "a string or an array of strings, of token ids or of their arrays");
    }
    bool is_list_of_ids = false;
    size_t index = 0;
    NEREID_RETURN_IF_ERROR(reader_.ReadArray([&]() -> Status {
      const std::string path = StrCat("prompt[", index++, "]");
      const JsonKind kind = reader_.Peek();
      if (index == 1 && kind == JsonKind::kNumber) {
        is_list_of_ids = true;
        prompts_.push_back({.is_text = false});
      }
      if (is_list_of_ids) return ReadId(path, prompts_.back());
      if (prompts_.size() == kMaxAnswers) {
        return body_.Refuse("prompt", "invalid_value", "prompt: expected at most ", kMaxAnswers,
                            " prompts");
      }
      if (kind == JsonKind::kString) return ReadText();
      if (kind == JsonKind::kArray) return ReadIds(path);
      return Mismatch(path, "a string or an array of token ids");
    }));
    if (prompts_.empty()) {
      return body_.Refuse("prompt", "invalid_value", "prompt: expected at least one prompt");
    }
    return std::move(prompts_);
  }

 private:
  Status Mismatch(const std::string& path, std::string_view expected) {
    return body_.Refuse(path, "invalid_type", path, ": expected ", expected, ", got ",
                        http::Describe(reader_.Peek()));
  }
  Status ReadText() {
    NEREID_ASSIGN_OR_RETURN(const std::string_view text, reader_.ReadTransientString());
    prompts_.push_back({.text = std::string(text)});
    return Status::Ok();
  }
  Status ReadId(const std::string& path, Prompt& prompt) {
    if (reader_.Peek() != JsonKind::kNumber) return Mismatch(path, "a token id");
    const Result<int64_t> id = reader_.ReadInt64();
    if (!id.ok() || *id < 0 || *id > INT32_MAX) {
      return body_.Refuse(path, "invalid_value", path, ": expected a token id, from 0 to ",
                          INT32_MAX);
    }
    prompt.ids.push_back(*id);
    return Status::Ok();
  }
  Status ReadIds(const std::string& path) {
    prompts_.push_back({.is_text = false});
    size_t index = 0;
    NEREID_RETURN_IF_ERROR(reader_.ReadArray(
        [&] { return ReadId(StrCat(path, "[", index++, "]"), prompts_.back()); }));
    if (index != 0) return Status::Ok();
    return body_.Refuse(path, "invalid_value", path, ": expected at least one token id");
  }

  ParsedBody& body_;
  http::JsonReader reader_;
  std::vector<Prompt> prompts_;
};

Result<Prompt> ReadEmbedding(ParsedBody& body, std::string_view text) {
  const auto refuse = [&](const auto&... reason) {
    return body.Refuse("prompt_embeds", "invalid_value", "prompt_embeds: ", reason...);
  };
  const std::optional<std::string> file = http::DecodeBase64(text);
  if (!file) return refuse("expected base64");
  const Result<TorchTensor> tensor = ReadTorchTensor(*file);
  if (!tensor.ok()) return refuse(tensor.status().message());
  const std::vector<int64_t>& shape = tensor->shape;
  const bool has_leading = shape.size() == 3 && shape[0] == 1;
  if (shape.size() != (has_leading ? 3 : 2) || tensor->bytes.empty()) {
    return refuse("a tensor of ", shape.size(), " dims and ", tensor->bytes.size(),
                  " bytes, expected [tokens, hidden size]");
  }
  return Prompt{.is_text = false, .embeds = FloatsOf(*tensor), .embed_size = shape.back()};
}

Result<std::vector<Prompt>> ReadPromptEmbeds(ParsedBody& body) {
  std::vector<Prompt> prompts;
  const FieldValue* const value = body.Find("prompt_embeds");
  if (value == nullptr) return prompts;
  for (const std::string_view text : value->texts) {
    NEREID_ASSIGN_OR_RETURN(Prompt prompt, ReadEmbedding(body, text));
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

Status ReadCompletionLogProbs(ParsedBody& body, GenerationFields& fields,
                              GenerationRequest& request) {
  const FieldValue* const log_probs = body.Find("logprobs");
  if (log_probs == nullptr) return Status::Ok();
  if (request.echoes_prompt) {
    if (request.is_stream && request.answers_per_prompt > 1) {
      return body.Refuse("logprobs", "unsupported_parameter",
                         "logprobs: expected an 'n' of 1 in a stream with 'echo', got ",
                         request.answers_per_prompt);
    }
    NEREID_RETURN_IF_ERROR(fields.RequestPromptLogProbs(*log_probs, log_probs->integer, request));
  }
  return fields.RequestLogProbs(*log_probs, log_probs->integer != 0 ? log_probs : nullptr, request);
}

// max_tokens 0 asks for the prompt alone.
Status ReadNoTokens(ParsedBody& body, GenerationFields& fields, GenerationRequest& request) {
  const FieldValue* const max_tokens = body.Find("max_tokens");
  if (max_tokens == nullptr || max_tokens->integer != 0) return Status::Ok();
  if (!request.echoes_prompt) {
    return body.Refuse("max_tokens", "invalid_value",
                       "max_tokens: expected at least 1 without 'echo', got 0");
  }
  request.drops_tokens = true;
  return fields.RequireOutput(*max_tokens, "finish_reason");
}

// A stream of a model contains the answer alone, so that the route writes the prompt; also where
// the answer is dropped. The text of token ids comes from the model.
Status ReadEchoes(ParsedBody& body, GenerationFields& fields, const LlmSignature& model,
                  const std::vector<Prompt>& prompts, GenerationRequest& request) {
  const bool is_streamed = request.is_stream && model.is_decoupled && model.FindInput("stream");
  if (!request.echoes_prompt || (!is_streamed && !request.drops_tokens)) return Status::Ok();
  for (const Prompt& prompt : prompts) {
    request.echoes.push_back(prompt.text);
    if (prompt.is_text) continue;
    NEREID_RETURN_IF_ERROR(fields.RequestPromptLogProbs(*body.Find("echo"), 0, request));
  }
  return Status::Ok();
}

class CompletionFormat final : public ChunkFormat {
 public:
  explicit CompletionFormat(const GenerationRequest& request)
      : ChunkFormat(request), echoes_log_probs_(request.echoes_prompt && request.has_log_probs) {}

  std::string Whole(const Answers& answers) override {
    std::string json;
    AppendHead(json, answers, "text_completion");
    for (size_t i = 0; i < answers.all.size(); ++i) {
      const Answer& answer = answers.all[i];
      if (i != 0) json += ',';
      size_t offset = 0;
      const std::vector<PromptToken>& prompt = PromptOf(answers, i);
      AppendChoice(json, i, answer.text, echoes_log_probs_ ? &prompt : nullptr, answer.log_probs,
                   offset, answer.FinishReason(), answer.stop_reason);
      if (has_prompt_log_probs_) AppendPromptLogProbs(json, prompt);
      if (has_token_ids_) {
        AppendIds(json, "token_ids", answer.token_ids);
        AppendIds(json, "prompt_token_ids", answer.prompt_ids);
      }
      json += '}';
    }
    json += "],\"usage\":";
    AppendUsage(json, answers.TotalUsage());
    json += '}';
    return json;
  }

  void AppendBegin(std::string&, const Answers& answers) override {
    AppendHead(head_, answers, "text_completion");
    text_bytes_.resize(answers.all.size());
  }

  void AppendPiece(std::string& events, const Answers& answers, size_t index,
                   const AnswerPiece& piece) override {
    events += "data: ";
    events += head_;
    const std::string_view reason =
        piece.finish_reason.empty() ? std::string_view() : answers.all[index].FinishReason();
    const bool begins = echoes_log_probs_ && !answers.all[index].has_begun;
    AppendChoice(events, index, piece.text, begins ? &PromptOf(answers, index) : nullptr,
                 piece.log_probs, text_bytes_[index], reason, piece.stop_reason);
    if (has_token_ids_) {
      AppendIds(events, "token_ids", piece.token_ids);
      if (!piece.prompt_ids.empty()) AppendIds(events, "prompt_token_ids", piece.prompt_ids);
    }
    events += "}]";
    EndChunk(events, answers);
  }

 private:
  // The tokens of the prompt that an answer belongs to.
  static const std::vector<PromptToken>& PromptOf(const Answers& answers, size_t index) {
    return answers.prompts[index * answers.prompts.size() / answers.all.size()];
  }

  // Appends a choice without its closing brace. `prompt`: tokens in front of `tokens`; may be null.
  // `offset` is where the text of the first token begins, and afterwards where the next one does.
  void AppendChoice(std::string& json, size_t index, std::string_view text,
                    const std::vector<PromptToken>* prompt, const std::vector<TokenLogProb>& tokens,
                    size_t& offset, std::string_view reason, std::string_view stop) const {
    json += "{\"index\":";
    AppendJsonInt(json, static_cast<int64_t>(index));
    json += ",\"text\":";
    AppendLossyJsonString(json, text);
    json += ",\"logprobs\":";
    if (has_log_probs_) {
      AppendLogProbs(json, prompt, tokens, offset);
    } else {
      json += "null";
    }
    AppendFinishReason(json, reason);
    AppendStopReason(json, stop);
  }

  static void AppendLogProbs(std::string& json, const std::vector<PromptToken>* prompt,
                             const std::vector<TokenLogProb>& tokens, size_t& offset) {
    std::string log_probs, top, offsets;
    const char* separator = "";
    const auto begin_token = [&](std::string_view bytes) {
      for (std::string* const list : {&json, &log_probs, &top, &offsets}) *list += separator;
      separator = ",";
      AppendLossyJsonString(json, bytes);
      AppendJsonInt(offsets, static_cast<int64_t>(offset));
      offset += bytes.size();
    };
    json += "{\"tokens\":[";
    for (size_t i = 0; prompt != nullptr && i < prompt->size(); ++i) {
      const PromptToken& token = (*prompt)[i];
      begin_token(token.bytes);
      if (token.log_prob) {
        AppendLogProb(log_probs, *token.log_prob);
        AppendTop(top, token.top);
      } else {
        log_probs += "null";
        top += "null";
      }
    }
    for (const TokenLogProb& token : tokens) {
      begin_token(token.chosen.bytes);
      AppendLogProb(log_probs, token.chosen.log_prob);
      AppendTop(top, token.top);
    }
    json += "],\"token_logprobs\":[" + log_probs + "],\"top_logprobs\":[" + top +
            "],\"text_offset\":[" + offsets + "]}";
  }

  template <typename Candidate>
  static void AppendTop(std::string& json, const std::vector<Candidate>& top) {
    json += '{';
    for (size_t k = 0; k < top.size(); ++k) {
      if (k != 0) json += ',';
      AppendLossyJsonString(json, top[k].bytes);
      json += ':';
      AppendLogProb(json, top[k].log_prob);
    }
    json += '}';
  }

  const bool echoes_log_probs_;
  std::vector<size_t> text_bytes_;  // of the tokens so far, by answer
};

}  // namespace

Result<std::vector<Prompt>> ReadPrompts(ParsedBody& body) {
  NEREID_ASSIGN_OR_RETURN(std::vector<Prompt> prompts, ReadPromptEmbeds(body));
  const FieldValue* const prompt = body.Find("prompt");
  if (prompt == nullptr && prompts.empty()) {
    return body.Refuse("prompt", "missing", "prompt: this field is required");
  }
  // OpenAI's client always sends the field.
  const bool is_empty = prompt == nullptr || prompt->json == "\"\"" || prompt->json == "[]";
  if (is_empty && !prompts.empty()) return prompts;
  NEREID_ASSIGN_OR_RETURN(std::vector<Prompt> others, PromptReader(body, *prompt).Read());
  for (Prompt& other : others) prompts.push_back(std::move(other));
  return prompts;
}

Status WritePrompt(ParsedBody& body, const LlmSignature& model, const Prompt& prompt,
                   http::InputTensors& inputs) {
  InputWriter writer(model, inputs);
  if (prompt.embed_size > 0) {
    GenerationFields fields(body, model);
    NEREID_RETURN_IF_ERROR(fields.RequireInput(*body.Find("prompt_embeds"), "prompt_embeds"));
    NEREID_RETURN_IF_ERROR(fields.RequireInput(*body.Find("prompt_embeds"), "prompt_token_ids"));
    NEREID_RETURN_IF_ERROR(writer.AddEmpty("prompt_token_ids"));
    return writer.AddMatrix("prompt_embeds", prompt.embeds, prompt.embed_size);
  }
  const FieldValue& value = *body.Find("prompt");
  const std::string_view tensor = prompt.is_text ? "text_input" : "prompt_token_ids";
  NEREID_RETURN_IF_ERROR(GenerationFields(body, model).RequireInput(value, tensor));
  NEREID_RETURN_IF_ERROR(prompt.is_text ? writer.AddText(tensor, prompt.text)
                                        : writer.AddIntegers(tensor, prompt.ids));
  return GenerationFields(body, model).WriteTruncation(kDefaultMaxTokens, inputs);
}

Status ReadCompletionRequest(ParsedBody& body, const LlmSignature& model,
                             GenerationRequest& request) {
  GenerationFields fields(body, model);
  NEREID_RETURN_IF_ERROR(fields.ReadRequest(request));
  request.echoes_prompt = body.BoolOr("echo", false);
  if (request.echoes_prompt) {
    NEREID_RETURN_IF_ERROR(fields.RequireInput(*body.Find("echo"), "exclude_input_in_output"));
  }
  NEREID_RETURN_IF_ERROR(ReadNoTokens(body, fields, request));
  NEREID_RETURN_IF_ERROR(ReadCompletionLogProbs(body, fields, request));
  NEREID_RETURN_IF_ERROR(fields.ReadPromptLogProbs(request));
  NEREID_ASSIGN_OR_RETURN(const std::vector<Prompt> prompts, ReadPrompts(body));
  if (prompts.size() * request.answers_per_prompt > kMaxAnswers) {
    return body.Refuse("n", "invalid_value", "n: ", request.answers_per_prompt, " answers to ",
                       prompts.size(), " prompts are more than ", kMaxAnswers);
  }
  NEREID_RETURN_IF_ERROR(ReadEchoes(body, fields, model, prompts, request));
  const FieldValue* const prompt_log_probs = body.Find("prompt_logprobs");
  const bool needs_prompt = prompt_log_probs || (request.echoes_prompt && request.has_log_probs);
  int64_t num_prompt_top = prompt_log_probs == nullptr ? 0 : prompt_log_probs->integer;
  if (request.echoes_prompt) {
    num_prompt_top = std::max(num_prompt_top, body.IntegerOr("logprobs", 0));
  }
  for (const Prompt& prompt : prompts) {
    http::InputTensors& inputs = request.prompts.emplace_back();
    NEREID_RETURN_IF_ERROR(WritePrompt(body, model, prompt, inputs));
    NEREID_RETURN_IF_ERROR(fields.WriteInputs(request, kDefaultMaxTokens, inputs));
    InputWriter writer(model, inputs);
    if (writer.Has("exclude_input_in_output")) {
      NEREID_RETURN_IF_ERROR(writer.AddBool("exclude_input_in_output",
                                            !request.echoes_prompt || request.drops_tokens));
    }
    if (needs_prompt || (!request.echoes.empty() && !prompt.is_text)) {
      NEREID_RETURN_IF_ERROR(fields.WritePromptLogProbs(num_prompt_top, inputs));
    }
    if (request.has_log_probs || request.kept_per_prompt != 0) {
      NEREID_RETURN_IF_ERROR(writer.AddBool("return_log_probs", true));
    }
    if (!request.has_log_probs) continue;
    const int64_t num_top = body.IntegerOr("logprobs", 0);
    if (num_top > 0) NEREID_RETURN_IF_ERROR(writer.AddInteger("num_top_logprobs", num_top));
  }
  return Status::Ok();
}

std::unique_ptr<AnswerFormat> NewCompletionFormat(const GenerationRequest& request) {
  return std::make_unique<CompletionFormat>(request);
}

}  // namespace nereid::openai
