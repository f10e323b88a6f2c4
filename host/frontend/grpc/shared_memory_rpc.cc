// The shared memory calls of InferenceService.
#include "grpc_service.pb.h"
#include "host/frontend/frontend_state.h"
#include "host/frontend/grpc/inference_service.h"

namespace nereid {

void InferenceService::AddSharedMemory(MethodTable& table) const {
  using namespace inference;
  constexpr ApiOperation kRead = ApiOperation::kReadSharedMemory;
  constexpr ApiOperation kChange = ApiOperation::kChangeSharedMemory;
  SharedMemoryManager& memory = context_.options().state->shared_memory;
  AddInlineCall<SystemSharedMemoryStatusRequest, SystemSharedMemoryStatusResponse>(
      table, "SystemSharedMemoryStatus", kRead,
      [&memory](const auto& request, auto& response) -> Status {
        NEREID_ASSIGN_OR_RETURN(const auto regions,
                                memory.Describe(SharedMemoryKind::kSystem, request.name()));
        for (const SharedRegionInfo& region : regions) {
          auto& status = (*response.mutable_regions())[region.name];
          status.set_name(region.name);
          status.set_key(region.key);
          status.set_offset(region.offset);
          status.set_byte_size(region.size_bytes);
        }
        return {};
      });
  AddInlineCall<SystemSharedMemoryRegisterRequest, SystemSharedMemoryRegisterResponse>(
      table, "SystemSharedMemoryRegister", kChange, [&memory](const auto& request, auto&) {
        return memory.RegisterSystem(request.name(), request.key(), request.offset(),
                                     request.byte_size());
      });
  AddInlineCall<SystemSharedMemoryUnregisterRequest, SystemSharedMemoryUnregisterResponse>(
      table, "SystemSharedMemoryUnregister", kChange, [&memory](const auto& request, auto&) {
        memory.Unregister(SharedMemoryKind::kSystem, request.name());
        return Status::Ok();
      });
  AddInlineCall<CudaSharedMemoryStatusRequest, CudaSharedMemoryStatusResponse>(
      table, "CudaSharedMemoryStatus", kRead,
      [&memory](const auto& request, auto& response) -> Status {
        NEREID_ASSIGN_OR_RETURN(const auto regions,
                                memory.Describe(SharedMemoryKind::kCuda, request.name()));
        for (const SharedRegionInfo& region : regions) {
          auto& status = (*response.mutable_regions())[region.name];
          status.set_name(region.name);
          status.set_device_id(static_cast<uint64_t>(region.device_id));
          status.set_byte_size(region.size_bytes);
        }
        return {};
      });
  AddQueuedCall<CudaSharedMemoryRegisterRequest, CudaSharedMemoryRegisterResponse>(
      table, "CudaSharedMemoryRegister", kChange, [&memory](const auto& request, auto&) {
        return memory.RegisterCuda(request.name(), request.raw_handle(), request.device_id(),
                                   request.byte_size());
      });
  AddInlineCall<CudaSharedMemoryUnregisterRequest, CudaSharedMemoryUnregisterResponse>(
      table, "CudaSharedMemoryUnregister", kChange, [&memory](const auto& request, auto&) {
        memory.Unregister(SharedMemoryKind::kCuda, request.name());
        return Status::Ok();
      });
}

}  // namespace nereid
