// Small JSON bodies around SharedMemory.
#include "host/frontend/http/shared_memory_endpoints.h"

#include <optional>
#include <string>
#include <utility>

#include "host/frontend/frontend_state.h"
#include "host/frontend/http/base64.h"
#include "host/frontend/http/json/json_reader.h"
#include "host/frontend/http/json/json_writer.h"
#include "host/frontend/http/pool_call.h"
#include "host/frontend/http/reply.h"

namespace nereid::http {
namespace {

// The members of a register body, of either kind.
struct Registration {
  std::optional<std::string> key;
  std::optional<std::string> raw_handle;  // decoded; empty when it is no base64
  std::optional<uint64_t> device_id;
  uint64_t offset = 0;
  std::optional<uint64_t> size_bytes;
};

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

Result<Registration> ReadRegistration(const Body& body, size_t max_depth) {
  Registration registration;
  JsonReader reader(body.bytes(), max_depth);
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

Status Missing(std::string_view member) {
  return InvalidArgError("Shared memory register request has no '", member, "' field");
}

Status RegisterSystem(const KServeContext& context, Connection& connection, const Body& body,
                      const std::string& region) {
  NEREID_ASSIGN_OR_RETURN(const Registration wanted,
                          ReadRegistration(body, connection.limits().max_json_depth));
  if (!wanted.key) return Missing("key");
  if (!wanted.size_bytes) return Missing("byte_size");
  NEREID_RETURN_IF_ERROR(context.state.shared_memory.RegisterSystem(
      region, *wanted.key, wanted.offset, *wanted.size_bytes));
  connection.Reply({}, "");
  return Status::Ok();
}

Status RegisterCuda(KServeContext& context, BlockingPool& pool, Connection& connection,
                    const Body& body, const std::string& region) {
  NEREID_ASSIGN_OR_RETURN(Registration wanted,
                          ReadRegistration(body, connection.limits().max_json_depth));
  if (!wanted.raw_handle) return Missing("raw_handle");
  if (!wanted.device_id) return Missing("device_id");
  if (!wanted.size_bytes) return Missing("byte_size");
  PoolCall::Start(context, pool, connection, [&context, region, wanted = std::move(wanted)] {
    return context.state.shared_memory.RegisterCuda(
        region, *wanted.raw_handle, static_cast<int64_t>(*wanted.device_id), *wanted.size_bytes);
  });
  return Status::Ok();
}

std::string ToJson(SharedMemoryKind kind, const std::vector<SharedRegionInfo>& regions) {
  std::string json = "[";
  for (const SharedRegionInfo& region : regions) {
    if (json.size() > 1) json += ',';
    json += "{\"name\":";
    AppendLossyJsonString(json, region.name);
    if (kind == SharedMemoryKind::kSystem) {
      json += ",\"key\":";
      AppendLossyJsonString(json, region.key);
      json += StrCat(",\"offset\":", region.offset);
    } else {
      json += StrCat(",\"device_id\":", region.device_id);
    }
    json += StrCat(",\"byte_size\":", region.size_bytes, "}");
  }
  json += ']';
  return json;
}

Status Describe(const KServeContext& context, Connection& connection, SharedMemoryKind kind,
                const std::string& region) {
  NEREID_ASSIGN_OR_RETURN(const std::vector<SharedRegionInfo> regions,
                          context.state.shared_memory.Describe(kind, region));
  connection.Reply({}, ToJson(kind, regions));
  return Status::Ok();
}

Status Unregister(const KServeContext& context, Connection& connection, SharedMemoryKind kind,
                  const std::string& region) {
  NEREID_RETURN_IF_ERROR(context.state.shared_memory.Unregister(kind, region));
  connection.Reply({}, "");
  return Status::Ok();
}

Status Answer(KServeContext& context, BlockingPool& pool, Connection& connection, const Body& body,
              const Route& route) {
  switch (route.endpoint) {
    case Endpoint::kSystemMemoryRegister:
      return RegisterSystem(context, connection, body, route.region);
    case Endpoint::kCudaMemoryRegister:
      return RegisterCuda(context, pool, connection, body, route.region);
    case Endpoint::kSystemMemoryUnregister:
      return Unregister(context, connection, SharedMemoryKind::kSystem, route.region);
    case Endpoint::kCudaMemoryUnregister:
      return Unregister(context, connection, SharedMemoryKind::kCuda, route.region);
    case Endpoint::kCudaMemoryStatus:
      return Describe(context, connection, SharedMemoryKind::kCuda, route.region);
    default:
      return Describe(context, connection, SharedMemoryKind::kSystem, route.region);
  }
}

}  // namespace

void AnswerSharedMemory(KServeContext& context, BlockingPool& pool, Connection& connection,
                        const Body& body, const Route& route) {
  const Status status = Answer(context, pool, connection, body, route);
  if (!status.ok()) ReplyError(connection, status);
}

}  // namespace nereid::http
