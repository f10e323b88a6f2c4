// Chats, completions, messages and responses: what they have in common from the body to the start
// of the model.
#include <ctime>
#include <utility>

#include "host/frontend/openai/calls/generation_call.h"
#include "host/frontend/openai/routes/api_routes.h"
#include "host/frontend/openai/routes/chat_completions.h"
#include "host/frontend/openai/routes/completions.h"
#include "host/frontend/openai/routes/generation_fields.h"
#include "host/frontend/openai/routes/messages.h"
#include "host/frontend/openai/routes/messages_format.h"
#include "host/frontend/openai/routes/rendering.h"
#include "host/frontend/openai/routes/response_format.h"
#include "host/frontend/openai/routes/responses.h"
#include "host/frontend/openai/routes/route_support.h"

namespace nereid::openai {
namespace {

// A route that generates text.
struct GenerationRoute {
  RouteSet fields;
  std::string_view id_prefix;
  Status (*read)(ParsedBody& body, const LlmSignature& model, GenerationRequest& request);
  std::unique_ptr<AnswerFormat> (*new_format)(const GenerationRequest& request);
};

constexpr GenerationRoute kChatRoute{kChat, "chatcmpl-", &ReadChatRequest, &NewChatFormat};
constexpr GenerationRoute kCompletionRoute{kCompletions, "cmpl-", &ReadCompletionRequest,
                                           &NewCompletionFormat};

// Starts what a route has read. `new_format` makes the format of the answers, and `error_of` the
// route's error of a status.
template <typename NewFormat, typename ErrorOf>
void StartGeneration(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                     const LlmSignature& model, GenerationRequest request,
                     std::string_view id_prefix, const NewFormat& new_format,
                     const ErrorOf& error_of) {
  Answers answers;
  answers.id = NewId(id_prefix);
  answers.created = std::time(nullptr);
  answers.model = model.name;
  request.model = model.model;
  request.keep_alive_s = context.keep_alive_s;
  if (std::string id = RequestIdOf(head); !id.empty()) request.id = std::move(id);
  if (request.id.empty()) request.id = answers.id;
  // The inputs contain all data, so that the body's memory is not kept.
  std::unique_ptr<AnswerFormat> format = new_format(request, answers);
  const Status status =
      GenerationCall::Start(context.kserve, context.running, connection, head, std::move(request),
                            std::move(answers), std::move(format));
  if (!status.ok()) ReplyApiError(connection, error_of(status), ErrorFormOf(head.path));
}

void HandleGeneration(const GenerationRoute& route, ApiContext& context, HttpConnection& connection,
                      const RequestHead& head, RequestBody body) {
  ParsedBody parsed(body.bytes(), connection.limits().max_json_depth);
  const auto error_of = [&](const Status& status) { return parsed.ErrorOf(status); };
  Status status = parsed.Read(route.fields);
  const Result<std::string> name =
      status.ok() ? ReadModelName(parsed) : Result<std::string>(status);
  if (!name.ok()) return ReplyApiError(connection, error_of(name.status()));
  const auto model = FindModel(context, connection, head, *name);
  if (model == nullptr) return;
  GenerationRequest request;
  status = route.read(parsed, *model, request);
  if (!status.ok()) return ReplyApiError(connection, error_of(status));
  const auto new_format = [&](const GenerationRequest& read, const Answers&) {
    return route.new_format(read);
  };
  StartGeneration(context, connection, head, *model, std::move(request), route.id_prefix,
                  new_format, error_of);
}

bool LimitsReasoning(const LlmSignature& model) {
  return model.FindInput("thinking_token_budget") != nullptr;
}

// A body in another form, as a chat.
struct ConvertedChat {
  std::shared_ptr<const LlmSignature> model;  // null: the request is answered
  std::unique_ptr<const std::string> text;    // that `body` refers to
  std::unique_ptr<ParsedBody> body;
};

// Reads a body by the fields of `route` and converts it for its model with `convert`, which returns
// the chat's text.
template <typename Convert>
ConvertedChat ReadAsChat(const ApiContext& context, HttpConnection& connection,
                         const RequestHead& head, const RequestBody& body, RouteSet route,
                         const Convert& convert) {
  const size_t max_depth = connection.limits().max_json_depth;
  ParsedBody parsed(body.bytes(), max_depth);
  const auto fail = [&](const ParsedBody& source, const Status& status) {
    ReplyApiError(connection, source.ErrorOf(status), ErrorFormOf(head.path));
    return ConvertedChat();
  };
  if (const Status status = parsed.Read(route); !status.ok()) return fail(parsed, status);
  const Result<std::string> name = ReadModelName(parsed);
  if (!name.ok()) return fail(parsed, name.status());
  ConvertedChat chat;
  auto model = FindModel(context, connection, head, *name);
  if (model == nullptr) return chat;
  Result<std::string> text = convert(parsed, *model);
  if (!text.ok()) return fail(parsed, text.status());
  chat.text = std::make_unique<const std::string>(std::move(text).value());
  chat.body = std::make_unique<ParsedBody>(*chat.text, max_depth);
  if (const Status status = chat.body->Read(kChat); !status.ok()) return fail(*chat.body, status);
  chat.model = std::move(model);
  return chat;
}

// Generates the answer to a converted chat. `new_format` is called once the request is known.
template <typename NewFormat>
void GenerateChat(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                  const ConvertedChat& chat, std::string_view id_prefix,
                  const NewFormat& new_format) {
  if (chat.model == nullptr) return;
  const auto error_of = [&](const Status& status) { return chat.body->ErrorOf(status); };
  GenerationRequest request;
  const Status status = ReadChatRequest(*chat.body, *chat.model, request);
  if (!status.ok()) return ReplyApiError(connection, error_of(status), ErrorFormOf(head.path));
  StartGeneration(context, connection, head, *chat.model, std::move(request), id_prefix, new_format,
                  error_of);
}

// Answers with the number of tokens of a converted chat: `prefix`, the number, and a brace.
void CountTokens(const ApiContext& context, HttpConnection& connection, const RequestHead& head,
                 const ConvertedChat& chat, std::string prefix) {
  if (chat.model == nullptr) return;
  const ErrorForm form = ErrorFormOf(head.path);
  http::InputTensors inputs;
  Status status = WriteConversation(*chat.body, *chat.model, inputs);
  if (status.ok()) {
    status = StartRendering(context, connection, *chat.model, std::move(inputs),
                            [form, prefix = std::move(prefix)](
                                HttpConnection& client, const Result<std::vector<int64_t>>& ids) {
                              if (!ids.ok())
                                return ReplyApiError(client, ToApiError(ids.status()), form);
                              client.Reply({}, StrCat(prefix, ids->size(), "}"));
                            });
  }
  if (!status.ok()) ReplyApiError(connection, chat.body->ErrorOf(status), form);
}

// The secret of a client, by which it finds its responses again.
std::string OwnerOf(const HttpConnection& connection, const RequestHead& head) {
  return std::string(ApiCallerOf(connection, head).FindHeader("authorization"));
}

constexpr std::string_view kResponsePrefix = "/v1/responses/";

void ReplyUnknownResponse(HttpConnection& connection, std::string_view id) {
  ReplyApiError(connection, {.status = 404,
                             .message = StrCat("response '", id.substr(0, 128),
                                               "' is not stored: it is unknown, too old, or has "
                                               "left for newer ones"),
                             .code = "response_not_found"});
}

// The stored conversation that a request for a response continues.
Result<std::string> EarlierItems(ApiContext& context, const HttpConnection& connection,
                                 const RequestHead& head, ParsedBody& body) {
  const FieldValue* const previous = body.Find("previous_response_id");
  if (previous == nullptr) return std::string();
  auto stored = context.responses.Find(std::string(previous->text), OwnerOf(connection, head));
  if (stored) return std::move(stored->items);
  return body.Refuse("previous_response_id", "previous_response_not_found",
                     "previous_response_id: response '", previous->text.substr(0, 128),
                     "' is not stored");
}

ConvertedChat ReadResponse(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                           const RequestBody& body, ResponseChat& converted, bool& is_stored) {
  const auto convert = [&](ParsedBody& parsed, const LlmSignature&) -> Result<std::string> {
    is_stored = parsed.BoolOr("store", true);
    NEREID_ASSIGN_OR_RETURN(const std::string earlier,
                            EarlierItems(context, connection, head, parsed));
    NEREID_ASSIGN_OR_RETURN(converted, ChatOfResponse(parsed, earlier));
    return std::move(converted.chat);
  };
  return ReadAsChat(context, connection, head, body, kResponses, convert);
}

}  // namespace

void HandleChatCompletions(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                           RequestBody body) {
  HandleGeneration(kChatRoute, context, connection, head, std::move(body));
}

void HandleCompletions(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                       RequestBody body) {
  HandleGeneration(kCompletionRoute, context, connection, head, std::move(body));
}

void HandleMessages(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                    RequestBody body) {
  const ConvertedChat chat =
      ReadAsChat(context, connection, head, body, kMessages,
                 [](ParsedBody& parsed, const LlmSignature& model) {
                   return ChatOfMessages(parsed, /*counts_tokens=*/false, LimitsReasoning(model));
                 });
  GenerateChat(context, connection, head, chat, "msg_",
               [](const GenerationRequest&, const Answers&) { return NewMessagesFormat(); });
}

void HandleCountTokens(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                       RequestBody body) {
  const ConvertedChat chat =
      ReadAsChat(context, connection, head, body, kMessages,
                 [](ParsedBody& parsed, const LlmSignature& model) {
                   return ChatOfMessages(parsed, /*counts_tokens=*/true, LimitsReasoning(model));
                 });
  CountTokens(context, connection, head, chat, "{\"input_tokens\":");
}

void HandleResponses(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                     RequestBody body) {
  ResponseChat converted;
  bool is_stored = true;
  const ConvertedChat chat = ReadResponse(context, connection, head, body, converted, is_stored);
  GenerateChat(context, connection, head, chat, "resp_",
               [&](const GenerationRequest&, const Answers& answers) {
                 StoreResponse store;
                 if (is_stored) {
                   store = [&responses = context.responses, id = answers.id,
                            owner = OwnerOf(connection, head)](const std::string& json,
                                                               std::string items) {
                     responses.Put(id, owner, {json, std::move(items)});
                   };
                 }
                 return NewResponseFormat(std::move(converted), std::move(store));
               });
}

void HandleResponseTokens(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                          RequestBody body) {
  ResponseChat converted;
  bool is_stored = false;
  const ConvertedChat chat = ReadResponse(context, connection, head, body, converted, is_stored);
  CountTokens(context, connection, head, chat,
              "{\"object\":\"response.input_tokens\",\"input_tokens\":");
}

void HandleStoredResponse(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                          RequestBody) {
  const std::string id(head.path.substr(kResponsePrefix.size()));
  const auto stored = context.responses.Find(id, OwnerOf(connection, head));
  if (!stored) return ReplyUnknownResponse(connection, id);
  connection.Reply({}, stored->json);
}

void HandleDeleteResponse(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                          RequestBody) {
  const std::string id(head.path.substr(kResponsePrefix.size()));
  if (!context.responses.Remove(id, OwnerOf(connection, head))) {
    return ReplyUnknownResponse(connection, id);
  }
  connection.Reply({}, StrCat("{\"id\":\"", id, "\",\"object\":\"response\",\"deleted\":true}"));
}

void HandleCancelResponse(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                          RequestBody) {
  std::string_view id = head.path.substr(kResponsePrefix.size());
  id.remove_suffix(std::string_view("/cancel").size());
  if (!context.responses.Find(std::string(id), OwnerOf(connection, head))) {
    return ReplyUnknownResponse(connection, id);
  }
  ReplyApiError(connection, {.message = StrCat("response '", id,
                                               "' is complete; only responses that are made in "
                                               "the background can be cancelled")});
}

}  // namespace nereid::openai
