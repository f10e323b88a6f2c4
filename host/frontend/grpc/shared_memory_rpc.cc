// The shared memory calls of ControlService.
#include "grpc_service.pb.h"
#include "host/frontend/frontend_state.h"
#include "host/frontend/grpc/control_service.h"

namespace nereid {

void ControlService::AddSharedMemory(MethodTable& table) const {
  using namespace inference;
  constexpr ApiGroup kGroup = ApiGroup::kSharedMemory;
  SharedMemory& memory = context_.options().state->shared_memory;
  AddNow<SystemSharedMemoryStatusRequest, SystemSharedMemoryStatusResponse>(
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
  AddNow<SystemSharedMemoryRegisterRequest, SystemSharedMemoryRegisterResponse>(
      table, "SystemSharedMemoryRegister", kGroup, [&memory](const auto& request, auto&) {
        return memory.RegisterSystem(request.name(), request.key(), request.offset(),
                                     request.byte_size());
      });
  AddNow<SystemSharedMemoryUnregisterRequest, SystemSharedMemoryUnregisterResponse>(
      table, "SystemSharedMemoryUnregister", kGroup, [&memory](const auto& request, auto&) {
        return memory.Unregister(SharedMemoryKind::kSystem, request.name());
      });
  AddNow<CudaSharedMemoryStatusRequest, CudaSharedMemoryStatusResponse>(
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
  AddLate<CudaSharedMemoryRegisterRequest, CudaSharedMemoryRegisterResponse>(
      table, "CudaSharedMemoryRegister", kGroup, [&memory](const auto& request, auto&) {
        return memory.RegisterCuda(request.name(), request.raw_handle(), request.device_id(),
                                   request.byte_size());
      });
  AddNow<CudaSharedMemoryUnregisterRequest, CudaSharedMemoryUnregisterResponse>(
      table, "CudaSharedMemoryUnregister", kGroup, [&memory](const auto& request, auto&) {
        return memory.Unregister(SharedMemoryKind::kCuda, request.name());
      });
}

}  // namespace nereid
