// TRITONBACKEND_ModelInstance: properties and state of an instance. [load thread, instance thread]
#include "host/core/backend/instance.h"

#include "host/core/capi/arguments.h"
#include "host/core/capi/handles.h"
#include "host/core/model/model.h"

using nereid::Status;
using nereid::core::AtCBoundary;
using nereid::core::FromHandle;
using nereid::core::ToHandle;

extern "C" {

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceName(TRITONBACKEND_ModelInstance* instance,
                                                    const char** name) {
  NEREID_RETURN_IF_NULL(instance);
  NEREID_RETURN_IF_NULL(name);
  *name = FromHandle(instance)->spec().name.c_str();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceKind(TRITONBACKEND_ModelInstance* instance,
                                                    TRITONSERVER_InstanceGroupKind* kind) {
  NEREID_RETURN_IF_NULL(instance);
  NEREID_RETURN_IF_NULL(kind);
  *kind = FromHandle(instance)->spec().kind;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceDeviceId(TRITONBACKEND_ModelInstance* instance,
                                                        int32_t* device_id) {
  NEREID_RETURN_IF_NULL(instance);
  NEREID_RETURN_IF_NULL(device_id);
  *device_id = FromHandle(instance)->spec().device_id;
  return nullptr;
}

// The instance owns the message; the caller must not delete it.
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceHostPolicy(TRITONBACKEND_ModelInstance* instance,
                                                          TRITONSERVER_Message** host_policy) {
  NEREID_RETURN_IF_NULL(instance);
  NEREID_RETURN_IF_NULL(host_policy);
  *host_policy = ToHandle(&FromHandle(instance)->host_policy());
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceIsPassive(TRITONBACKEND_ModelInstance* instance,
                                                         bool* is_passive) {
  NEREID_RETURN_IF_NULL(instance);
  NEREID_RETURN_IF_NULL(is_passive);
  *is_passive = FromHandle(instance)->spec().passive;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceProfileCount(TRITONBACKEND_ModelInstance* instance,
                                                            uint32_t* count) {
  NEREID_RETURN_IF_NULL(instance);
  NEREID_RETURN_IF_NULL(count);
  *count = static_cast<uint32_t>(FromHandle(instance)->spec().profiles.size());
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceProfileName(TRITONBACKEND_ModelInstance* instance,
                                                           const uint32_t index,
                                                           const char** profile_name) {
  NEREID_RETURN_IF_NULL(instance);
  NEREID_RETURN_IF_NULL(profile_name);
  *profile_name = nullptr;
  return AtCBoundary([&]() -> Status {
    const auto& profiles = FromHandle(instance)->spec().profiles;
    if (index >= profiles.size()) {
      return nereid::InvalidArgError("out of bounds index ", index, ": instance has ",
                                     profiles.size(), " profiles");
    }
    *profile_name = profiles[index].c_str();
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceSecondaryDeviceCount(
    TRITONBACKEND_ModelInstance* instance, uint32_t* count) {
  NEREID_RETURN_IF_NULL(instance);
  NEREID_RETURN_IF_NULL(count);
  *count = static_cast<uint32_t>(FromHandle(instance)->spec().secondary_devices.size());
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceSecondaryDeviceProperties(
    TRITONBACKEND_ModelInstance* instance, uint32_t index, const char** kind, int64_t* id) {
  NEREID_RETURN_IF_NULL(instance);
  NEREID_RETURN_IF_NULL(kind);
  NEREID_RETURN_IF_NULL(id);
  return AtCBoundary([&]() -> Status {
    const auto& devices = FromHandle(instance)->spec().secondary_devices;
    if (index >= devices.size()) {
      return nereid::InvalidArgError("out of bounds index ", index, ": instance has ",
                                     devices.size(), " secondary devices");
    }
    *kind = devices[index].first.c_str();
    *id = devices[index].second;
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceModel(TRITONBACKEND_ModelInstance* instance,
                                                     TRITONBACKEND_Model** model) {
  NEREID_RETURN_IF_NULL(instance);
  NEREID_RETURN_IF_NULL(model);
  *model = FromHandle(instance)->model();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceState(TRITONBACKEND_ModelInstance* instance,
                                                     void** state) {
  NEREID_RETURN_IF_NULL(instance);
  NEREID_RETURN_IF_NULL(state);
  *state = FromHandle(instance)->state();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceSetState(TRITONBACKEND_ModelInstance* instance,
                                                        void* state) {
  NEREID_RETURN_IF_NULL(instance);
  FromHandle(instance)->set_state(state);
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportMemoryUsage(
    TRITONBACKEND_ModelInstance* instance, TRITONSERVER_BufferAttributes** usage,
    uint32_t usage_size) {
  NEREID_RETURN_IF_NULL(instance);
  if (usage_size > 0) NEREID_RETURN_IF_NULL(usage);
  return AtCBoundary([&] {
    auto reported = nereid::core::ReadMemoryUsage({usage, usage_size});
    FromHandle(FromHandle(instance)->model())->memory_usage().Report(instance, std::move(reported));
    return Status::Ok();
  });
}

}  // extern "C"
