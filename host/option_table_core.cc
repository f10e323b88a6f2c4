// Flags of the core. What the core does not do yet it refuses itself, by name, when the server
// starts.
#include <array>
#include <climits>

#include "host/option_table.h"
#include "host/option_values.h"

namespace nereid {
namespace {

using Text = const std::string&;

// Leaves a setter of the C API, with its arguments, for the moment when the core's options are
// made.
template <typename Setter, typename... Args>
Status Defer(Options& options, Setter setter, Args... args) {
  options.core_settings.push_back(
      [setter, args...](ServerOptions& core) { return core.Set(setter, args...); });
  return Status::Ok();
}

template <auto setter>
Status DeferBool(Options& options, Text text) {
  NEREID_ASSIGN_OR_RETURN(const bool value, ParseBoolValue(text));
  return Defer(options, setter, value);
}
template <auto setter>
Status DeferText(Options& options, Text text) {
  return Defer(options, setter, text);
}
template <auto setter, typename Int, int64_t min>
Status DeferInt(Options& options, Text text) {
  constexpr uint64_t kMax = std::numeric_limits<Int>::max();
  NEREID_ASSIGN_OR_RETURN(
      const int64_t value,
      ParseIntValue(text, min, static_cast<int64_t>(std::min<uint64_t>(kMax, INT64_MAX))));
  return Defer(options, setter, static_cast<Int>(value));
}
// "<gpu>:<bytes>"
template <auto setter, typename Size>
Status DeferGpuSize(Options& options, Text text) {
  NEREID_ASSIGN_OR_RETURN(const auto pair, SplitValue(text, ':'));
  NEREID_ASSIGN_OR_RETURN(const int64_t gpu, ParseIntValue(pair.first, 0, 1023));
  NEREID_ASSIGN_OR_RETURN(const int64_t bytes, ParseIntValue(pair.second, 0));
  return Defer(options, setter, static_cast<int>(gpu), static_cast<Size>(bytes));
}
// "<name>,<key>=<value>"
template <auto setter>
Status DeferSetting(Options& options, Text text) {
  NEREID_ASSIGN_OR_RETURN(const NamedSetting setting, ParseNamedSetting(text));
  return Defer(options, setter, setting.name, setting.key, setting.value);
}

Status ApplyControlMode(Options& options, Text text) {
  constexpr const char* kNames[] = {"none", "poll", "explicit"};
  constexpr TRITONSERVER_ModelControlMode kModes[] = {TRITONSERVER_MODEL_CONTROL_NONE,
                                                      TRITONSERVER_MODEL_CONTROL_POLL,
                                                      TRITONSERVER_MODEL_CONTROL_EXPLICIT};
  NEREID_ASSIGN_OR_RETURN(const size_t choice, ParseChoice(text, kNames));
  options.control_mode = kModes[choice];
  return Status::Ok();
}

Status ApplyRateLimit(Options& options, Text text) {
  constexpr const char* kNames[] = {"off", "execution_count"};
  constexpr TRITONSERVER_RateLimitMode kModes[] = {TRITONSERVER_RATE_LIMIT_OFF,
                                                   TRITONSERVER_RATE_LIMIT_EXEC_COUNT};
  NEREID_ASSIGN_OR_RETURN(const size_t choice, ParseChoice(text, kNames));
  return Defer(options, TRITONSERVER_ServerOptionsSetRateLimiterMode, kModes[choice]);
}

// "<name>:<count>[:<device>]"
Status ApplyRateLimitResource(Options& options, Text text) {
  NEREID_ASSIGN_OR_RETURN(const auto pair, SplitValue(text, ':'));
  const size_t colon = pair.second.find(':');
  NEREID_ASSIGN_OR_RETURN(const int64_t count, ParseIntValue(pair.second.substr(0, colon), 1));
  int64_t device = -1;  // every device
  if (colon != std::string::npos) {
    NEREID_ASSIGN_OR_RETURN(device, ParseIntValue(pair.second.substr(colon + 1), 0, 1023));
  }
  return Defer(options, TRITONSERVER_ServerOptionsAddRateLimiterResource, pair.first,
               static_cast<size_t>(count), static_cast<int>(device));
}

// "<gpu>:<fraction>"
Status ApplyGpuLimit(Options& options, Text text) {
  NEREID_ASSIGN_OR_RETURN(const auto pair, SplitValue(text, ':'));
  if (const Result<int64_t> any = ParseIntValue(pair.first, INT64_MIN); any.ok() && *any < 0) {
    return InvalidArgError("expects device ID >= 0, got ", *any);
  }
  NEREID_ASSIGN_OR_RETURN(const int64_t gpu, ParseIntValue(pair.first, 0, 1023));
  NEREID_ASSIGN_OR_RETURN(const double fraction, ParseDoubleValue(pair.second));
  return Defer(options, TRITONSERVER_ServerOptionsSetModelLoadDeviceLimit,
               TRITONSERVER_INSTANCEGROUPKIND_GPU, static_cast<int>(gpu), fraction);
}

Status ApplyCacheConfig(Options& options, Text text) {
  NEREID_ASSIGN_OR_RETURN(const NamedSetting setting, ParseNamedSetting(text));
  if (setting.name.empty())
    return InvalidArgError("expected <cache>,<key>=<value>, got '", text, "'");
  options.cache_settings[setting.name][setting.key] = setting.value;
  return Status::Ok();
}

Status ApplyConfigName(Options& options, Text text) {
  if (text.empty()) return InvalidArgError("expected a name, got ''");
  return DeferText<TRITONSERVER_ServerOptionsSetModelConfigName>(options, text);
}

Status ApplyOldCacheSize(Options& options, Text text) {
  NEREID_ASSIGN_OR_RETURN(options.old_cache_size, ParseIntValue(text, 0));
  return Status::Ok();
}

Status ApplyStrictConfig(Options& options, Text text) {
  NEREID_ASSIGN_OR_RETURN(options.strict_model_config, ParseBoolValue(text));
  options.has_strict_model_config = true;
  return Status::Ok();
}

Status ApplyComputeCapability(Options& options, Text text) {
  NEREID_ASSIGN_OR_RETURN(const double value, ParseDoubleValue(text));
  return Defer(options, TRITONSERVER_ServerOptionsSetMinSupportedComputeCapability, value);
}

Status ApplyRepository(Options& options, Text text) {
  options.repositories.push_back(text);
  return Status::Ok();
}

constexpr std::string_view kRepository = "Model repository";
constexpr std::string_view kServer = "Server";
constexpr std::string_view kBackend = "Backends and memory";

const Flag kFlags[] = {
    {kRepository, "--model-repository", "path", "A folder of models; may be given several times.",
     &ApplyRepository},
    {kRepository, "--model-store", "path", "The same as --model-repository.", &ApplyRepository},
    {kRepository, "--model-control-mode", "none|poll|explicit",
     "none: load every model at start, then leave them. poll: follow changes of the repository. "
     "explicit: load what --load-model names, then what clients ask for. Default: none.",
     &ApplyControlMode},
    {kRepository, "--repository-poll-secs", "integer",
     "Seconds between two polls; 0 and below: never. Default: 15.",
     [](Options& options, Text text) {
       NEREID_ASSIGN_OR_RETURN(options.repository_poll_s, ParseIntValue(text, INT_MIN, INT_MAX));
       return Status::Ok();
     }},
    {kRepository, "--load-model", "name",
     "A model to load at start, in explicit mode; may be given several times; * is every model.",
     [](Options& options, Text text) {
       options.startup_models.push_back(text);
       return Status::Ok();
     }},
    {kRepository, "--disable-auto-complete-config", "",
     "Backends do not complete model configurations.",
     [](Options& options, Text) {
       options.disable_auto_complete = true;
       return Status::Ok();
     }},
    {kRepository, "--strict-model-config", "boolean",
     "Old form: true is --disable-auto-complete-config. Default: false.", &ApplyStrictConfig},
    {kRepository, "--model-config-name", "name",
     "Use <model>/configs/<name>.pbtxt where it exists, else config.pbtxt.", &ApplyConfigName},
    {kRepository, "--model-load-thread-count", "integer", "Models loaded at a time. Default: 4.",
     &DeferInt<TRITONSERVER_ServerOptionsSetModelLoadThreadCount, unsigned, 1>},
    {kRepository, "--model-load-retry-count", "integer",
     "Further attempts after a failed load. Default: 0.",
     &DeferInt<TRITONSERVER_ServerOptionsSetModelLoadRetryCount, unsigned, 0>},
    {kRepository, "--model-namespacing", "boolean",
     "Models of different repositories may have the same name. Default: false.",
     &DeferBool<TRITONSERVER_ServerOptionsSetModelNamespacing>},
    {kRepository, "--repoagent-directory", "path",
     "Folder of repository agents. Default: repoagents beside bin.",
     [](Options& options, Text text) {
       options.repoagent_directory = text;
       return Status::Ok();
     }},

    {kServer, "--spin-us", "integer",
     "How long a busy server's threads look for work before they sleep, where that pays; Python "
     "models that call others look four times as long; 0: never. Default: 50.",
     [](Options& options, Text text) {
       NEREID_ASSIGN_OR_RETURN(options.spin_us, ParseIntValue(text, 0, 1000));
       return Status::Ok();
     }},
    {kServer, "--id", "name", "Name of this server. Default: triton.",
     &DeferText<TRITONSERVER_ServerOptionsSetServerId>},
    {kServer, "--exit-on-error", "boolean",
     "End with status 1 when a repository is not there or a model fails to load at start. Default: "
     "true.",
     &DeferBool<TRITONSERVER_ServerOptionsSetExitOnError>},
    {kServer, "--exit-timeout-secs", "integer",
     "Seconds that requests in flight get when the server stops. Default: 30.",
     [](Options& options, Text text) {
       NEREID_ASSIGN_OR_RETURN(options.exit_timeout_s, ParseIntValue(text, 0, INT32_MAX));
       return Status::Ok();
     }},
    {kServer, "--strict-readiness", "boolean", "Ready only when every model is. Default: true.",
     &DeferBool<TRITONSERVER_ServerOptionsSetStrictReadiness>},
    {kServer, "--rate-limit", "off|execution_count", "Default: off.", &ApplyRateLimit},
    {kServer, "--rate-limit-resource", "name:count[:device]",
     "Amount of a resource of the rate limiter.", &ApplyRateLimitResource},
    {kServer, "--cache-config", "cache,key=value", "A setting of a response cache.",
     &ApplyCacheConfig},
    {kServer, "--cache-directory", "path", "Folder of caches. Default: caches beside bin.",
     [](Options& options, Text text) {
       options.cache_directory = text;
       return Status::Ok();
     }},
    {kServer, "--response-cache-byte-size", "integer",
     "Old form of --cache-config local,size=<integer>. Default: 0.", &ApplyOldCacheSize},

    {kBackend, "--backend-directory", "path",
     "Folder of backends, searched before the server's own. Default: backends beside bin.",
     [](Options& options, Text text) {
       options.backend_directory = text;
       return Status::Ok();
     }},
    {kBackend, "--backend-config", "backend,key=value",
     "A setting of a backend, or of all when no backend is named.",
     &DeferSetting<TRITONSERVER_ServerOptionsSetBackendConfig>},
    {kBackend, "--host-policy", "policy,key=value",
     "numa-node or cpu-cores of the instances that follow a policy.",
     &DeferSetting<TRITONSERVER_ServerOptionsSetHostPolicy>},
    {kBackend, "--pinned-memory-pool-byte-size", "integer", "Default: 268435456; 0 is none.",
     &DeferInt<TRITONSERVER_ServerOptionsSetPinnedMemoryPoolByteSize, uint64_t, 0>},
    {kBackend, "--cuda-memory-pool-byte-size", "gpu:integer", "Default: 67108864 a GPU.",
     &DeferGpuSize<TRITONSERVER_ServerOptionsSetCudaMemoryPoolByteSize, uint64_t>},
    {kBackend, "--cuda-virtual-address-size", "gpu:integer",
     "How far a growable state may grow. Default: 1 GiB a GPU.",
     &DeferGpuSize<TRITONSERVER_ServerOptionsSetCudaVirtualAddressSize, size_t>},
    {kBackend, "--enable-peer-access", "boolean", "GPUs may read each other. Default: true.",
     &DeferBool<TRITONSERVER_ServerOptionsSetEnablePeerAccess>},
    {kBackend, "--min-supported-compute-capability", "number", "Older GPUs are not used.",
     &ApplyComputeCapability},
    {kBackend, "--model-load-gpu-limit", "gpu:fraction",
     "No model is loaded on a GPU of which more is in use.", &ApplyGpuLimit},
    {kBackend, "--buffer-manager-thread-count", "integer", "Accepted; without effect.",
     &DeferInt<TRITONSERVER_ServerOptionsSetBufferManagerThreadCount, unsigned, 0>},
};

}  // namespace

std::span<const Flag> CoreFlags() {
  return kFlags;
}

}  // namespace nereid
