// Members that are not known are skipped, as Triton does; parameters of a load are not.
#include "host/frontend/http/bodies/repository_body.h"

#include <utility>

#include "host/frontend/http/bodies/base64.h"
#include "host/frontend/http/json/json_reader.h"
#include "host/frontend/zero_byte.h"

namespace nereid::http {
namespace {

// Calls on_member(reader, name) -> Status for each member; it consumes the value.
template <typename OnMember>
Status ReadMembers(std::string_view body, size_t max_depth, const OnMember& on_member) {
  if (body.empty()) return Status::Ok();
  JsonReader reader(body, max_depth);
  NEREID_RETURN_IF_ERROR(
      reader.ReadObject([&](std::string_view name) { return on_member(reader, name); }));
  return reader.ExpectEnd();
}

// The same for those of the object `parameters`.
template <typename OnParameter>
Status ReadParameters(std::string_view body, size_t max_depth, const OnParameter& on_parameter) {
  return ReadMembers(body, max_depth, [&](JsonReader& reader, std::string_view key) -> Status {
    if (key != "parameters") return reader.SkipValue();
    return reader.ReadObject([&](std::string_view name) { return on_parameter(reader, name); });
  });
}

Status ReadSwitch(std::string_view wanted, JsonReader& reader, std::string_view name, bool& value) {
  if (name != wanted) return reader.SkipValue();
  NEREID_ASSIGN_OR_RETURN(value, reader.ReadBool());
  return Status::Ok();
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
        NEREID_RETURN_IF_ERROR(RefuseZeroByte("file:<path>", name));
        NEREID_ASSIGN_OR_RETURN(const std::string_view text, reader.ReadString());
        if (!is_file) {
          NEREID_RETURN_IF_ERROR(RefuseZeroByte(name, text));
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
        return ReadSwitch("unload_dependents", reader, name, with_dependents);
      }));
  return with_dependents;
}

Result<bool> ReadIndexBody(std::string_view body, size_t max_depth) {
  bool ready_only = false;
  NEREID_RETURN_IF_ERROR(
      ReadMembers(body, max_depth, [&](JsonReader& reader, std::string_view name) {
        return ReadSwitch("ready", reader, name, ready_only);
      }));
  return ready_only;
}

}  // namespace nereid::http
