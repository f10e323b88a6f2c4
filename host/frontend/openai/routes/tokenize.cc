// POST /tokenize, /detokenize, /apply-template, /v1/chat/completions/render and
// /v1/completions/render: what a model's tokenizer does, without its engine.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "host/frontend/http/json/json_writer.h"
#include "host/frontend/openai/calls/answers.h"
#include "host/frontend/openai/fields/parsed_body.h"
#include "host/frontend/openai/routes/api_routes.h"
#include "host/frontend/openai/routes/chat_completions.h"
#include "host/frontend/openai/routes/completions.h"
#include "host/frontend/openai/routes/generation_fields.h"
#include "host/frontend/openai/routes/rendering.h"
#include "host/frontend/openai/routes/route_support.h"

namespace nereid::openai {
namespace {

using SharedModel = std::shared_ptr<const LlmSignature>;

// Reads the body and finds its model. Null after it has answered with an error.
SharedModel ReadBody(const ApiContext& context, HttpConnection& connection, const RequestHead& head,
                     RouteSet route, ParsedBody& body) {
  Status status = body.Read(route);
  const Result<std::string> name = status.ok() ? ReadModelName(body) : Result<std::string>(status);
  if (name.ok()) return FindModel(context, connection, head, *name);
  ReplyApiError(connection, body.ErrorOf(name.status()));
  return nullptr;
}

std::string IdsJson(const std::vector<int64_t>& ids) {
  std::string json;
  AppendIds(json, "", ids);
  return json.substr(json.find('['));
}

void ReplyTokens(HttpConnection& connection, const Result<std::vector<int64_t>>& ids) {
  if (!ids.ok()) return ReplyApiError(connection, ToApiError(ids.status()));
  connection.Reply({}, StrCat("{\"count\":", ids->size(), ",\"tokens\":", IdsJson(*ids), "}"));
}

// The prompts of a render request, one after the other.
struct Rendering {
  ApiContext& context;
  SharedModel model;
  std::vector<http::InputTensors> prompts;     // empty where the ids are given
  std::vector<std::vector<int64_t>> ids = {};  // by prompt
  bool is_list = false;
  size_t next = 0;
  ByteReservation reservation = {};  // of the prompts
};

void ReplyRendering(HttpConnection& connection, const Rendering& rendering) {
  const std::string id = NewId("render-");
  std::string json = rendering.is_list ? "[" : "";
  for (size_t i = 0; i < rendering.ids.size(); ++i) {
    json += i == 0 ? "{" : ",{";
    json +=
        StrCat("\"request_id\":\"", id, rendering.is_list ? StrCat("-", i) : "", "\",\"model\":");
    http::AppendLossyJsonString(json, rendering.model->name);
    AppendIds(json, "token_ids", rendering.ids[i]);
    json += '}';
  }
  if (rendering.is_list) json += ']';
  connection.Reply({}, json);
}

void ReplyPrompt(HttpConnection& connection, const Result<std::string>& text) {
  if (!text.ok()) return ReplyApiError(connection, ToApiError(text.status()));
  std::string json = "{\"prompt\":";
  http::AppendLossyJsonString(json, *text);
  json += '}';
  connection.Reply({}, json);
}

void ContinueRendering(HttpConnection& connection, std::shared_ptr<Rendering> rendering) {
  while (rendering->next < rendering->prompts.size() &&
         rendering->prompts[rendering->next].empty()) {
    ++rendering->next;
  }
  if (rendering->next == rendering->prompts.size()) return ReplyRendering(connection, *rendering);
  const size_t index = rendering->next++;
  const Status status = StartRendering(
      rendering->context, connection, *rendering->model, std::move(rendering->prompts[index]),
      [rendering, index](HttpConnection& client, Result<std::vector<int64_t>> ids) {
        if (!ids.ok()) return ReplyApiError(client, ToApiError(ids.status()));
        rendering->ids[index] = std::move(ids).value();
        ContinueRendering(client, rendering);
      });
  if (!status.ok()) ReplyApiError(connection, ToApiError(status));
}

}  // namespace

void HandleTokenize(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                    RequestBody body) {
  ParsedBody parsed(body.bytes(), connection.limits().max_json_depth);
  const SharedModel model = ReadBody(context, connection, head, kTokenize, parsed);
  if (model == nullptr) return;
  http::InputTensors inputs;
  const auto read = [&]() -> Status {
    if (parsed.Find("messages") != nullptr) return WriteConversation(parsed, *model, inputs);
    NEREID_ASSIGN_OR_RETURN(const std::vector<Prompt> prompts, ReadPrompts(parsed));
    if (prompts.size() != 1 || !prompts[0].is_text) {
      return parsed.Refuse("prompt", "invalid_type", "prompt: expected a string");
    }
    return WritePrompt(parsed, *model, prompts[0], inputs);
  };
  Status status = read();
  if (status.ok()) {
    status = StartRendering(context, connection, *model, std::move(inputs), &ReplyTokens);
  }
  if (!status.ok()) ReplyApiError(connection, parsed.ErrorOf(status));
}

void HandleDetokenize(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                      RequestBody body) {
  ParsedBody parsed(body.bytes(), connection.limits().max_json_depth);
  const SharedModel model = ReadBody(context, connection, head, kDetokenize, parsed);
  if (model == nullptr) return;
  const FieldValue* const tokens = parsed.Find("tokens");
  Status status;
  if (tokens == nullptr) {
    status = parsed.Refuse("tokens", "missing", "tokens: this field is required");
  } else if (tokens->integers.empty()) {
    return ReplyPrompt(connection, std::string());
  } else {
    status = StartDecoding(context, connection, *model, tokens->integers,
                           /*keeps_special_tokens=*/false, &ReplyPrompt);
  }
  if (!status.ok()) ReplyApiError(connection, parsed.ErrorOf(status));
}

void HandleApplyTemplate(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                         RequestBody body) {
  ParsedBody parsed(body.bytes(), connection.limits().max_json_depth);
  const SharedModel model = ReadBody(context, connection, head, kChat, parsed);
  if (model == nullptr) return;
  const auto decode = [&context, model](HttpConnection& client,
                                        const Result<std::vector<int64_t>>& ids) {
    if (!ids.ok()) return ReplyApiError(client, ToApiError(ids.status()));
    const Status status = StartDecoding(context, client, *model, *ids,
                                        /*keeps_special_tokens=*/true, &ReplyPrompt);
    if (!status.ok()) ReplyApiError(client, ToApiError(status));
  };
  http::InputTensors inputs;
  Status status = WriteConversation(parsed, *model, inputs);
  if (status.ok()) {
    status = StartRendering(context, connection, *model, std::move(inputs), decode);
  }
  if (!status.ok()) ReplyApiError(connection, parsed.ErrorOf(status));
}

void HandleChatRender(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                      RequestBody body) {
  ParsedBody parsed(body.bytes(), connection.limits().max_json_depth);
  const SharedModel model = ReadBody(context, connection, head, kChat, parsed);
  if (model == nullptr) return;
  const auto rendering = std::make_shared<Rendering>(Rendering{context, model, {}});
  rendering->ids.resize(1);
  const Status status = WriteConversation(parsed, *model, rendering->prompts.emplace_back());
  if (!status.ok()) return ReplyApiError(connection, parsed.ErrorOf(status));
  ContinueRendering(connection, rendering);
}

void HandleCompletionRender(ApiContext& context, HttpConnection& connection,
                            const RequestHead& head, RequestBody body) {
  ParsedBody parsed(body.bytes(), connection.limits().max_json_depth);
  const SharedModel model = ReadBody(context, connection, head, kCompletions, parsed);
  if (model == nullptr) return;
  const auto rendering = std::make_shared<Rendering>(Rendering{context, model, {}});
  rendering->is_list = true;
  const auto read = [&]() -> Status {
    NEREID_ASSIGN_OR_RETURN(const std::vector<Prompt> prompts, ReadPrompts(parsed));
    for (const Prompt& prompt : prompts) {
      rendering->ids.push_back(prompt.ids);
      http::InputTensors& inputs = rendering->prompts.emplace_back();
      if (!prompt.is_text && parsed.Find("truncate_prompt_tokens") == nullptr) continue;
      NEREID_RETURN_IF_ERROR(WritePrompt(parsed, *model, prompt, inputs));
    }
    return Status::Ok();
  };
  Status status = read();
  if (status.ok()) {
    rendering->reservation = ByteReservation(connection.budget());
    status = ReserveAll(rendering->prompts, rendering->reservation);
  }
  if (!status.ok()) return ReplyApiError(connection, parsed.ErrorOf(status));
  ContinueRendering(connection, rendering);
}

}  // namespace nereid::openai
