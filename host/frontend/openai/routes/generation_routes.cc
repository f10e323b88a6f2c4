// Chats and completions: what they have in common from the body to the start of the model.
#include <ctime>
#include <utility>

#include "host/frontend/http/request_access.h"
#include "host/frontend/openai/calls/generation_call.h"
#include "host/frontend/openai/routes/api_routes.h"
#include "host/frontend/openai/routes/chat_completions.h"
#include "host/frontend/openai/routes/completions.h"
#include "host/frontend/openai/routes/generation_fields.h"
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

void HandleGeneration(const GenerationRoute& route, ApiContext& context, HttpConnection& connection,
                      const RequestHead& head, RequestBody body) {
  ParsedBody parsed(body.bytes(), connection.limits().max_json_depth);
  const auto reply_error = [&](const Status& status) {
    ReplyApiError(connection, parsed.ErrorOf(status));
  };
  if (Status status = parsed.Read(route.fields); !status.ok()) return reply_error(status);
  const Result<std::string> name = ReadModelName(parsed);
  if (!name.ok()) return reply_error(name.status());
  const auto model = FindModel(context, connection, head, *name);
  if (model == nullptr) return;

  GenerationRequest request;
  request.model = *name;
  request.id = RequestIdOf(head);
  if (Status status = route.read(parsed, *model, request); !status.ok()) {
    return reply_error(status);
  }
  Answers answers;
  answers.id = NewId(route.id_prefix);
  answers.created = std::time(nullptr);
  answers.model = *name;
  if (request.id.empty()) request.id = answers.id;
  // The inputs contain all data, so that the body's memory is not kept.
  ByteReservation reservation(connection.limits().budget);
  Status status = ReserveAll(request, reservation);
  if (status.ok()) {
    std::unique_ptr<AnswerFormat> format = route.new_format(request);
    status = GenerationCall::Start(context.kserve, connection, head, std::move(request),
                                   std::move(answers), std::move(format), std::move(reservation));
  }
  if (!status.ok()) reply_error(status);
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

}  // namespace nereid::openai
