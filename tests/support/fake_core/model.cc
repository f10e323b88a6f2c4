// Backends, models and instances of the fake host.
#include "tests/support/fake_core/handles.h"

using namespace nereid::fake;

extern "C" {

TRITONSERVER_Error* TRITONBACKEND_BackendArtifacts(TRITONBACKEND_Backend*,
                                                   TRITONBACKEND_ArtifactType* artifact_type,
                                                   const char** location) {
  *artifact_type = TRITONBACKEND_ARTIFACT_FILESYSTEM;
  *location = "/backends/fake";
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_BackendName(TRITONBACKEND_Backend*, const char** name) {
  *name = "fake";
  return nullptr;
}
// The model's handle also serves as the handle of its backend.
TRITONSERVER_Error* TRITONBACKEND_ModelBackend(TRITONBACKEND_Model* model,
                                               TRITONBACKEND_Backend** backend) {
  *backend = As<TRITONBACKEND_Backend>(model);
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_BackendConfig(TRITONBACKEND_Backend* backend,
                                                TRITONSERVER_Message** backend_config) {
  // The host owns this message and keeps it until the process ends, because the API forbids to
  // delete it.
  static MessageHandle* const kHandle = [] {
    auto* handle = new MessageHandle;
    --num_live_handles;
    return handle;
  }();
  kHandle->json = As<Model>(backend)->backend_config;
  *backend_config = As<TRITONSERVER_Message>(kHandle);
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading(
    TRITONBACKEND_BackendAttribute* backend_attributes, bool enabled) {
  *As<bool>(backend_attributes) = enabled;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
    TRITONBACKEND_BackendAttribute*, const TRITONSERVER_InstanceGroupKind, const uint64_t,
    const uint64_t*, const uint64_t) {
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelName(TRITONBACKEND_Model* model, const char** name) {
  *name = As<Model>(model)->name.c_str();
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelVersion(TRITONBACKEND_Model* model, uint64_t* version) {
  *version = As<Model>(model)->version;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelRepository(TRITONBACKEND_Model* model,
                                                  TRITONBACKEND_ArtifactType* artifact_type,
                                                  const char** location) {
  *artifact_type = TRITONBACKEND_ARTIFACT_FILESYSTEM;
  *location = As<Model>(model)->directory.c_str();
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelConfig(TRITONBACKEND_Model* model, const uint32_t,
                                              TRITONSERVER_Message** model_config) {
  const std::string& config = As<Model>(model)->config;
  return TRITONSERVER_MessageNewFromSerializedJson(model_config, config.data(), config.size());
}
TRITONSERVER_Error* TRITONBACKEND_ModelAutoCompleteConfig(TRITONBACKEND_Model* model,
                                                          bool* auto_complete_config) {
  *auto_complete_config = As<Model>(model)->may_complete;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelSetConfig(TRITONBACKEND_Model* model, const uint32_t,
                                                 TRITONSERVER_Message* model_config) {
  As<Model>(model)->config = As<MessageHandle>(model_config)->json;
  ++As<Model>(model)->num_set_config;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelServer(TRITONBACKEND_Model*, TRITONSERVER_Server** server) {
  *server = nullptr;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelState(TRITONBACKEND_Model* model, void** state) {
  *state = As<Model>(model)->state;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelSetState(TRITONBACKEND_Model* model, void* state) {
  As<Model>(model)->state = state;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceName(TRITONBACKEND_ModelInstance* instance,
                                                    const char** name) {
  *name = As<Instance>(instance)->name.c_str();
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceKind(TRITONBACKEND_ModelInstance*,
                                                    TRITONSERVER_InstanceGroupKind* kind) {
  *kind = TRITONSERVER_INSTANCEGROUPKIND_CPU;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceDeviceId(TRITONBACKEND_ModelInstance*,
                                                        int32_t* device_id) {
  *device_id = 0;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceModel(TRITONBACKEND_ModelInstance* instance,
                                                     TRITONBACKEND_Model** model) {
  *model = As<Instance>(instance)->model->handle();
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceState(TRITONBACKEND_ModelInstance* instance,
                                                     void** state) {
  *state = As<Instance>(instance)->state;
  return nullptr;
}
TRITONSERVER_Error* TRITONBACKEND_ModelInstanceSetState(TRITONBACKEND_ModelInstance* instance,
                                                        void* state) {
  As<Instance>(instance)->state = state;
  return nullptr;
}

}  // extern "C"
