// TRITONBACKEND_Backend, its attributes and its memory manager. [load threads; memory: any thread]
#include "host/core/backend/backend.h"

#include "host/core/capi/handles.h"

using nereid::Status;
using nereid::core::AtCBoundary;
using nereid::core::FromHandle;
using nereid::core::ToHandle;

namespace {

nereid::core::InstanceGroup::Kind ToKind(TRITONSERVER_InstanceGroupKind kind) {
  switch (kind) {
    case TRITONSERVER_INSTANCEGROUPKIND_CPU:
      return nereid::core::InstanceGroup::Kind::kCpu;
    case TRITONSERVER_INSTANCEGROUPKIND_GPU:
      return nereid::core::InstanceGroup::Kind::kGpu;
    case TRITONSERVER_INSTANCEGROUPKIND_MODEL:
      return nereid::core::InstanceGroup::Kind::kModel;
    case TRITONSERVER_INSTANCEGROUPKIND_AUTO:
      break;
  }
  return nereid::core::InstanceGroup::Kind::kAuto;
}

}  // namespace

extern "C" {

TRITONSERVER_Error* TRITONBACKEND_ApiVersion(uint32_t* major, uint32_t* minor) {
  NEREID_RETURN_IF_NULL(major);
  NEREID_RETURN_IF_NULL(minor);
  *major = TRITONBACKEND_API_VERSION_MAJOR;
  *minor = TRITONBACKEND_API_VERSION_MINOR;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_BackendName(TRITONBACKEND_Backend* backend, const char** name) {
  NEREID_RETURN_IF_NULL(backend);
  NEREID_RETURN_IF_NULL(name);
  *name = FromHandle(backend)->name().c_str();
  return nullptr;
}

// The backend owns the message; the caller must not delete it.
TRITONSERVER_Error* TRITONBACKEND_BackendConfig(TRITONBACKEND_Backend* backend,
                                                TRITONSERVER_Message** backend_config) {
  NEREID_RETURN_IF_NULL(backend);
  NEREID_RETURN_IF_NULL(backend_config);
  *backend_config = ToHandle(&FromHandle(backend)->config());
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_BackendExecutionPolicy(TRITONBACKEND_Backend* backend,
                                                         TRITONBACKEND_ExecutionPolicy* policy) {
  NEREID_RETURN_IF_NULL(backend);
  NEREID_RETURN_IF_NULL(policy);
  *policy = FromHandle(backend)->execution_policy();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_BackendSetExecutionPolicy(TRITONBACKEND_Backend* backend,
                                                            TRITONBACKEND_ExecutionPolicy policy) {
  NEREID_RETURN_IF_NULL(backend);
  FromHandle(backend)->set_execution_policy(policy);
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_BackendArtifacts(TRITONBACKEND_Backend* backend,
                                                   TRITONBACKEND_ArtifactType* artifact_type,
                                                   const char** location) {
  NEREID_RETURN_IF_NULL(backend);
  NEREID_RETURN_IF_NULL(artifact_type);
  NEREID_RETURN_IF_NULL(location);
  *artifact_type = TRITONBACKEND_ARTIFACT_FILESYSTEM;
  *location = FromHandle(backend)->directory().c_str();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_BackendMemoryManager(TRITONBACKEND_Backend* backend,
                                                       TRITONBACKEND_MemoryManager** manager) {
  NEREID_RETURN_IF_NULL(backend);
  NEREID_RETURN_IF_NULL(manager);
  *manager = ToHandle(FromHandle(backend)->memory());
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_BackendState(TRITONBACKEND_Backend* backend, void** state) {
  NEREID_RETURN_IF_NULL(backend);
  NEREID_RETURN_IF_NULL(state);
  *state = FromHandle(backend)->state();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_BackendSetState(TRITONBACKEND_Backend* backend, void* state) {
  NEREID_RETURN_IF_NULL(backend);
  FromHandle(backend)->set_state(state);
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
    TRITONBACKEND_BackendAttribute* backend_attributes, const TRITONSERVER_InstanceGroupKind kind,
    const uint64_t count, const uint64_t* device_ids, const uint64_t id_count) {
  NEREID_RETURN_IF_NULL(backend_attributes);
  if (id_count > 0) NEREID_RETURN_IF_NULL(device_ids);
  return AtCBoundary([&]() -> Status {
    constexpr uint64_t kMaxCount = 1024;
    if (count > kMaxCount || id_count > kMaxCount) {
      return nereid::InvalidArgError("preferred instance group: expected at most ", kMaxCount,
                                     " instances and devices, got ", count, " and ", id_count);
    }
    nereid::core::config::PreferredGroup group;
    group.kind = ToKind(kind);
    group.count = static_cast<int32_t>(count);
    group.devices.assign(device_ids, device_ids + id_count);
    FromHandle(backend_attributes)->preferred_groups.push_back(std::move(group));
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(
    TRITONBACKEND_BackendAttribute* backend_attributes, bool enabled) {
  NEREID_RETURN_IF_NULL(backend_attributes);
  FromHandle(backend_attributes)->parallel_instance_loading = enabled;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_MemoryManagerAllocate(TRITONBACKEND_MemoryManager* manager,
                                                        void** buffer,
                                                        const TRITONSERVER_MemoryType memory_type,
                                                        const int64_t memory_type_id,
                                                        const uint64_t byte_size) {
  NEREID_RETURN_IF_NULL(manager);
  NEREID_RETURN_IF_NULL(buffer);
  return AtCBoundary([&]() -> Status {
    NEREID_ASSIGN_OR_RETURN(*buffer,
                            FromHandle(manager)->Allocate(memory_type, memory_type_id, byte_size));
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONBACKEND_MemoryManagerFree(TRITONBACKEND_MemoryManager* manager,
                                                    void* buffer,
                                                    const TRITONSERVER_MemoryType memory_type,
                                                    const int64_t memory_type_id) {
  NEREID_RETURN_IF_NULL(manager);
  return AtCBoundary(
      [&] { return FromHandle(manager)->Free(buffer, memory_type, memory_type_id); });
}

}  // extern "C"
