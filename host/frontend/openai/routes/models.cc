// GET /v1/models and /v1/models/{id}, /health, /ping and /version.
#include <string>
#include <utility>

#include "host/frontend/http/json/json_reader.h"
#include "host/frontend/http/json/json_writer.h"
#include "host/frontend/openai/routes/api_routes.h"
#include "host/frontend/openai/routes/route_support.h"

namespace nereid::openai {
namespace {

void AppendModel(std::string& json, const ApiContext& context, const ListedLlm& model) {
  json += "{\"id\":";
  http::AppendLossyJsonString(json, model.name);
  json += ",\"object\":\"model\",\"created\":";
  http::AppendJsonInt(json, context.started_s);
  json += ",\"owned_by\":\"nereid\"";
  if (!model.parent.empty()) {
    json += ",\"parent\":";
    http::AppendLossyJsonString(json, model.parent);
  }
  if (model.max_model_len > 0) {
    json += ",\"max_model_len\":";
    http::AppendJsonInt(json, model.max_model_len);
  }
  json += '}';
}

// "%2F" becomes "/", because clients encode a name such as org/model as one segment.
std::string PercentDecoded(std::string_view text) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  };
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 &&
        digit(text[i + 2]) >= 0) {
      decoded += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

}  // namespace

void HandleModels(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                  RequestBody) {
  std::string json = "{\"object\":\"list\",\"data\":[";
  bool is_first = true;
  for (const ListedLlm& model : VisibleModels(context, connection, head)) {
    if (!std::exchange(is_first, false)) json += ',';
    AppendModel(json, context, model);
  }
  json += "]}";
  connection.Reply({}, json);
}

void HandleModel(ApiContext& context, HttpConnection& connection, const RequestHead& head,
                 RequestBody) {
  constexpr std::string_view kPrefix = "/v1/models/";
  const std::string name = PercentDecoded(head.path.substr(kPrefix.size()));
  const std::vector<ListedLlm> models = VisibleModels(context, connection, head);
  for (const ListedLlm& model : models) {
    if (model.name != name) continue;
    std::string json;
    AppendModel(json, context, model);
    return connection.Reply({}, json);
  }
  ReplyApiError(connection, {.status = 404,
                             .message = StrCat("the model '", name.substr(0, 256),
                                               "' does not exist; models: ", NamesText(models)),
                             .param = "model",
                             .code = "model_not_found"});
}

void HandleHealth(ApiContext& context, HttpConnection& connection, const RequestHead&,
                  RequestBody) {
  const Result<bool> is_ready = context.kserve.server.IsReady();
  if (!context.is_draining.load() && is_ready.ok() && *is_ready) {
    return connection.Reply({.content_type = "text/plain"}, "");
  }
  ReplyApiError(connection, {.status = 503, .message = "the server is not ready"});
}

void HandleVersion(ApiContext& context, HttpConnection& connection, const RequestHead&,
                   RequestBody) {
  std::string version;
  const Result<Message> message = context.kserve.server.Metadata();
  const Result<std::string_view> metadata =
      message.ok() ? message->Json() : Result<std::string_view>(message.status());
  if (metadata.ok()) {
    http::JsonReader reader(*metadata, /*max_depth=*/8);
    (void)reader.ReadObject([&](std::string_view key) -> Status {
      if (key != "nereid_version") return reader.SkipValue();
      NEREID_ASSIGN_OR_RETURN(version, reader.ReadString());
      return Status::Ok();
    });
  }
  std::string json = "{\"version\":";
  http::AppendLossyJsonString(json, version);
  json += '}';
  connection.Reply({}, json);
}

}  // namespace nereid::openai
