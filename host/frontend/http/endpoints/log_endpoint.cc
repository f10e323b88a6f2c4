#include "host/frontend/http/endpoints/log_endpoint.h"

#include <string>

#include "host/frontend/http/bodies/settings_body.h"
#include "host/frontend/http/calls/reply.h"
#include "host/frontend/http/json/json_writer.h"

namespace nereid::http {
namespace {

Status ApplyChange(LogSettings& settings, const Body& body, size_t max_depth) {
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

}  // namespace

void ReplyLogSettings(Connection& connection, LogSettings& settings, Method method,
                      const Body& body) {
  if (method == Method::kPost) {
    const Status status = ApplyChange(settings, body, connection.limits().max_json_depth);
    if (!status.ok()) return ReplyError(connection, status);
  }
  connection.Reply({}, ToJson(settings.values()));
}

}  // namespace nereid::http
