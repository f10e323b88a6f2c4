// As in Triton, unknown members are skipped, except in log settings and in the parameters of a
// load.
#include "host/frontend/http/bodies/control_bodies.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "host/frontend/client_input.h"
#include "host/frontend/http/bodies/base64.h"
#include "host/frontend/http/json/json_reader.h"

namespace nereid::http {
namespace {

// Calls on_member(reader, name) -> Status for each member. The callback consumes the value.
template <typename OnMember>
Status ReadMembers(std::string_view body, size_t max_depth, const OnMember& on_member) {
  if (body.empty()) return Status::Ok();
  JsonReader reader(body, max_depth);
  NEREID_RETURN_IF_ERROR(
      reader.ReadObject([&](std::string_view name) { return on_member(reader, name); }));
  return reader.ExpectEnd();
}

// Does the same for the members of the object `parameters`.
template <typename OnParameter>
Status ReadParameters(std::string_view body, size_t max_depth, const OnParameter& on_parameter) {
  return ReadMembers(body, max_depth, [&](JsonReader& reader, std::string_view key) -> Status {
    if (key != "parameters") return reader.SkipValue();
    return reader.ReadObject([&](std::string_view name) { return on_parameter(reader, name); });
  });
}

Status ReadBoolMember(std::string_view expected_name, JsonReader& reader, std::string_view name,
                      bool& value) {
  if (name != expected_name) return reader.SkipValue();
  NEREID_ASSIGN_OR_RETURN(value, reader.ReadBool());
  return Status::Ok();
}

Status ReadLogMember(JsonReader& reader, std::string_view key, LogChange& change) {
  if (reader.Peek() == JsonKind::kNull) return reader.SkipValue();  // no change, as in Triton
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
  // As in Triton, an empty list changes nothing.
  if (!values.empty()) change.emplace_back(key, std::move(values));
  return Status::Ok();
}

Status ReadUint(JsonReader& reader, std::string_view key, std::optional<uint64_t>& target) {
  Result<uint64_t> value = reader.ReadUint64();
  if (value.ok()) target = *value;
  return std::move(value).status().WithContext(StrCat("'", key, "'"));
}

Status ReadHandle(JsonReader& reader, SharedMemoryRegistration& registration) {
  return reader.ReadObject([&](std::string_view key) -> Status {
    if (key != "b64") return reader.SkipValue();
    NEREID_ASSIGN_OR_RETURN(const std::string_view text, reader.ReadString());
    registration.raw_handle = DecodeBase64(text).value_or("");
    return Status::Ok();
  });
}

}  // namespace

Result<LoadBody> ReadLoadBody(std::string_view body, size_t max_depth) {
  LoadBody load;
  NEREID_RETURN_IF_ERROR(
      ReadParameters(body, max_depth, [&](JsonReader& reader, std::string_view name) -> Status {
        const bool is_file = name.starts_with("file:");
        if (!is_file && name != "config") {
          return InvalidArgError("unknown load parameter '", name,
                                 "': expected 'config' or 'file:<path>'");
        }
        NEREID_RETURN_IF_ERROR(RejectZeroByte("file:<path>", name));
        NEREID_ASSIGN_OR_RETURN(const std::string_view text, reader.ReadString());
        if (!is_file) {
          NEREID_RETURN_IF_ERROR(RejectZeroByte(name, text));
          load.config = text;
          return Status::Ok();
        }
        std::optional<std::string> bytes = DecodeBase64(text);
        if (!bytes) return InvalidArgError("load parameter '", name, "' is not base64");
        load.files.push_back({std::string(name), *std::move(bytes)});
        return Status::Ok();
      }));
  return load;
}

Result<bool> ReadUnloadBody(std::string_view body, size_t max_depth) {
  bool with_dependents = false;
  NEREID_RETURN_IF_ERROR(
      ReadParameters(body, max_depth, [&](JsonReader& reader, std::string_view name) {
        return ReadBoolMember("unload_dependents", reader, name, with_dependents);
      }));
  return with_dependents;
}

Result<bool> ReadIndexBody(std::string_view body, size_t max_depth) {
  bool ready_only = false;
  NEREID_RETURN_IF_ERROR(
      ReadMembers(body, max_depth, [&](JsonReader& reader, std::string_view name) {
        return ReadBoolMember("ready", reader, name, ready_only);
      }));
  return ready_only;
}

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

Result<SharedMemoryRegistration> ReadRegistration(std::string_view body, size_t max_depth) {
  SharedMemoryRegistration registration;
  JsonReader reader(body, max_depth);
  NEREID_RETURN_IF_ERROR(reader.ReadObject([&](std::string_view key) -> Status {
    if (key == "key") {
      NEREID_ASSIGN_OR_RETURN(const std::string_view text, reader.ReadString());
      registration.key = text;
      return Status::Ok();
    }
    if (key == "raw_handle") return ReadHandle(reader, registration).WithContext("'raw_handle'");
    if (key == "device_id") return ReadUint(reader, key, registration.device_id);
    if (key == "byte_size") return ReadUint(reader, key, registration.size_bytes);
    if (key == "offset") {
      std::optional<uint64_t> offset;
      NEREID_RETURN_IF_ERROR(ReadUint(reader, key, offset));
      registration.offset = *offset;
      return Status::Ok();
    }
    return reader.SkipValue();
  }));
  NEREID_RETURN_IF_ERROR(reader.ExpectEnd());
  return registration;
}

}  // namespace nereid::http
