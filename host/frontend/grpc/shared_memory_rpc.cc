// The shared memory calls of InferenceService.
#include "grpc_service.pb.h"
#include "host/frontend/frontend_state.h"
#include "host/frontend/grpc/inference_service.h"

namespace nereid {

void InferenceService::AddSharedMemory(MethodTable& table) const {
  using namespace inference;
  constexpr ApiGroup kGroup = ApiGroup::kSharedMemory;
  SharedMemoryManager& memory = context_.options().state->shared_memory;
  AddInlineCall<SystemSharedMemoryStatusRequest, SystemSharedMemoryStatusResponse>(
      table, "SystemSharedMemoryStatus", kGroup,
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
      table, "SystemSharedMemoryRegister", kGroup, [&memory](const auto& request, auto&) {
        return memory.RegisterSystem(request.name(), request.key(), request.offset(),
                                     request.byte_size());
      });
  AddInlineCall<SystemSharedMemoryUnregisterRequest, SystemSharedMemoryUnregisterResponse>(
      table, "SystemSharedMemoryUnregister", kGroup, [&memory](const auto& request, auto&) {
        memory.Unregister(SharedMemoryKind::kSystem, request.name());
        return Status::Ok();
      });
  AddInlineCall<CudaSharedMemoryStatusRequest, CudaSharedMemoryStatusResponse>(
      table, "CudaSharedMemoryStatus", kGroup,
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
      table, "CudaSharedMemoryRegister", kGroup, [&memory](const auto& request, auto&) {
        return memory.RegisterCuda(request.name(), request.raw_handle(), request.device_id(),
                                   request.byte_size());
      });
  AddInlineCall<CudaSharedMemoryUnregisterRequest, CudaSharedMemoryUnregisterResponse>(
      table, "CudaSharedMemoryUnregister", kGroup, [&memory](const auto& request, auto&) {
        memory.Unregister(SharedMemoryKind::kCuda, request.name());
        return Status::Ok();
      });
}

}  // namespace nereid
