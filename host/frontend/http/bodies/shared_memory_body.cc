// Members that are not known are skipped, as Triton does.
#include "host/frontend/http/bodies/shared_memory_body.h"

#include "host/frontend/http/bodies/base64.h"
#include "host/frontend/http/json/json_reader.h"

namespace nereid::http {
namespace {

Status ReadUint(JsonReader& reader, std::string_view key, std::optional<uint64_t>& target) {
  Result<uint64_t> value = reader.ReadUint64();
  if (value.ok()) target = *value;
  return std::move(value).status().WithContext(StrCat("'", key, "'"));
}

Status ReadHandle(JsonReader& reader, Registration& registration) {
  return reader.ReadObject([&](std::string_view key) -> Status {
    if (key != "b64") return reader.SkipValue();
    NEREID_ASSIGN_OR_RETURN(const std::string_view text, reader.ReadString());
    registration.raw_handle = DecodeBase64(text).value_or("");
    return Status::Ok();
  });
}

}  // namespace

Result<Registration> ReadRegistration(std::string_view body, size_t max_depth) {
  Registration registration;
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
