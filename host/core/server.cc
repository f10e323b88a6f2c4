#include "host/core/server.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "host/core/backend/backend_search.h"
#include "host/core/backend/plugin.h"
#include "host/core/config/repository_layout.h"
#include "host/core/core_model_loader.h"
#include "host/core/model/core_services.h"
#include "host/core/model/model.h"
#include "host/core/observe/log.h"
#include "host/core/repository/agents.h"
#include "host/core/repository/model_lifecycle.h"
#include "host/core/repository/model_repository.h"
#include "host/core/request/infer_request.h"

namespace nereid::core {
namespace {

// The minimum time for destroying models and backends, even with an exit timeout of 0.
constexpr uint64_t kMinEndNs = 5'000'000'000;

constexpr uint64_t kNsPerSecond = 1'000'000'000;

// After the deadline, how often a stop looks whether only loads are left.
constexpr uint64_t kRecheckNs = 20'000'000;

// Decides when a waiting Stop logs its progress: at once, then once per second, and at its end.
class StopReport {
 public:
  // `is_wanted` is false after a failed start: then the stop is reported only if it takes longer
  // than a second.
  StopReport(uint64_t deadline_ns, bool is_wanted)
      : deadline_ns_(deadline_ns),
        is_wanted_(is_wanted),
        next_ns_(is_wanted ? 0 : SteadyNowNs() + kNsPerSecond) {}

  // The remaining seconds, rounded up; nullopt while no line is due.
  std::optional<uint64_t> IsDue(bool is_end) {
    const uint64_t now_ns = SteadyNowNs();
    if (now_ns < next_ns_ && (!is_end || !is_wanted_)) return std::nullopt;
    next_ns_ = now_ns + kNsPerSecond;
    const uint64_t left_ns = deadline_ns_ - std::min(now_ns, deadline_ns_);
    return (left_ns + kNsPerSecond - 1) / kNsPerSecond;
  }
  uint64_t next_ns() const { return next_ns_; }

 private:
  const uint64_t deadline_ns_;
  const bool is_wanted_;
  uint64_t next_ns_;
};

// Counts a model control call while it runs.
class ControlCallScope {
 public:
  explicit ControlCallScope(std::atomic<unsigned>& count) : count_(count) { ++count_; }
  ~ControlCallScope() { --count_; }
  ControlCallScope(const ControlCallScope&) = delete;
  ControlCallScope& operator=(const ControlCallScope&) = delete;

 private:
  std::atomic<unsigned>& count_;
};

// Directories searched for plug-ins: the configured one, then the one installed next to this
// library.
std::vector<std::string> PluginDirs(const std::string& given, const char* own) {
  std::vector<std::string> dirs = {given, InstalledDirectory(own)};
  std::erase(dirs, std::string());
  return dirs;
}

// Without a configured directory, Triton's directory is searched for backends that this library
// does not include.
std::vector<std::string> BackendDirs(const std::string& given) {
  if (!given.empty()) return PluginDirs(given, "backends");
  std::vector<std::string> dirs = {InstalledDirectory("backends"), "/opt/tritonserver/backends"};
  std::erase(dirs, std::string());
  return dirs;
}

// NEREID_MODEL_LOAD_WAIT_SECS, because Triton's C API has no option for it.
LoadLimits LimitsOfLoads() {
  LoadLimits limits;
  const char* const text = std::getenv("NEREID_MODEL_LOAD_WAIT_SECS");
  uint32_t seconds = 0;
  if (text != nullptr && std::from_chars(text, text + std::strlen(text), seconds).ec == std::errc())
    limits.stall_after = std::chrono::seconds(seconds);
  return limits;
}

CoreOptions ToCoreOptions(const ServerOptions& options) {
  CoreOptions core;
  core.backends.backend_dirs = BackendDirs(options.backend_directory);
  core.backends.auto_complete_config = !options.strict_model_config;
  core.backends.min_compute_capability = options.min_compute_capability;
  core.backends.settings = options.backend_configs;
  core.metrics.enabled = options.metrics;
  core.metrics.cpu = options.cpu_metrics;
  core.metrics.gpu = options.gpu_metrics;
  core.metrics.interval_ms = options.metrics_interval_ms;
  core.memory.pinned_pool_bytes = options.pinned_memory_pool_byte_size;
  core.memory.cuda_pool_bytes = options.cuda_memory_pool_byte_size;
  core.memory.peer_access = options.enable_peer_access;
  for (const auto& limit : options.device_limits) {
    core.gpu_load_limits[limit.device] = limit.fraction;
  }
  for (const auto& [name, settings] : options.metrics_config) {
    for (const auto& [key, value] : settings) {
      LatencyOptions& latencies = core.metrics.latencies;
      if (key == "counter_latencies") core.metrics.counter_latencies = value == "true";
      if (key == "histogram_latencies") latencies.histograms = value == "true";
      if (key == "summary_latencies") latencies.summaries = value == "true";
      if (key == "summary_quantiles") latencies.quantiles = ParseQuantiles(value).value();
    }
  }
  core.state_growth_limits.insert(options.cuda_virtual_address_size.begin(),
                                  options.cuda_virtual_address_size.end());
  core.host_policies = options.host_policies;
  core.rate_limit = options.rate_limit;
  for (const auto& limit : options.rate_limiter_resources) {
    core.resource_limits.push_back({limit.name, limit.count, limit.device});
  }
  return core;
}

}  // namespace

Server::Server(const ServerOptions& options)
    : options_(options), exit_timeout_secs_(options.exit_timeout_secs) {}

Result<std::unique_ptr<Server>> Server::Create(const ServerOptions& options) {
  if (options.repository_paths.empty()) {
    return InvalidArgError("--model-repository must be specified");
  }
  NEREID_RETURN_IF_ERROR(CheckSupported(options));
  std::unique_ptr<Server> server(new Server(options));
  Status started = server->Start();
  if (started.ok()) return server;
  server->was_started_ = false;
  return started;
}

Status Server::Start() {
  PluginCallScope::InstallExitHandler();
  services_ =
      std::make_unique<CoreServices>(ToHandle(&handle(Caller::kBackend)), ToCoreOptions(options_));
  NEREID_RETURN_IF_ERROR(StartCache());
  loader_ = std::make_unique<CoreModelLoader>(services_.get(), &models_);
  lifecycle_ =
      std::make_unique<ModelLifecycle>(&models_, loader_.get(), options_.model_load_thread_count,
                                       options_.model_load_retry_count, LimitsOfLoads());
  std::vector<Repository> repositories;
  std::set<std::string> paths;
  for (const std::string& path : options_.repository_paths) {
    NEREID_RETURN_IF_ERROR(CheckIsLocal(path));
    // A path that is given twice is one repository.
    if (!paths.insert(path).second) continue;
    repositories.push_back({path, {}, options_.model_namespacing});
  }
  repository_ = std::make_unique<ModelRepository>(
      std::move(repositories),
      ConfigLookup{options_.model_config_name, options_.strict_model_config}, lifecycle_.get(),
      PluginDirs(options_.repo_agent_directory, "repoagents"));
  Status started = CheckStart();
  if (started.ok()) {
    // Models may call the server while they are loaded.
    state_ = State::kReady;
    started = LoadStartupModels();
  } else {
    state_ = State::kFailed;
    if (!options_.exit_on_error) NEREID_LOG_ERROR(started.message());
  }
  if (!started.ok() && options_.exit_on_error) return started;
  LogTables();
  return Status::Ok();
}

Status Server::StartCache() {
  for (const auto& [name, config_json] : options_.cache_configs) {
    NEREID_ASSIGN_OR_RETURN(
        services_->cache,
        ResponseCache::Create(name, config_json, PluginDirs(options_.cache_directory, "caches")));
  }
  return Status::Ok();
}

// Checks the options without which no model can be loaded.
Status Server::CheckStart() const {
  const auto& names = options_.startup_models;
  if (options_.control_mode != ModelControlMode::kExplicit && !names.empty()) {
    return InvalidArgError("start-up model '", names.front(),
                           "': needs the model control mode explicit");
  }
  if (names.size() > 1 && std::count(names.begin(), names.end(), "*") > 0) {
    return InvalidArgError("Wildcard model name '*' must be the ONLY startup model if specified ",
                           "at all.");
  }
  for (const std::string& path : options_.repository_paths) {
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) continue;
    return InternalError("failed to stat file ", path,
                         std::filesystem::exists(path, ignored)
                             ? ": not a folder; pass the folder that contains the models' folders"
                             : ": no such folder; pass the one that contains the models' folders");
  }
  return Status::Ok();
}

Status Server::LoadStartupModels() {
  const auto& names = options_.startup_models;
  const bool all = options_.control_mode != ModelControlMode::kExplicit ||
                   (names.size() == 1 && names.front() == "*");
  if (!all) return repository_->LoadNamed(names);
  for (const std::string& path : options_.repository_paths) {
    const Status layout = CheckRepositoryLayout(path);
    if (layout.ok() && HasNoModelFolder(path)) {
      NEREID_LOG_WARN("model repository '", path, "' holds no model: ", kExpectedInRepository);
    }
    if (layout.ok()) continue;
    if (options_.exit_on_error) return layout;
    NEREID_LOG_WARN(layout.message());
  }
  return repository_->LoadAll();
}

Server::~Server() {
  if (has_ended_) return;
  const Status ended = End();
  if (!ended.ok()) NEREID_LOG_ERROR(ended.message());
}

Status Server::End() {
  has_ended_ = true;
  if (repository_ == nullptr)
    return Status::Ok();  // Start failed before the repository was created
  Status stopped = Stop();
  // The objects that running code uses are leaked, which is safer than destroying them.
  if (!stopped.ok()) {
    (void)services_.release();
    (void)loader_.release();
    return stopped;
  }
  repository_.reset();
  lifecycle_.reset();  // joins the load threads
  services_->reaper.WaitIdle();
  const uint64_t timeout_ns = std::max(exit_timeout_secs_ * kNsPerSecond, kMinEndNs);
  const bool backends_ended = services_->backends.FinalizeAll(timeout_ns);
  const bool cache_ended = services_->cache == nullptr ||
                           ResponseCache::Finalize(std::move(services_->cache), timeout_ns);
  if (!backends_ended) (void)services_.release();
  if (backends_ended && cache_ended && AgentChain::NumUnfinished() == 0) return Status::Ok();
  return InternalError(
      "third-party code (a backend, cache or repository agent) is still running: the process must "
      "not end by exit()");
}

Status Server::Stop() {
  std::lock_guard lock(stop_mutex_);
  if (state_ != State::kStopped) {
    if (state_ == State::kReady) state_ = State::kStopping;
    if (was_started_) NEREID_LOG_INFO("Waiting for in-flight requests to complete.");
    const uint64_t deadline_ns = SteadyNowNs() + exit_timeout_secs_ * kNsPerSecond;
    if (WaitForRequests(deadline_ns) && was_started_) {
      NEREID_LOG_INFO("All models are stopped, unloading models");
    }
    repository_->UnloadAll();
    WaitForModels(deadline_ns, std::max(deadline_ns, SteadyNowNs() + kMinEndNs));
    state_ = State::kStopped;
  }
  const std::vector<std::string> left = lifecycle_->LiveModels();
  if (left.empty()) return Status::Ok();
  std::string names;
  for (const std::string& name : left) names += StrCat(names.empty() ? "" : ", ", name);
  return InternalError("the exit timeout expired: ", left.size(),
                       " models have not ended: ", names);
}

bool Server::IsLoading() const {
  return lifecycle_ != nullptr && lifecycle_->HasLoads();
}

bool Server::WaitForRequests(uint64_t deadline_ns) const {
  StopReport report(deadline_ns, was_started_);
  while (true) {
    std::vector<std::pair<std::shared_ptr<Model>, uint64_t>> busy;
    for (auto& model : models_.All()) {
      const uint64_t num_unfinished = model->num_unfinished();
      if (num_unfinished > 0) busy.emplace_back(std::move(model), num_unfinished);
    }
    if (const auto left_s = report.IsDue(busy.empty())) {
      NEREID_LOG_INFO("Timeout ", *left_s, ": Found ", busy.size(),
                      " model versions that have in-flight inferences");
      for (const auto& [model, num_unfinished] : busy) {
        NEREID_LOG_INFO("Model '", model->name(), "' (version ", model->version(), ") has ",
                        num_unfinished, " in-flight inferences");
      }
    }
    if (busy.empty()) return true;
    if (SteadyNowNs() >= deadline_ns) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void Server::WaitForModels(uint64_t deadline_ns, uint64_t give_up_ns) const {
  StopReport report(deadline_ns, was_started_);
  unsigned num_calls = UINT_MAX;
  while (true) {
    const unsigned num_calls_before = std::exchange(num_calls, num_control_calls_);
    // Unloads the models of a load that began before the stop and has ended now.
    if (num_calls < num_calls_before) repository_->UnloadAll();
    const size_t num_alive = lifecycle_->num_alive();
    const bool is_over = num_alive == 0 && num_calls == 0;
    if (const auto left_s = report.IsDue(is_over)) {
      NEREID_LOG_INFO("Timeout ", *left_s, ": Found ", num_alive, " live models and ", num_calls,
                      " in-flight non-inference requests");
    }
    const uint64_t now_ns = SteadyNowNs();
    // Nobody knows when a load ends: it is abandoned at the deadline.
    if (is_over || now_ns >= give_up_ns ||
        (now_ns >= deadline_ns && lifecycle_->OnlyLoadsAreLeft()))
      return;
    if (num_alive == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      continue;
    }
    const uint64_t limit_ns =
        now_ns < deadline_ns ? deadline_ns : std::min(give_up_ns, now_ns + kRecheckNs);
    const uint64_t next_ns = std::min(report.next_ns(), limit_ns);
    lifecycle_->WaitUntilDestroyed(
        std::chrono::steady_clock::time_point(std::chrono::nanoseconds(next_ns)));
  }
}

bool Server::IsLive() const {
  const State state = state_;
  return state != State::kFailed && state != State::kStopped;
}

bool Server::IsReady() const {
  const State state = state_;
  if (state != State::kReady) return false;
  return !options_.strict_readiness || repository_->AllServing();
}

bool Server::IsModelReady(const std::string& name, int64_t version) const {
  const auto model = models_.Find(name, version);
  return model.ok() && model.value()->CheckReady().ok();
}

Status Server::CheckNotStopping() const {
  const State state = state_;
  const bool is_stopping = state == State::kStopping || state == State::kStopped;
  return is_stopping ? UnavailableError("Server exiting") : Status::Ok();
}

Status Server::CheckServing() const {
  return CheckServing(Caller::kBackend);
}

Status Server::CheckServing(Caller caller) const {
  const State state = state_;
  if (state == State::kReady) return Status::Ok();
  if (state == State::kStopping && caller == Caller::kBackend) return Status::Ok();
  return UnavailableError("Server not ready");
}

Status Server::CheckAcceptsRequest(const InferRequest& request, Caller caller) const {
  const State state = state_;
  if (state == State::kReady) return Status::Ok();
  if (state == State::kStopping && caller == Caller::kClient) {
    return request.target()->CheckContinuesSequence(request);
  }
  return CheckServing(caller);
}

Status Server::CheckExplicit() const {
  if (state_ != State::kReady) return UnavailableError("Server not ready");
  if (options_.control_mode == ModelControlMode::kExplicit) return Status::Ok();
  return UnavailableError("explicit model load / unload is not allowed if polling is enabled");
}

Status Server::LoadModel(const std::string& name, const std::vector<const Parameter*>& parameters) {
  const ControlCallScope call(num_control_calls_);
  NEREID_RETURN_IF_ERROR(CheckExplicit());
  return repository_->Load(name, parameters);
}

Status Server::UnloadModel(const std::string& name, bool dependents) {
  const ControlCallScope call(num_control_calls_);
  NEREID_RETURN_IF_ERROR(CheckExplicit());
  return repository_->Unload(name, dependents);
}

Status Server::RegisterRepository(const std::string& path,
                                  const std::vector<const Parameter*>& name_mapping) {
  if (options_.control_mode != ModelControlMode::kExplicit) {
    return UnsupportedError(
        "repository registration is not allowed if model control mode is not EXPLICIT");
  }
  Repository repository{path, {}, options_.model_namespacing};
  for (const Parameter* mapping : name_mapping) {
    const auto* name = std::get_if<std::string>(&mapping->value());
    if (name == nullptr || name->empty()) {
      return InvalidArgError("name mapping of folder '", mapping->name(), "': expected a name");
    }
    const auto conflicts = [&](const auto& other) { return other.second == *name; };
    if (std::any_of(repository.name_mapping.begin(), repository.name_mapping.end(), conflicts)) {
      return InvalidArgError("failed to register '", path,
                             "', there is a conflicting mapping for '", *name, "'");
    }
    repository.name_mapping.emplace(mapping->name(), *name);
  }
  return repository_->Register(std::move(repository));
}

Status Server::UnregisterRepository(const std::string& path) {
  if (options_.control_mode != ModelControlMode::kExplicit) {
    return UnsupportedError(
        "repository unregistration is not allowed if model control mode is not EXPLICIT");
  }
  return repository_->Unregister(path);
}

Status Server::PollRepositories() {
  const ControlCallScope call(num_control_calls_);
  if (state_ != State::kReady) return UnavailableError("Server not ready");
  if (options_.control_mode != ModelControlMode::kPoll) {
    return UnavailableError("polling is disabled");
  }
  return repository_->Poll();
}

}  // namespace nereid::core
