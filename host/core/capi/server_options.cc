// TRITONSERVER_ServerOptions: the setters store values; the server validates them when it starts.
// [one thread at a time]
#include "host/core/server_options.h"

#include <nlohmann/json.hpp>

#include "base/host_binding.h"
#include "base/json_reader.h"
#include "host/core/capi/handles.h"
#include "host/core/handle/handle_cast.h"

using nereid::Status;
using nereid::core::FromHandle;
using nereid::core::ServerOptions;

namespace {

// Runs `set` on the options behind the handle.
template <typename Set>
TRITONSERVER_Error* Apply(const char* function, TRITONSERVER_ServerOptions* options, Set&& set) {
  return nereid::core::AtCBoundary([&]() -> Status {
    if (options == nullptr) return nereid::InvalidArgError(function, ": options must not be null");
    return set(*FromHandle(options));
  });
}

// Stores `value` in a member.
template <typename Member, typename Value>
TRITONSERVER_Error* Store(const char* function, TRITONSERVER_ServerOptions* options,
                          Member ServerOptions::*member, const Value& value) {
  return Apply(function, options, [&](ServerOptions& o) {
    o.*member = value;
    return Status::Ok();
  });
}

TRITONSERVER_Error* StoreText(const char* function, TRITONSERVER_ServerOptions* options,
                              std::string ServerOptions::*member, const char* text) {
  return Store(function, options, member, text == nullptr ? "" : text);
}

using SettingLists = std::map<std::string, nereid::core::SettingList>;

TRITONSERVER_Error* AddSetting(const char* function, TRITONSERVER_ServerOptions* options,
                               SettingLists ServerOptions::*member, const char* name,
                               const char* setting, const char* value) {
  return Apply(function, options, [&](ServerOptions& o) -> Status {
    if (setting == nullptr || value == nullptr) {
      return nereid::InvalidArgError(function, ": setting and value must not be null");
    }
    (o.*member)[name == nullptr ? "" : name].emplace_back(setting, value);
    return Status::Ok();
  });
}

}  // namespace

extern "C" {

TRITONSERVER_Error* TRITONSERVER_ServerOptionsNew(TRITONSERVER_ServerOptions** options) {
  NEREID_RETURN_IF_NULL(options);
  return nereid::core::AtCBoundary([&] {
    *options = nereid::core::ToHandle(new ServerOptions);
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsDelete(TRITONSERVER_ServerOptions* options) {
  delete FromHandle(options);
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetServerId(TRITONSERVER_ServerOptions* options,
                                                          const char* server_id) {
  return StoreText(__func__, options, &ServerOptions::server_id, server_id);
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetModelRepositoryPath(
    TRITONSERVER_ServerOptions* options, const char* model_repository_path) {
  return Apply(__func__, options, [&](ServerOptions& o) -> Status {
    if (model_repository_path == nullptr || *model_repository_path == '\0') {
      return nereid::InvalidArgError("model repository: expected a path, got none");
    }
    o.repository_paths.emplace_back(model_repository_path);
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetModelControlMode(
    TRITONSERVER_ServerOptions* options, TRITONSERVER_ModelControlMode mode) {
  return Apply(__func__, options, [&](ServerOptions& o) -> Status {
    if (static_cast<uint32_t>(mode) > TRITONSERVER_MODEL_CONTROL_EXPLICIT) {
      return nereid::InvalidArgError("unknown control mode '", mode, "'");
    }
    o.control_mode = static_cast<nereid::core::ModelControlMode>(mode);
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetStartupModel(TRITONSERVER_ServerOptions* options,
                                                              const char* model_name) {
  return Apply(__func__, options, [&](ServerOptions& o) -> Status {
    if (model_name == nullptr) return nereid::InvalidArgError("start-up model: must not be null");
    o.startup_models.emplace_back(model_name);
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetStrictModelConfig(
    TRITONSERVER_ServerOptions* options, bool strict) {
  return Store(__func__, options, &ServerOptions::strict_model_config, strict);
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetModelConfigName(
    TRITONSERVER_ServerOptions* options, const char* model_config_name) {
  return StoreText(__func__, options, &ServerOptions::model_config_name, model_config_name);
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetRateLimiterMode(
    TRITONSERVER_ServerOptions* options, TRITONSERVER_RateLimitMode mode) {
  return Apply(__func__, options, [&](ServerOptions& o) -> Status {
    const uint32_t raw = nereid::core::RawEnumValue(mode);
    if (raw > TRITONSERVER_RATE_LIMIT_EXEC_COUNT) {
      return nereid::InvalidArgError("unknown rate limit mode '", static_cast<int32_t>(raw), "'");
    }
    o.rate_limit = mode != TRITONSERVER_RATE_LIMIT_OFF;
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsAddRateLimiterResource(
    TRITONSERVER_ServerOptions* options, const char* resource_name, const size_t resource_count,
    const int device) {
  return Apply(__func__, options, [&](ServerOptions& o) -> Status {
    if (resource_name == nullptr) return nereid::InvalidArgError("resource name: must not be null");
    o.rate_limiter_resources.push_back({resource_name, resource_count, device});
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetPinnedMemoryPoolByteSize(
    TRITONSERVER_ServerOptions* options, uint64_t size) {
  return Store(__func__, options, &ServerOptions::pinned_memory_pool_byte_size, size);
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetCudaMemoryPoolByteSize(
    TRITONSERVER_ServerOptions* options, int gpu_device, uint64_t size) {
  return Apply(__func__, options, [&](ServerOptions& o) {
    o.cuda_memory_pool_byte_size[gpu_device] = size;
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetCudaVirtualAddressSize(
    TRITONSERVER_ServerOptions* options, int gpu_device, size_t cuda_virtual_address_size) {
  return Apply(__func__, options, [&](ServerOptions& o) {
    o.cuda_virtual_address_size[gpu_device] = cuda_virtual_address_size;
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetResponseCacheByteSize(
    TRITONSERVER_ServerOptions* options, uint64_t size) {
  return Apply(__func__, options, [&](ServerOptions& o) {
    if (size > 0) {
      o.cache_configs["local"] = nlohmann::json({{"size", std::to_string(size)}}).dump();
    }
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetCacheConfig(TRITONSERVER_ServerOptions* options,
                                                             const char* cache_name,
                                                             const char* config_json) {
  return Apply(__func__, options, [&](ServerOptions& o) -> Status {
    if (cache_name == nullptr || config_json == nullptr) {
      return nereid::InvalidArgError("cache config: expected a name and a JSON text");
    }
    NEREID_RETURN_IF_ERROR(nereid::CheckJson(config_json, "cache config"));
    o.cache_configs[cache_name] = config_json;
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetCacheDirectory(TRITONSERVER_ServerOptions* options,
                                                                const char* cache_dir) {
  return StoreText(__func__, options, &ServerOptions::cache_directory, cache_dir);
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetMinSupportedComputeCapability(
    TRITONSERVER_ServerOptions* options, double cc) {
  return Store(__func__, options, &ServerOptions::min_compute_capability, cc);
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetExitOnError(TRITONSERVER_ServerOptions* options,
                                                             bool exit) {
  return Store(__func__, options, &ServerOptions::exit_on_error, exit);
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetStrictReadiness(
    TRITONSERVER_ServerOptions* options, bool strict) {
  return Store(__func__, options, &ServerOptions::strict_readiness, strict);
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetExitTimeout(TRITONSERVER_ServerOptions* options,
                                                             unsigned int timeout) {
  return Store(__func__, options, &ServerOptions::exit_timeout_secs, timeout);
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetBufferManagerThreadCount(
    TRITONSERVER_ServerOptions* options, unsigned int thread_count) {
  return Store(__func__, options, &ServerOptions::buffer_manager_thread_count, thread_count);
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetModelLoadThreadCount(
    TRITONSERVER_ServerOptions* options, unsigned int thread_count) {
  return Store(__func__, options, &ServerOptions::model_load_thread_count, thread_count);
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetModelLoadRetryCount(
    TRITONSERVER_ServerOptions* options, unsigned int retry_count) {
  return Store(__func__, options, &ServerOptions::model_load_retry_count, retry_count);
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetModelNamespacing(
    TRITONSERVER_ServerOptions* options, bool enable_namespace) {
  return Store(__func__, options, &ServerOptions::model_namespacing, enable_namespace);
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetEnablePeerAccess(
    TRITONSERVER_ServerOptions* options, bool enable_peer_access) {
  return Store(__func__, options, &ServerOptions::enable_peer_access, enable_peer_access);
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetMetrics(TRITONSERVER_ServerOptions* options,
                                                         bool metrics) {
  return Store(__func__, options, &ServerOptions::metrics, metrics);
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetGpuMetrics(TRITONSERVER_ServerOptions* options,
                                                            bool gpu_metrics) {
  return Store(__func__, options, &ServerOptions::gpu_metrics, gpu_metrics);
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetCpuMetrics(TRITONSERVER_ServerOptions* options,
                                                            bool cpu_metrics) {
  return Store(__func__, options, &ServerOptions::cpu_metrics, cpu_metrics);
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetMetricsInterval(
    TRITONSERVER_ServerOptions* options, uint64_t metrics_interval_ms) {
  return Store(__func__, options, &ServerOptions::metrics_interval_ms, metrics_interval_ms);
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetBackendDirectory(
    TRITONSERVER_ServerOptions* options, const char* backend_dir) {
  return StoreText(__func__, options, &ServerOptions::backend_directory, backend_dir);
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetRepoAgentDirectory(
    TRITONSERVER_ServerOptions* options, const char* repoagent_dir) {
  return StoreText(__func__, options, &ServerOptions::repo_agent_directory, repoagent_dir);
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetModelLoadDeviceLimit(
    TRITONSERVER_ServerOptions* options, const TRITONSERVER_InstanceGroupKind kind,
    const int device_id, const double fraction) {
  return Apply(__func__, options, [&](ServerOptions& o) -> Status {
    if (device_id < 0) {
      return nereid::InvalidArgError("device limit: expects device ID >= 0, got ", device_id);
    }
    if (!(fraction >= 0.0 && fraction <= 1.0)) {
      return nereid::InvalidArgError("device limit of GPU ", device_id,
                                     ": expects limit fraction to be in range [0.0, 1.0], got ",
                                     fraction);
    }
    if (kind != TRITONSERVER_INSTANCEGROUPKIND_GPU) {
      return nereid::InvalidArgError("device limit: given device kind is not supported, got: ",
                                     TRITONSERVER_InstanceGroupKindString(kind));
    }
    o.device_limits.push_back({kind, device_id, fraction});
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetBackendConfig(TRITONSERVER_ServerOptions* options,
                                                               const char* backend_name,
                                                               const char* setting,
                                                               const char* value) {
  return AddSetting(__func__, options, &ServerOptions::backend_configs, backend_name, setting,
                    value);
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetHostPolicy(TRITONSERVER_ServerOptions* options,
                                                            const char* policy_name,
                                                            const char* setting,
                                                            const char* value) {
  if (policy_name != nullptr && setting != nullptr && value != nullptr) {
    const Status status = nereid::ReadHostBinding(policy_name, {{setting, value}}).status();
    if (!status.ok()) return nereid::core::ToError(status);
  }
  return AddSetting(__func__, options, &ServerOptions::host_policies, policy_name, setting, value);
}

TRITONSERVER_Error* TRITONSERVER_ServerOptionsSetMetricsConfig(TRITONSERVER_ServerOptions* options,
                                                               const char* name,
                                                               const char* setting,
                                                               const char* value) {
  return AddSetting(__func__, options, &ServerOptions::metrics_config, name, setting, value);
}

}  // extern "C"
