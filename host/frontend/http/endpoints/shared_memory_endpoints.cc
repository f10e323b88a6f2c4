// Endpoints of /v2/systemsharedmemory and /v2/cudasharedmemory.
#include "host/frontend/http/endpoints/endpoints.h"

#include <optional>
#include <string>
#include <utility>

#include "host/frontend/frontend_state.h"
#include "host/frontend/http/bodies/control_bodies.h"
#include "host/frontend/http/calls/blocking_pool.h"
#include "host/frontend/http/json/json_writer.h"
#include "host/frontend/http/transport/http_connection.h"

namespace nereid::http {
namespace {

Status CheckRegion(const std::string& region, std::string_view kind) {
  if (!region.empty()) return Status::Ok();
  return InvalidArgError("'region name' is necessary to register ", kind, " shared memory region");
}

Status MissingMemberError(std::string_view member) {
  return InvalidArgError("Shared memory register request has no '", member, "' field");
}

Status RegisterSystem(const KServeContext& context, HttpConnection& connection,
                      const RequestBody& body, const std::string& region) {
  NEREID_RETURN_IF_ERROR(CheckRegion(region, "system"));
  NEREID_ASSIGN_OR_RETURN(const SharedMemoryRegistration registration,
                          ReadRegistration(body.bytes(), connection.limits().max_json_depth));
  if (!registration.key) return MissingMemberError("key");
  if (!registration.size_bytes) return MissingMemberError("byte_size");
  NEREID_RETURN_IF_ERROR(context.state.shared_memory.RegisterSystem(
      region, *registration.key, registration.offset, *registration.size_bytes));
  connection.Reply({}, "");
  return Status::Ok();
}

Status RegisterCuda(KServeContext& context, BlockingPool& pool, HttpConnection& connection,
                    const RequestBody& body, const std::string& region) {
  NEREID_RETURN_IF_ERROR(CheckRegion(region, "cuda"));
  NEREID_ASSIGN_OR_RETURN(SharedMemoryRegistration registration,
                          ReadRegistration(body.bytes(), connection.limits().max_json_depth));
  if (!registration.raw_handle) return MissingMemberError("raw_handle");
  if (!registration.device_id) return MissingMemberError("device_id");
  if (!registration.size_bytes) return MissingMemberError("byte_size");
  BlockingCall::Start(
      context, pool, connection, [&context, region, registration = std::move(registration)] {
        return context.state.shared_memory.RegisterCuda(
            region, *registration.raw_handle, static_cast<int64_t>(*registration.device_id),
            *registration.size_bytes);
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

Status Describe(const KServeContext& context, HttpConnection& connection, SharedMemoryKind kind,
                const std::string& region) {
  NEREID_ASSIGN_OR_RETURN(const std::vector<SharedRegionInfo> regions,
                          context.state.shared_memory.Describe(kind, region));
  connection.Reply({}, ToJson(kind, regions));
  return Status::Ok();
}

Status Unregister(const KServeContext& context, HttpConnection& connection, SharedMemoryKind kind,
                  const std::string& region) {
  context.state.shared_memory.Unregister(kind, region);
  connection.Reply({}, "");
  return Status::Ok();
}

Status HandleSharedMemoryRequest(KServeContext& context, BlockingPool& pool,
                                 HttpConnection& connection, const RequestBody& body,
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

void HandleSharedMemory(KServeContext& context, BlockingPool& pool, HttpConnection& connection,
                        const RequestBody& body, const Route& route) {
  const Status status = HandleSharedMemoryRequest(context, pool, connection, body, route);
  if (!status.ok()) ReplyError(connection, status);
}

}  // namespace nereid::http
