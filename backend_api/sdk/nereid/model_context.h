/// \file
/// Properties of a model and of an instance that the host provides: read once at load, constant
/// afterwards. The SDK creates them; backends use Model::context() and ModelInstance::context().
/// [any thread]
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "nereid/error.h"
#include "nereid/handles.h"
#include "nereid/model_config.h"
#include "nereid/server.h"
#include "triton/core/tritonbackend.h"

namespace nereid {

class ModelContext {
 public:
  static Result<ModelContext> Of(TRITONBACKEND_Model* handle) {
    ModelContext context;
    context.handle_ = handle;
    const char* text = nullptr;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ModelName(handle, &text)));
    context.name_ = text;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ModelVersion(handle, &context.version_)));
    TRITONBACKEND_ArtifactType artifact_type = TRITONBACKEND_ARTIFACT_FILESYSTEM;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ModelRepository(handle, &artifact_type, &text)));
    context.directory_ = text;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ModelServer(handle, &context.server_)));
    NEREID_RETURN_IF_ERROR(context.ReadBackend());
    NEREID_RETURN_IF_ERROR(context.ReadConfig());
    return context;
  }

  TRITONBACKEND_Model* handle() const { return handle_; }
  const std::string& name() const { return name_; }
  uint64_t version() const { return version_; }
  /// The folder of config.pbtxt. version_directory() is the folder of this version below it.
  const std::filesystem::path& directory() const { return directory_; }
  std::filesystem::path version_directory() const { return directory_ / std::to_string(version_); }
  const ModelConfig& config() const { return config_; }
  const ConfigParameters& parameters() const { return config_.parameters(); }

  /// The folder that contains the backend's shared library.
  const std::filesystem::path& backend_directory() const { return backend_directory_; }
  /// The `--backend-config` settings of this backend: {"cmdline":{"<key>":"<value>"}}.
  const Json& backend_config() const { return backend_config_; }
  /// The same as typed values, also those that every backend gets (`backend-directory`, ...).
  ConfigParameters backend_options() const { return ConfigParameters::OfBackend(backend_config_); }
  /// The host, for calling other models.
  Server server() const { return Server::Borrow(server_); }

  /// False if the host runs with --disable-auto-complete-config.
  Result<bool> MayAutoComplete() const {
    bool may_complete = false;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ModelAutoCompleteConfig(handle_, &may_complete)));
    return may_complete;
  }
  /// Passes a changed configuration to the host and reads back the result. Allowed only while the
  /// model is initialised. [load thread]
  Status SetConfig(const Json& config) {
    const std::string text = config.Dump();
    TRITONSERVER_Message* message = nullptr;
    NEREID_RETURN_IF_ERROR(
        ToStatus(TRITONSERVER_MessageNewFromSerializedJson(&message, text.data(), text.size())));
    const Message owner(message);
    NEREID_RETURN_IF_ERROR(
        ToStatus(TRITONBACKEND_ModelSetConfig(handle_, kConfigVersion, message)));
    return ReadConfig();
  }

 private:
  static constexpr uint32_t kConfigVersion = 1;

  ModelContext() = default;

  Status ReadConfig() {
    TRITONSERVER_Message* message = nullptr;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ModelConfig(handle_, kConfigVersion, &message)));
    const Message owner(message);
    NEREID_ASSIGN_OR_RETURN(const std::string_view text, owner.Json());
    NEREID_ASSIGN_OR_RETURN(config_, ModelConfig::Parse(text));
    return {};
  }

  Status ReadBackend() {
    TRITONBACKEND_Backend* backend = nullptr;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ModelBackend(handle_, &backend)));
    TRITONBACKEND_ArtifactType artifact_type = TRITONBACKEND_ARTIFACT_FILESYSTEM;
    const char* location = nullptr;
    NEREID_RETURN_IF_ERROR(
        ToStatus(TRITONBACKEND_BackendArtifacts(backend, &artifact_type, &location)));
    backend_directory_ = location;
    TRITONSERVER_Message* message = nullptr;  // owned by the host
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_BackendConfig(backend, &message)));
    const char* base = nullptr;
    size_t size_bytes = 0;
    NEREID_RETURN_IF_ERROR(
        ToStatus(TRITONSERVER_MessageSerializeToJson(message, &base, &size_bytes)));
    NEREID_ASSIGN_OR_RETURN(backend_config_, Json::Parse({base, size_bytes}));
    return {};
  }

  TRITONBACKEND_Model* handle_ = nullptr;
  TRITONSERVER_Server* server_ = nullptr;
  std::string name_;
  uint64_t version_ = 0;
  std::filesystem::path directory_, backend_directory_;
  Json backend_config_;
  ModelConfig config_;
};

class InstanceContext {
 public:
  /// `model` outlives the instance.
  static Result<InstanceContext> Of(TRITONBACKEND_ModelInstance* handle,
                                    const ModelContext& model) {
    InstanceContext context(handle, model);
    const char* name = nullptr;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ModelInstanceName(handle, &name)));
    context.name_ = name;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_ModelInstanceKind(handle, &context.kind_)));
    NEREID_RETURN_IF_ERROR(
        ToStatus(TRITONBACKEND_ModelInstanceDeviceId(handle, &context.device_id_)));
    return context;
  }

  TRITONBACKEND_ModelInstance* handle() const { return handle_; }
  const ModelContext& model() const { return *model_; }
  const std::string& name() const { return name_; }
  TRITONSERVER_InstanceGroupKind kind() const { return kind_; }
  int32_t device_id() const { return device_id_; }

 private:
  InstanceContext(TRITONBACKEND_ModelInstance* handle, const ModelContext& model)
      : handle_(handle), model_(&model) {}

  TRITONBACKEND_ModelInstance* handle_;
  const ModelContext* model_;
  std::string name_;
  TRITONSERVER_InstanceGroupKind kind_ = TRITONSERVER_INSTANCEGROUPKIND_CPU;
  int32_t device_id_ = 0;
};

}  // namespace nereid
