// Small JSON bodies around SharedMemory.
#include "host/frontend/http/endpoints/shared_memory_endpoints.h"

#include <optional>
#include <string>
#include <utility>

#include "host/frontend/frontend_state.h"
#include "host/frontend/http/bodies/shared_memory_body.h"
#include "host/frontend/http/calls/pool_call.h"
#include "host/frontend/http/calls/reply.h"
#include "host/frontend/http/json/json_writer.h"

namespace nereid::http {
namespace {

Status CheckRegion(const std::string& region, std::string_view kind) {
  if (!region.empty()) return Status::Ok();
  return InvalidArgError("'region name' is necessary to register ", kind, " shared memory region");
}

Status Missing(std::string_view member) {
  return InvalidArgError("Shared memory register request has no '", member, "' field");
}

Status RegisterSystem(const KServeContext& context, Connection& connection, const Body& body,
                      const std::string& region) {
  NEREID_RETURN_IF_ERROR(CheckRegion(region, "system"));
  NEREID_ASSIGN_OR_RETURN(const Registration wanted,
                          ReadRegistration(body.bytes(), connection.limits().max_json_depth));
  if (!wanted.key) return Missing("key");
  if (!wanted.size_bytes) return Missing("byte_size");
  NEREID_RETURN_IF_ERROR(context.state.shared_memory.RegisterSystem(
      region, *wanted.key, wanted.offset, *wanted.size_bytes));
  connection.Reply({}, "");
  return Status::Ok();
}

Status RegisterCuda(KServeContext& context, BlockingPool& pool, Connection& connection,
                    const Body& body, const std::string& region) {
  NEREID_RETURN_IF_ERROR(CheckRegion(region, "cuda"));
  NEREID_ASSIGN_OR_RETURN(Registration wanted,
                          ReadRegistration(body.bytes(), connection.limits().max_json_depth));
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
