#include "host/frontend/openai/routes/chat_completions.h"

#include <algorithm>
#include <utility>

#include "host/frontend/http/json/json_writer.h"
#include "host/frontend/openai/routes/chunk_format.h"
#include "host/frontend/openai/routes/conversation_fields.h"
#include "host/frontend/openai/routes/generation_fields.h"
#include "host/frontend/openai/routes/output_guide.h"

namespace nereid::openai {
namespace {

using http::AppendJsonInt;
using http::AppendJsonString;
using http::AppendLossyJsonString;

// Forced tool calls: the model's input `tool_choice` says which, and its outputs must have them.
Status WriteToolChoice(ParsedBody& body, GenerationFields& fields, const ToolUse& use,
                       InputWriter& writer) {
  const FieldValue& choice = *body.Find("tool_choice");
  NEREID_RETURN_IF_ERROR(fields.RequireInput(choice, "tool_choice"));
  NEREID_RETURN_IF_ERROR(fields.RequireInput(choice, "parse_output"));
  NEREID_RETURN_IF_ERROR(fields.RequireOutput(choice, "tool_calls"));
  NEREID_ASSIGN_OR_RETURN(const auto guide, ReadOutputGuide(body));
  if (guide) {
    return body.Refuse("tool_choice", "invalid_value", "tool_choice: forced tool calls, not ",
                       "beside '", guide->field->field->name, "'");
  }
  NEREID_RETURN_IF_ERROR(writer.AddText("tool_choice", use.forced));
  const FieldValue* const parallel = body.Find("parallel_tool_calls");
  if (parallel == nullptr || parallel->boolean) return Status::Ok();
  NEREID_RETURN_IF_ERROR(fields.RequireInput(*parallel, "parallel_tool_calls"));
  return writer.AddBool("parallel_tool_calls", false);
}

Status ReadChatLogProbs(ParsedBody& body, GenerationFields& fields, GenerationRequest& request) {
  const FieldValue* const log_probs = body.Find("logprobs");
  const FieldValue* const top = body.Find("top_logprobs");
  if (log_probs == nullptr || !log_probs->boolean) {
    if (top == nullptr || top->integer == 0) return Status::Ok();
    return body.Refuse("top_logprobs", "invalid_value", "top_logprobs: only with 'logprobs': true");
  }
  return fields.RequestLogProbs(*log_probs, top != nullptr && top->integer != 0 ? top : nullptr,
                                request);
}

void AppendCandidate(std::string& json, const TokenLogProb::Candidate& candidate) {
  json += "{\"token\":";
  AppendLossyJsonString(json, candidate.bytes);
  json += ",\"logprob\":";
  AppendLogProb(json, candidate.log_prob);
  json += ",\"bytes\":[";
  for (size_t i = 0; i < candidate.bytes.size(); ++i) {
    if (i != 0) json += ',';
    AppendJsonInt(json, static_cast<unsigned char>(candidate.bytes[i]));
  }
  json += ']';
}

void AppendLogProbs(std::string& json, const std::vector<TokenLogProb>& tokens) {
  json += "{\"content\":[";
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i != 0) json += ',';
    AppendCandidate(json, tokens[i].chosen);
    json += ",\"top_logprobs\":[";
    for (size_t k = 0; k < tokens[i].top.size(); ++k) {
      if (k != 0) json += ',';
      AppendCandidate(json, tokens[i].top[k]);
      json += '}';
    }
    json += "]}";
  }
  json += "],\"refusal\":null}";
}

void AppendReasoning(std::string& json, std::string_view reasoning) {
  // Clients read the one or the other.
  json += ",\"reasoning_content\":";
  AppendLossyJsonString(json, reasoning);
  json += ",\"reasoning\":";
  AppendLossyJsonString(json, reasoning);
}

class ChatFormat final : public ChunkFormat {
 public:
  explicit ChatFormat(const GenerationRequest& request) : ChunkFormat(request) {}

  std::string Whole(const Answers& answers) override {
    std::string json;
    AppendHead(json, answers, "chat.completion");
    for (size_t i = 0; i < answers.all.size(); ++i) {
      if (i != 0) json += ',';
      AppendChoice(json, answers.all[i], i);
    }
    json += ']';
    if (has_token_ids_) AppendIds(json, "prompt_token_ids", answers.all[0].prompt_ids);
    if (has_prompt_log_probs_) AppendPromptLogProbs(json, answers.prompts[0]);
    json += ",\"usage\":";
    AppendUsage(json, answers.TotalUsage());
    json += '}';
    return json;
  }

  void AppendBegin(std::string&, const Answers& answers) override {
    AppendHead(head_, answers, "chat.completion.chunk");
    has_role_.resize(answers.all.size());
  }

  void AppendPiece(std::string& events, const Answers& answers, size_t index,
                   const AnswerPiece& piece) override {
    const Answer& answer = answers.all[index];
    if (!has_role_[index]) {
      has_role_[index] = true;
      BeginChunk(events, index);
      events +=
          "{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}]";
      EndChunk(events, answers);
    }
    // A chunk has the pieces of one call, because some clients read only the first one.
    for (size_t call = 0; call + 1 < piece.tool_calls.size(); ++call) {
      BeginChunk(events, index);
      AppendDelta(events, piece, call);
      events += ",\"logprobs\":null,\"finish_reason\":null}]";
      EndChunk(events, answers);
    }
    BeginChunk(events, index);
    AppendDelta(events, piece, std::max<size_t>(piece.tool_calls.size(), 1) - 1);
    events += ",\"logprobs\":";
    if (has_log_probs_ && !piece.log_probs.empty()) {
      AppendLogProbs(events, piece.log_probs);
    } else {
      events += "null";
    }
    AppendFinish(events, piece.finish_reason.empty() ? "" : answer.FinishReason(),
                 piece.stop_reason);
    if (has_token_ids_) AppendIds(events, "token_ids", piece.token_ids);
    events += "}]";
    if (has_token_ids_ && !piece.prompt_ids.empty()) {
      AppendIds(events, "prompt_token_ids", piece.prompt_ids);
    }
    EndChunk(events, answers);
  }

 private:
  static void AppendFinish(std::string& json, std::string_view reason, std::string_view stop) {
    AppendFinishReason(json, reason);
    if (!reason.empty()) AppendStopReason(json, stop);
  }

  void AppendChoice(std::string& json, const Answer& answer, size_t index) const {
    json += "{\"index\":";
    AppendJsonInt(json, static_cast<int64_t>(index));
    json += ",\"message\":{\"role\":\"assistant\",\"content\":";
    if (answer.text.empty() && !answer.tool_calls.empty()) {
      json += "null";
    } else {
      AppendLossyJsonString(json, answer.text);
    }
    json += ",\"refusal\":null";
    if (!answer.reasoning.empty()) AppendReasoning(json, answer.reasoning);
    if (!answer.tool_calls.empty()) {
      json += ",\"tool_calls\":[";
      for (size_t i = 0; i < answer.tool_calls.size(); ++i) {
        const ToolCallPiece& call = answer.tool_calls[i];
        json += i == 0 ? "{\"id\":" : ",{\"id\":";
        AppendLossyJsonString(json, call.id);
        json += ",\"type\":\"function\",\"function\":{\"name\":";
        AppendLossyJsonString(json, call.name);
        json += ",\"arguments\":";
        AppendLossyJsonString(json, call.arguments);
        json += "}}";
      }
      json += ']';
    }
    json += "},\"logprobs\":";
    if (has_log_probs_) {
      AppendLogProbs(json, answer.log_probs);
    } else {
      json += "null";
    }
    AppendFinish(json, answer.FinishReason(), answer.stop_reason);
    if (has_token_ids_) AppendIds(json, "token_ids", answer.token_ids);
    json += '}';
  }

  // Appends what a piece adds. `call` is the index of the tool call to append, if there is one; the
  // texts are appended with the first call.
  static void AppendDelta(std::string& json, const AnswerPiece& piece, size_t call) {
    json += '{';
    if (call == 0 && !piece.text.empty()) {
      json += "\"content\":";
      AppendLossyJsonString(json, piece.text);
    }
    if (call == 0 && !piece.reasoning.empty()) {
      std::string reasoning;
      AppendReasoning(reasoning, piece.reasoning);
      json += std::string_view(reasoning).substr(piece.text.empty() ? 1 : 0);
    }
    if (call < piece.tool_calls.size()) {
      if (json.back() != '{') json += ',';
      json += "\"tool_calls\":[";
      AppendToolCall(json, piece.tool_calls[call]);
      json += ']';
    }
    json += '}';
  }

  // The first piece of a call has its id and name.
  static void AppendToolCall(std::string& json, const ToolCallPiece& call) {
    json += "{\"index\":";
    AppendJsonInt(json, call.index);
    if (!call.id.empty()) {
      json += ",\"id\":";
      AppendLossyJsonString(json, call.id);
      json += ",\"type\":\"function\"";
    }
    json += ",\"function\":{";
    if (!call.name.empty()) {
      json += "\"name\":";
      AppendLossyJsonString(json, call.name);
      json += ',';
    }
    json += "\"arguments\":";
    AppendLossyJsonString(json, call.arguments);
    json += "}}";
  }

  void BeginChunk(std::string& events, size_t index) const {
    events += "data: ";
    events += head_;
    events += "{\"index\":";
    AppendJsonInt(events, static_cast<int64_t>(index));
    events += ",\"delta\":";
  }

  std::vector<bool> has_role_;
};

}  // namespace

Status WriteConversation(ParsedBody& body, const LlmSignature& model, http::InputTensors& inputs) {
  GenerationFields fields(body, model);
  InputWriter writer(model, inputs);
  std::string messages;
  NEREID_RETURN_IF_ERROR(AppendMessages(body, model, messages));
  NEREID_RETURN_IF_ERROR(writer.AddText("messages", messages));
  NEREID_RETURN_IF_ERROR(fields.WriteTruncation(/*default_max_tokens=*/1, inputs));
  NEREID_RETURN_IF_ERROR(CheckTools(body));
  NEREID_ASSIGN_OR_RETURN(const ToolUse use, ReadToolUse(body));
  if (use.shows_tools) {
    const FieldValue& tools = *body.Find("tools");
    NEREID_RETURN_IF_ERROR(fields.RequireInput(tools, "tools"));
    NEREID_RETURN_IF_ERROR(writer.AddText("tools", tools.json));
  }
  NEREID_ASSIGN_OR_RETURN(const std::string variables, TemplateVariables(body));
  if (variables.empty()) return Status::Ok();
  if (!writer.Has("chat_template_kwargs")) {
    return body.Refuse("chat_template_kwargs", "unsupported_parameter", "model '", model.name,
                       "' takes no variables of the chat template: it has no input "
                       "'chat_template_kwargs'");
  }
  return writer.AddText("chat_template_kwargs", variables);
}

Status ReadChatRequest(ParsedBody& body, const LlmSignature& model, GenerationRequest& request) {
  GenerationFields fields(body, model);
  NEREID_RETURN_IF_ERROR(fields.ReadRequest(request));
  NEREID_RETURN_IF_ERROR(ReadChatLogProbs(body, fields, request));
  NEREID_RETURN_IF_ERROR(fields.ReadPromptLogProbs(request));
  request.keeps_first_tool_call_only = !body.BoolOr("parallel_tool_calls", true);
  request.hides_reasoning = !body.BoolOr("include_reasoning", true);

  http::InputTensors& inputs = request.prompts.emplace_back();
  NEREID_RETURN_IF_ERROR(WriteConversation(body, model, inputs));
  NEREID_RETURN_IF_ERROR(fields.WriteInputs(request, /*default_max_tokens=*/0, inputs));
  InputWriter writer(model, inputs);
  NEREID_ASSIGN_OR_RETURN(const ToolUse use, ReadToolUse(body));
  if (!use.forced.empty()) NEREID_RETURN_IF_ERROR(WriteToolChoice(body, fields, use, writer));
  if (writer.Has("exclude_input_in_output")) {
    NEREID_RETURN_IF_ERROR(writer.AddBool("exclude_input_in_output", true));
  }
  if (request.has_log_probs) {
    NEREID_RETURN_IF_ERROR(writer.AddBool("return_log_probs", true));
    const int64_t num_top = body.IntegerOr("top_logprobs", 0);
    if (num_top > 0) NEREID_RETURN_IF_ERROR(writer.AddInteger("num_top_logprobs", num_top));
  }
  if (const FieldValue* const prompt = body.Find("prompt_logprobs")) {
    NEREID_RETURN_IF_ERROR(fields.WritePromptLogProbs(prompt->integer, inputs));
  }
  // An answer of a given form is content as a whole, even if a template opens the reasoning or the
  // form looks like a call.
  NEREID_ASSIGN_OR_RETURN(const auto guide, ReadOutputGuide(body));
  // It contains no reasoning either, and neither do forced calls.
  if (!guide && use.forced.empty()) NEREID_RETURN_IF_ERROR(fields.WriteThinkingBudget(writer));
  if (guide && guide->type != "structural_tag") return Status::Ok();
  if (!writer.Has("parse_output")) return Status::Ok();
  for (const char* const output : {"reasoning", "tool_calls", "num_reasoning_tokens"}) {
    if (model.HasOutput(output)) request.outputs.emplace_back(output);
  }
  return writer.AddBool("parse_output", true);
}

std::unique_ptr<AnswerFormat> NewChatFormat(const GenerationRequest& request) {
  return std::make_unique<ChatFormat>(request);
}

}  // namespace nereid::openai
