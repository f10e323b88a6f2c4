#include "host/frontend/http/bodies/settings_body.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "host/frontend/http/json/json_reader.h"

namespace nereid::http {
namespace {

Status ReadLogMember(JsonReader& reader, std::string_view key, LogChange& change) {
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

Status ReadTraceMember(JsonReader& reader, std::string_view key, TraceChange& change) {
  if (reader.Peek() == JsonKind::kNull) {
    change.emplace_back(key, std::nullopt);
    return reader.SkipValue();
  }
  std::vector<std::string> values;
  const auto read_text = [&]() -> Status {
    NEREID_ASSIGN_OR_RETURN(const std::string_view text, reader.ReadString());
    values.emplace_back(text);
    return Status::Ok();
  };
  NEREID_RETURN_IF_ERROR(key == "trace_level" ? reader.ReadArray(read_text) : read_text());
  // A list without levels changes nothing, as in Triton.
  if (!values.empty()) change.emplace_back(key, std::move(values));
  return Status::Ok();
}

}  // namespace

Result<LogChange> ReadLogChange(std::string_view body, size_t max_depth) {
  JsonReader reader(body, max_depth);
  LogChange change;
  NEREID_RETURN_IF_ERROR(
      reader.ReadObject([&](std::string_view key) { return ReadLogMember(reader, key, change); }));
  NEREID_RETURN_IF_ERROR(reader.ExpectEnd());
  return change;
}

Result<TraceChange> ReadTraceChange(std::string_view body, size_t max_depth) {
  JsonReader reader(body, max_depth);
  TraceChange change;
  NEREID_RETURN_IF_ERROR(reader.ReadObject([&](std::string_view key) {
    return ReadTraceMember(reader, key, change).WithContext(StrCat("'", key, "'"));
  }));
  NEREID_RETURN_IF_ERROR(reader.ExpectEnd());
  return change;
}

}  // namespace nereid::http
