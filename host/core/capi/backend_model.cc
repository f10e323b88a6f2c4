// TRITONBACKEND_Model: properties, configuration and state of a model. [load thread; name, version
// and state: any thread]
#include "host/core/capi/arguments.h"
#include "host/core/capi/handles.h"
#include "host/core/model/model.h"

using nereid::Status;
using nereid::core::AtCBoundary;
using nereid::core::FromHandle;
using nereid::core::JsonMessage;
using nereid::core::ToHandle;

extern "C" {

TRITONSERVER_Error* TRITONBACKEND_ModelName(TRITONBACKEND_Model* model, const char** name) {
  NEREID_RETURN_IF_NULL(model);
  NEREID_RETURN_IF_NULL(name);
  *name = FromHandle(model)->name().c_str();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelVersion(TRITONBACKEND_Model* model, uint64_t* version) {
  NEREID_RETURN_IF_NULL(model);
  NEREID_RETURN_IF_NULL(version);
  *version = static_cast<uint64_t>(FromHandle(model)->version());
  return nullptr;
}

// The directory of config.pbtxt, not of the version.
TRITONSERVER_Error* TRITONBACKEND_ModelRepository(TRITONBACKEND_Model* model,
                                                  TRITONBACKEND_ArtifactType* artifact_type,
                                                  const char** location) {
  NEREID_RETURN_IF_NULL(model);
  NEREID_RETURN_IF_NULL(artifact_type);
  NEREID_RETURN_IF_NULL(location);
  *artifact_type = TRITONBACKEND_ARTIFACT_FILESYSTEM;
  *location = FromHandle(model)->directory().c_str();
  return nullptr;
}

// The caller deletes the message.
TRITONSERVER_Error* TRITONBACKEND_ModelConfig(TRITONBACKEND_Model* model,
                                              const uint32_t config_version,
                                              TRITONSERVER_Message** model_config) {
  NEREID_RETURN_IF_NULL(model);
  NEREID_RETURN_IF_NULL(model_config);
  return AtCBoundary([&]() -> Status {
    NEREID_RETURN_IF_ERROR(nereid::core::CheckConfigVersion(config_version));
    *model_config = ToHandle(new JsonMessage(FromHandle(model)->ConfigJson()));
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONBACKEND_ModelAutoCompleteConfig(TRITONBACKEND_Model* model,
                                                          bool* auto_complete_config) {
  NEREID_RETURN_IF_NULL(model);
  NEREID_RETURN_IF_NULL(auto_complete_config);
  *auto_complete_config = FromHandle(model)->auto_complete_config();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelSetConfig(TRITONBACKEND_Model* model,
                                                 const uint32_t config_version,
                                                 TRITONSERVER_Message* model_config) {
  NEREID_RETURN_IF_NULL(model);
  NEREID_RETURN_IF_NULL(model_config);
  return AtCBoundary([&]() -> Status {
    NEREID_RETURN_IF_ERROR(nereid::core::CheckConfigVersion(config_version));
    return FromHandle(model)->SetConfig(FromHandle(model_config)->json());
  });
}

TRITONSERVER_Error* TRITONBACKEND_ModelServer(TRITONBACKEND_Model* model,
                                              TRITONSERVER_Server** server) {
  NEREID_RETURN_IF_NULL(model);
  NEREID_RETURN_IF_NULL(server);
  *server = FromHandle(model)->services().server;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelBackend(TRITONBACKEND_Model* model,
                                               TRITONBACKEND_Backend** backend) {
  NEREID_RETURN_IF_NULL(model);
  NEREID_RETURN_IF_NULL(backend);
  *backend = ToHandle(FromHandle(model)->backend());
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelState(TRITONBACKEND_Model* model, void** state) {
  NEREID_RETURN_IF_NULL(model);
  NEREID_RETURN_IF_NULL(state);
  *state = FromHandle(model)->state();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelSetState(TRITONBACKEND_Model* model, void* state) {
  NEREID_RETURN_IF_NULL(model);
  FromHandle(model)->set_state(state);
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelReportMemoryUsage(TRITONBACKEND_Model* model,
                                                         TRITONSERVER_BufferAttributes** usage,
                                                         uint32_t usage_size) {
  NEREID_RETURN_IF_NULL(model);
  if (usage_size > 0) NEREID_RETURN_IF_NULL(usage);
  return AtCBoundary([&] {
    auto reported = nereid::core::ReadMemoryUsage({usage, usage_size});
    FromHandle(model)->memory_usage().Report(nullptr, std::move(reported));
    return Status::Ok();
  });
}

}  // extern "C"
