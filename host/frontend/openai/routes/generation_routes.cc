// Chats, completions and messages: what they have in common from the body to the start of the
// model.
#include <ctime>
#include <utility>

#include "host/frontend/openai/calls/generation_call.h"
#include "host/frontend/openai/routes/api_routes.h"
#include "host/frontend/openai/routes/chat_completions.h"
#include "host/frontend/openai/routes/completions.h"
#include "host/frontend/openai/routes/generation_fields.h"
#include "host/frontend/openai/routes/messages.h"
#include "host/frontend/openai/routes/rendering.h"
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

Status ReserveAll(const GenerationRequest& request, ByteReservation& reservation) {
  for (const http::InputTensors& inputs : request.prompts) {
    NEREID_RETURN_IF_ERROR(http::ReserveInputs(inputs, reservation));
  }
  return Status::Ok();
}

// Starts what a route has read. `error_of` makes the route's error of a status.
template <typename ErrorOf>
void StartGeneration(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                     GenerationRequest request, std::string_view id_prefix,
                     std::unique_ptr<AnswerFormat> format, const ErrorOf& error_of) {
  Answers answers;
  answers.id = NewId(id_prefix);
  answers.created = std::time(nullptr);
  answers.model = request.model;
  if (std::string id = RequestIdOf(head); !id.empty()) request.id = std::move(id);
  if (request.id.empty()) request.id = answers.id;
  // The inputs contain all data, so that the body's memory is not kept.
  ByteReservation reservation(connection.limits().budget);
  Status status = ReserveAll(request, reservation);
  if (status.ok()) {
    status = GenerationCall::Start(context.kserve, connection, head, std::move(request),
                                   std::move(answers), std::move(format), std::move(reservation));
  }
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
  request.model = *name;
  status = route.read(parsed, *model, request);
  if (!status.ok()) return ReplyApiError(connection, error_of(status));
  std::unique_ptr<AnswerFormat> format = route.new_format(request);
  StartGeneration(context, connection, head, std::move(request), route.id_prefix, std::move(format),
                  error_of);
}

// A body in another form, as a chat.
struct ConvertedChat {
  std::shared_ptr<const LlmSignature> model;  // null: the request is answered
  std::unique_ptr<const std::string> text;    // that `body` refers to
  std::unique_ptr<ParsedBody> body;
};

ConvertedChat ConvertMessages(ApiContext& context, HttpConnection& connection,
                              const RequestHead& head, const RequestBody& body,
                              bool counts_tokens) {
  ConvertedChat chat;
  const size_t max_depth = connection.limits().max_json_depth;
  ParsedBody parsed(body.bytes(), max_depth);
  const auto fail = [&](const Status& status) {
    ReplyApiError(connection, parsed.ErrorOf(status), &MessagesErrorJson);
    return ConvertedChat();
  };
  if (const Status status = parsed.Read(kMessages); !status.ok()) return fail(status);
  const Result<std::string> name = ReadModelName(parsed);
  if (!name.ok()) return fail(name.status());
  auto model = FindModel(context, connection, head, *name);
  if (model == nullptr) return chat;
  Result<std::string> text = ChatOfMessages(parsed, counts_tokens);
  if (!text.ok()) return fail(text.status());
  chat.text = std::make_unique<const std::string>(std::move(text).value());
  chat.body = std::make_unique<ParsedBody>(*chat.text, max_depth);
  if (const Status status = chat.body->Read(kChat); !status.ok()) {
    ReplyApiError(connection, chat.body->ErrorOf(status), &MessagesErrorJson);
    return ConvertedChat();
  }
  chat.model = std::move(model);
  return chat;
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
      ConvertMessages(context, connection, head, body, /*counts_tokens=*/false);
  if (chat.model == nullptr) return;
  const auto error_of = [&](const Status& status) { return chat.body->ErrorOf(status); };
  GenerationRequest request;
  request.model = chat.model->name;
  const Status status = ReadChatRequest(*chat.body, *chat.model, request);
  if (!status.ok()) return ReplyApiError(connection, error_of(status), &MessagesErrorJson);
  StartGeneration(context, connection, head, std::move(request), "msg_", NewMessagesFormat(),
                  error_of);
}

void HandleCountTokens(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                       RequestBody body) {
  const ConvertedChat chat =
      ConvertMessages(context, connection, head, body, /*counts_tokens=*/true);
  if (chat.model == nullptr) return;
  http::InputTensors inputs;
  Status status = WriteConversation(*chat.body, *chat.model, inputs);
  if (status.ok()) {
    status = StartRendering(context, connection, *chat.model, std::move(inputs),
                            [](HttpConnection& client, const Result<std::vector<int64_t>>& ids) {
                              if (!ids.ok())
                                return ReplyApiError(client, ToApiError(ids.status()),
                                                     &MessagesErrorJson);
                              client.Reply({}, StrCat("{\"input_tokens\":", ids->size(), "}"));
                            });
  }
  if (!status.ok()) ReplyApiError(connection, chat.body->ErrorOf(status), &MessagesErrorJson);
}

}  // namespace nereid::openai
