// Known members alone: a misspelt one would change nothing, silently.
#include "host/frontend/http/endpoints/log_endpoint.h"

#include <optional>
#include <string>

#include "host/frontend/http/calls/reply.h"
#include "host/frontend/http/json/json_reader.h"
#include "host/frontend/http/json/json_writer.h"

namespace nereid::http {
namespace {

Status ReadMember(JsonReader& reader, std::string_view key, LogChange& change) {
  if (reader.Peek() == JsonKind::kNull) return reader.SkipValue();  // changes nothing, as in Triton
  const auto take = [&](auto& target, auto value) {
    if (value.ok()) target = *value;
    return std::move(value).status().WithContext(StrCat("'", key, "'"));
  };
  if (key == "log_info") return take(change.info, reader.ReadBool());
  if (key == "log_warning") return take(change.warning, reader.ReadBool());
  if (key == "log_error") return take(change.error, reader.ReadBool());
  if (key == "log_format") return take(change.format, reader.ReadString());
  if (key == "log_verbose_level") return take(change.verbose_level, reader.ReadUint64());
  if (key == "log_file") {
    return UnsupportedError("log file location can not be updated through network protocol");
  }
  return InvalidArgError("unknown log setting '", key, "'");
}

Status ApplyChange(LogSettings& settings, const Body& body, size_t max_depth) {
  JsonReader reader(body.bytes(), max_depth);
  LogChange change;
  NEREID_RETURN_IF_ERROR(
      reader.ReadObject([&](std::string_view key) { return ReadMember(reader, key, change); }));
  NEREID_RETURN_IF_ERROR(reader.ExpectEnd());
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
