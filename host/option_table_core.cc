// Flags of the core. The core itself rejects, when the server starts, options that it does not
// support.
#include <array>
#include <climits>

#include "host/option_table.h"
#include "host/option_values.h"

namespace nereid {
namespace {

using Text = const std::string&;

// Stores a setter of the C API with its arguments, to be called when the core's options are
// created.
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
// Parses "<gpu>:<bytes>".
template <auto setter, typename Size>
Status DeferGpuSize(Options& options, Text text) {
  NEREID_ASSIGN_OR_RETURN(const auto pair, SplitValue(text, ':'));
  NEREID_ASSIGN_OR_RETURN(const int64_t gpu, ParseIntValue(pair.first, 0, 1023));
  NEREID_ASSIGN_OR_RETURN(const int64_t bytes, ParseIntValue(pair.second, 0));
  return Defer(options, setter, static_cast<int>(gpu), static_cast<Size>(bytes));
}
// Parses "<name>,<key>=<value>".
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

// Parses "<name>:<count>[:<device>]".
Status ApplyRateLimitResource(Options& options, Text text) {
  NEREID_ASSIGN_OR_RETURN(const auto pair, SplitValue(text, ':'));
  const size_t colon = pair.second.find(':');
  NEREID_ASSIGN_OR_RETURN(const int64_t count, ParseIntValue(pair.second.substr(0, colon), 1));
  int64_t device = -1;  // all devices
  if (colon != std::string::npos) {
    NEREID_ASSIGN_OR_RETURN(device, ParseIntValue(pair.second.substr(colon + 1), 0, 1023));
  }
  return Defer(options, TRITONSERVER_ServerOptionsAddRateLimiterResource, pair.first,
               static_cast<size_t>(count), static_cast<int>(device));
}

// Parses "<gpu>:<fraction>".
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

const Flag kCoreFlags[] = {
    {kRepository, "--model-repository", "path",
     "The path of a model repository. The flag may be given several times.", &ApplyRepository},
    {kRepository, "--model-store", "path", "The same as --model-repository.", &ApplyRepository},
    {kRepository, "--model-control-mode", "none|poll|explicit",
     "With none, the server loads every model at start and ignores later changes. With poll, it "
     "follows changes of the repositories. With explicit, it loads the models of --load-model at "
     "start and then those that clients request. Default: none.",
     &ApplyControlMode},
    {kRepository, "--repository-poll-secs", "integer",
     "The number of seconds between two polls of the repositories. With 0 or less the server does "
     "not poll. Default: 15.",
     [](Options& options, Text text) {
       NEREID_ASSIGN_OR_RETURN(options.repository_poll_s, ParseIntValue(text, INT_MIN, INT_MAX));
       return Status::Ok();
     }},
    {kRepository, "--load-model", "name",
     "The name of a model to load at start in explicit mode. The flag may be given several times; "
     "* means every model.",
     [](Options& options, Text text) {
       options.startup_models.push_back(text);
       return Status::Ok();
     }},
    {kRepository, "--disable-auto-complete-config", "",
     "Backends may not complete model configurations.",
     [](Options& options, Text) {
       options.disable_auto_complete = true;
       return Status::Ok();
     }},
    {kRepository, "--strict-model-config", "boolean",
     "Deprecated; true has the effect of --disable-auto-complete-config. Default: false.",
     &ApplyStrictConfig},
    {kRepository, "--model-config-name", "name",
     "The server reads <model>/configs/<name>.pbtxt if that file exists, and config.pbtxt "
     "otherwise.",
     &ApplyConfigName},
    {kRepository, "--model-load-thread-count", "integer",
     "The number of models that are loaded concurrently. Default: 4.",
     &DeferInt<TRITONSERVER_ServerOptionsSetModelLoadThreadCount, unsigned, 1>},
    {kRepository, "--model-load-wait-secs", "integer",
     "A load that takes longer than this number of seconds no longer counts against "
     "--model-load-thread-count, so that other models can be loaded. Further loads and unloads of "
     "its model are refused until it ends. Default: 60.",
     [](Options& options, Text text) {
       NEREID_ASSIGN_OR_RETURN(options.model_load_wait_s, ParseIntValue(text, 0, INT32_MAX));
       return Status::Ok();
     }},
    {kRepository, "--model-load-retry-count", "integer",
     "The number of further attempts after a model failed to load. Default: 0.",
     &DeferInt<TRITONSERVER_ServerOptionsSetModelLoadRetryCount, unsigned, 0>},
    {kRepository, "--model-namespacing", "boolean",
     "Models of different repositories may have the same name. Default: false.",
     &DeferBool<TRITONSERVER_ServerOptionsSetModelNamespacing>},
    {kRepository, "--repoagent-directory", "path",
     "The folder of the repository agents. Default: the folder repoagents next to bin.",
     [](Options& options, Text text) {
       options.repoagent_directory = text;
       return Status::Ok();
     }},

    {kServer, "--spin-us", "integer",
     "The number of microseconds for which threads poll for work before they sleep while the "
     "server is busy. Python models that call other models poll four times as long. With 0 threads "
     "never poll. Default: 50.",
     [](Options& options, Text text) {
       NEREID_ASSIGN_OR_RETURN(options.spin_us, ParseIntValue(text, 0, 1000));
       return Status::Ok();
     }},
    {kServer, "--id", "name", "The name of this server. Default: triton.",
     &DeferText<TRITONSERVER_ServerOptionsSetServerId>},
    {kServer, "--exit-on-error", "boolean",
     "The server ends with status 1 if a repository does not exist or a model fails to load at "
     "start. Default: true.",
     [](Options& options, Text text) {
       NEREID_ASSIGN_OR_RETURN(options.exit_on_error, ParseBoolValue(text));
       return Defer(options, TRITONSERVER_ServerOptionsSetExitOnError, options.exit_on_error);
     }},
    {kServer, "--exit-timeout-secs", "integer",
     "The number of seconds for which a stopping server waits for requests in flight. Default: 30.",
     [](Options& options, Text text) {
       NEREID_ASSIGN_OR_RETURN(options.exit_timeout_s, ParseIntValue(text, 0, INT32_MAX));
       return Status::Ok();
     }},
    {kServer, "--strict-readiness", "boolean",
     "The server is ready only if every model is ready. Default: true.",
     &DeferBool<TRITONSERVER_ServerOptionsSetStrictReadiness>},
    {kServer, "--rate-limit", "off|execution_count",
     "With execution_count, the rate limiter limits executions by the resources that model "
     "instances require. Default: off.",
     &ApplyRateLimit},
    {kServer, "--rate-limit-resource", "name:count[:device]",
     "The available amount of a resource of the rate limiter.", &ApplyRateLimitResource},
    {kServer, "--cache-config", "cache,key=value", "Sets one setting of a response cache.",
     &ApplyCacheConfig},
    {kServer, "--cache-directory", "path",
     "The folder of the response caches. Default: the folder caches next to bin.",
     [](Options& options, Text text) {
       options.cache_directory = text;
       return Status::Ok();
     }},
    {kServer, "--response-cache-byte-size", "integer",
     "Deprecated form of --cache-config local,size=<integer>. Default: 0.", &ApplyOldCacheSize},

    {kBackend, "--backend-directory", "path",
     "The folder in which the server looks for backends before its own folder. Default: the folder "
     "backends next to bin.",
     [](Options& options, Text text) {
       options.backend_directory = text;
       return Status::Ok();
     }},
    {kBackend, "--backend-config", "backend,key=value",
     "Sets one setting of a backend, or of all backends if no backend is named.",
     &DeferSetting<TRITONSERVER_ServerOptionsSetBackendConfig>},
    {kBackend, "--host-policy", "policy,key=value",
     "Sets numa-node or cpu-cores of the model instances with this host policy.",
     &DeferSetting<TRITONSERVER_ServerOptionsSetHostPolicy>},
    {kBackend, "--pinned-memory-pool-byte-size", "integer",
     "The size of the pool of pinned memory in bytes; 0 disables the pool. Default: 268435456.",
     &DeferInt<TRITONSERVER_ServerOptionsSetPinnedMemoryPoolByteSize, uint64_t, 0>},
    {kBackend, "--cuda-memory-pool-byte-size", "gpu:integer",
     "The size of the memory pool of a GPU in bytes. Default: 67108864 for each GPU.",
     &DeferGpuSize<TRITONSERVER_ServerOptionsSetCudaMemoryPoolByteSize, uint64_t>},
    {kBackend, "--cuda-virtual-address-size", "gpu:integer",
     "The maximum size in bytes of a growable sequence state on a GPU. Default: 1 GiB for each "
     "GPU.",
     &DeferGpuSize<TRITONSERVER_ServerOptionsSetCudaVirtualAddressSize, size_t>},
    {kBackend, "--enable-peer-access", "boolean",
     "GPUs may access the memory of each other. Default: true.",
     &DeferBool<TRITONSERVER_ServerOptionsSetEnablePeerAccess>},
    {kBackend, "--min-supported-compute-capability", "number",
     "The server does not use GPUs with a lower compute capability.", &ApplyComputeCapability},
    {kBackend, "--model-load-gpu-limit", "gpu:fraction",
     "The server loads no model on a GPU if more than this fraction of its memory is in use.",
     &ApplyGpuLimit},
    {kBackend, "--buffer-manager-thread-count", "integer",
     "Accepted for compatibility; it has no effect.",
     &DeferInt<TRITONSERVER_ServerOptionsSetBufferManagerThreadCount, unsigned, 0>},
};

}  // namespace

std::span<const Flag> CoreFlags() {
  return kCoreFlags;
}

}  // namespace nereid
