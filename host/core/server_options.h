// The options of a server (TRITONSERVER_ServerOptions). Plain data: the setters are in
// capi/server_options.cc, server.cc uses the values. [one thread at a time]
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "host/core/handle/handle_cast.h"
#include "nereid/status.h"
#include "triton/core/tritonserver.h"

namespace nereid::core {

enum class ModelControlMode { kNone = 0, kPoll = 1, kExplicit = 2 };

// Settings of one backend or host policy, in the given order; a later value of a key overrides an
// earlier one.
using SettingList = std::vector<std::pair<std::string, std::string>>;

struct ServerOptions {
  std::string server_id = "triton";
  std::vector<std::string> repository_paths;
  ModelControlMode control_mode = ModelControlMode::kPoll;  // the C API's default
  std::vector<std::string> startup_models;
  bool strict_model_config = true;  // the C API's default; true: backends do not complete configs
  std::string model_config_name;    // <model>/configs/<name>.pbtxt is preferred when set
  bool exit_on_error = true;
  bool strict_readiness = true;
  bool model_namespacing = false;
  bool enable_peer_access = true;
  unsigned exit_timeout_secs = 30;
  unsigned model_load_thread_count = 4;
  unsigned model_load_retry_count = 0;
  unsigned buffer_manager_thread_count = 0;

  std::string backend_directory;  // empty: the one installed next to the library, then Triton's
  std::string repo_agent_directory = "/opt/tritonserver/repoagents";
  std::string cache_directory = "/opt/tritonserver/caches";
  std::map<std::string, SettingList> backend_configs;  // "" holds the settings of every backend
  std::map<std::string, SettingList> host_policies;
  std::map<std::string, std::string> cache_configs;  // name -> JSON

  bool rate_limit = false;
  struct RateLimiterResource {
    std::string name;
    size_t count;
    int device;
  };
  std::vector<RateLimiterResource> rate_limiter_resources;
  struct DeviceLimit {
    TRITONSERVER_InstanceGroupKind kind;
    int device;
    double fraction;
  };
  std::vector<DeviceLimit> device_limits;

  uint64_t pinned_memory_pool_byte_size = uint64_t{1} << 28;
  std::map<int, uint64_t> cuda_memory_pool_byte_size;
  std::map<int, uint64_t> cuda_virtual_address_size;
  double min_compute_capability = 6;

  bool metrics = true;
  bool gpu_metrics = true;
  bool cpu_metrics = true;
  uint64_t metrics_interval_ms = 2000;
  std::map<std::string, SettingList> metrics_config;
};

// UNSUPPORTED names an option that this server does not implement. Options that only tune
// performance (pool sizes, numbers of copy threads, peer access) or name directories of agents and
// caches are accepted, and ignored where they do not apply.
Status CheckSupported(const ServerOptions& options);

}  // namespace nereid::core

NEREID_HANDLE(TRITONSERVER_ServerOptions, nereid::core::ServerOptions);
