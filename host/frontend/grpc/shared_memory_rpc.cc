// The shared memory calls of ControlService.
#include <string>

#include "answer_call.h"
#include "control_service.h"
#include "frontend_state.h"

namespace nereid {

using Reactor = ControlService::Reactor;
using Context = ControlService::Context;

Reactor* ControlService::SystemSharedMemoryStatus(
    Context* call, const inference::SystemSharedMemoryStatusRequest* request,
    inference::SystemSharedMemoryStatusResponse* response) {
  if (Reactor* const refused = Refuse(call, ApiGroup::kSharedMemory)) return refused;
  return Answer(call, [&]() -> Status {
    NEREID_ASSIGN_OR_RETURN(const auto regions, context_.options().state->shared_memory.Describe(
                                                    SharedMemoryKind::kSystem, request->name()));
    for (const SharedRegionInfo& region : regions) {
      auto& status = (*response->mutable_regions())[region.name];
      status.set_name(region.name);
      status.set_key(region.key);
      status.set_offset(region.offset);
      status.set_byte_size(region.size_bytes);
    }
    return {};
  });
}

Reactor* ControlService::SystemSharedMemoryRegister(
    Context* call, const inference::SystemSharedMemoryRegisterRequest* request,
    inference::SystemSharedMemoryRegisterResponse*) {
  if (Reactor* const refused = Refuse(call, ApiGroup::kSharedMemory)) return refused;
  return Answer(call, [&] {
    return context_.options().state->shared_memory.RegisterSystem(
        request->name(), request->key(), request->offset(), request->byte_size());
  });
}

Reactor* ControlService::SystemSharedMemoryUnregister(
    Context* call, const inference::SystemSharedMemoryUnregisterRequest* request,
    inference::SystemSharedMemoryUnregisterResponse*) {
  if (Reactor* const refused = Refuse(call, ApiGroup::kSharedMemory)) return refused;
  return Answer(call, [&] {
    return context_.options().state->shared_memory.Unregister(SharedMemoryKind::kSystem,
                                                              request->name());
  });
}

Reactor* ControlService::CudaSharedMemoryStatus(
    Context* call, const inference::CudaSharedMemoryStatusRequest* request,
    inference::CudaSharedMemoryStatusResponse* response) {
  if (Reactor* const refused = Refuse(call, ApiGroup::kSharedMemory)) return refused;
  return Answer(call, [&]() -> Status {
    NEREID_ASSIGN_OR_RETURN(const auto regions, context_.options().state->shared_memory.Describe(
                                                    SharedMemoryKind::kCuda, request->name()));
    for (const SharedRegionInfo& region : regions) {
      auto& status = (*response->mutable_regions())[region.name];
      status.set_name(region.name);
      status.set_device_id(static_cast<uint64_t>(region.device_id));
      status.set_byte_size(region.size_bytes);
    }
    return {};
  });
}

Reactor* ControlService::CudaSharedMemoryRegister(
    Context* call, const inference::CudaSharedMemoryRegisterRequest* request,
    inference::CudaSharedMemoryRegisterResponse*) {
  if (Reactor* const refused = Refuse(call, ApiGroup::kSharedMemory)) return refused;
  return AnswerLater(control_queue_, [this, taken = TakeMessage(request)] {
    return context_.options().state->shared_memory.RegisterCuda(
        taken.name(), taken.raw_handle(), taken.device_id(), taken.byte_size());
  });
}

Reactor* ControlService::CudaSharedMemoryUnregister(
    Context* call, const inference::CudaSharedMemoryUnregisterRequest* request,
    inference::CudaSharedMemoryUnregisterResponse*) {
  if (Reactor* const refused = Refuse(call, ApiGroup::kSharedMemory)) return refused;
  return Answer(call, [&] {
    return context_.options().state->shared_memory.Unregister(SharedMemoryKind::kCuda,
                                                              request->name());
  });
}

}  // namespace nereid
