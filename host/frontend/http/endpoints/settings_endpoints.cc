// Endpoints that read and change the log and trace settings.
#include "host/frontend/http/endpoints/endpoints.h"

#include <string>

#include "host/frontend/frontend_state.h"
#include "host/frontend/http/bodies/control_bodies.h"
#include "host/frontend/http/json/json_writer.h"
#include "host/frontend/http/transport/http_connection.h"

namespace nereid::http {
namespace {

Status ApplyLogChange(LogSettings& settings, const RequestBody& body, size_t max_depth) {
  NEREID_ASSIGN_OR_RETURN(const LogChange change, ReadLogChange(body.bytes(), max_depth));
  return settings.Apply(change);
}

std::string ToJson(const LogValues& values) {
  std::string json = "{\"log_file\":";
  AppendLossyJsonString(json, values.file);
  const auto add_bool = [&](std::string_view name, bool value) {
    json += StrCat(",\"", name, "\":", value ? "true" : "false");
  };
  add_bool("log_info", values.info);
  add_bool("log_warning", values.warning);
  add_bool("log_error", values.error);
  json += StrCat(",\"log_verbose_level\":", values.verbose_level, ",\"log_format\":\"",
                 values.format, "\"}");
  return json;
}

Status ApplyTraceChange(Tracer& tracer, const RequestBody& body, size_t max_depth,
                        const std::string& model) {
  NEREID_ASSIGN_OR_RETURN(const TraceChange change, ReadTraceChange(body.bytes(), max_depth));
  return tracer.Apply(model, change);
}

std::string ToJson(const std::vector<std::pair<std::string, std::vector<std::string>>>& settings) {
  std::string json = "{";
  for (const auto& [key, values] : settings) {
    if (json.size() > 1) json += ',';
    AppendLossyJsonString(json, key);
    json += ':';
    if (key != "trace_level") {
      // Of several resource attributes, only the last one fits into the JSON string.
      AppendLossyJsonString(json, values.back());
      continue;
    }
    for (size_t i = 0; i < values.size(); ++i) {
      json += i == 0 ? '[' : ',';
      AppendLossyJsonString(json, values[i]);
    }
    json += ']';
  }
  json += '}';
  return json;
}

Status CheckModel(const Server& server, const std::string& model) {
  if (model.empty() || server.IsBatched(model.c_str(), -1).ok()) return Status::Ok();
  return InvalidArgError("Request for unknown model : ", model);
}

}  // namespace

void ReplyLogSettings(HttpConnection& connection, LogSettings& settings, Method method,
                      const RequestBody& body) {
  if (method == Method::kPost) {
    const Status status = ApplyLogChange(settings, body, connection.limits().max_json_depth);
    if (!status.ok()) return ReplyError(connection, status);
  }
  connection.Reply({}, ToJson(settings.values()));
}

void HandleTraceSettings(const KServeContext& context, HttpConnection& connection, Method method,
                         const RequestBody& body, const RequestedModel& model) {
  Tracer& tracer = *context.state.tracer;
  Status status = CheckModel(context.server, model.name);
  if (status.ok() && method == Method::kPost) {
    status = ApplyTraceChange(tracer, body, connection.limits().max_json_depth, model.name);
  }
  if (!status.ok()) return ReplyError(connection, status);
  connection.Reply({}, ToJson(tracer.Describe(model.name)));
}

}  // namespace nereid::http
