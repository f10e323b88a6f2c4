#include "host/core/backend/backend_manager.h"

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "host/core/backend/plugin.h"
#include "host/core/memory/gpus.h"
#include "host/core/observe/log.h"

namespace nereid::core {
namespace {

// Several backends may be written in Python. They share one library, which serves each as a
// separate backend.
std::string SlotKey(const BackendLocation& location) {
  return location.is_python_based ? StrCat(location.library, " for ", location.directory)
                                  : location.library;
}

}  // namespace

Result<Backend*> BackendManager::Get(const ModelConfig& config, const std::string& model_dir,
                                     int64_t version) {
  if (Backend* built_in = FindBuiltIn(config.backend)) return built_in;
  constexpr double kOldestGpu = 8.0;  // that gpu_llm supports
  const BackendSearch search{model_dir, version, options_.backend_dirs,
                             !GpuDevices(kOldestGpu).empty()};
  NEREID_ASSIGN_OR_RETURN(const BackendLocation location, FindBackend(config, search));
  if (config.backend == "tensorrtllm" && location.name != config.backend) {
    NEREID_LOG_INFO(
        "model '", config.name, "': backend tensorrtllm is ", location.name,
        search.has_gpu ? "" : " here: no GPU of compute capability 8.0 or newer is visible");
  }
  std::promise<Result<Backend*>> loaded;
  std::shared_future<Result<Backend*>> result;
  bool is_first = false;
  {
    std::lock_guard lock(mutex_);
    Slot& slot = slots_[SlotKey(location)];
    is_first = !slot.result.valid();
    if (is_first) slot.result = loaded.get_future().share();
    result = slot.result;
  }
  // No lock is held while the backend initialises. Other callers that need it wait for the result.
  if (is_first) loaded.set_value(Load(location));
  return result.get();
}

Result<Backend*> BackendManager::Load(const BackendLocation& location) {
  auto backend = Backend::Load(location, ConfigJson(location), memory_);
  std::lock_guard lock(mutex_);
  if (!backend.ok()) {
    slots_.erase(
        SlotKey(location));  // the next model tries again, because the file may have been replaced
    return std::move(backend).status();
  }
  Slot& slot = slots_[SlotKey(location)];
  slot.backend = std::move(backend).value();
  NEREID_LOG_VERBOSE(1, "loaded backend '", location.name, "' from '", location.library, "'");
  return slot.backend.get();
}

Status BackendManager::AddBuiltIn(const std::string& name, const BackendEntryPoints& entry_points) {
  const BackendLocation location{name, name, ""};
  NEREID_ASSIGN_OR_RETURN(auto backend, Backend::FromEntryPoints(location, entry_points,
                                                                 ConfigJson(location), memory_));
  std::lock_guard lock(mutex_);
  slots_[name].backend = std::move(backend);
  return Status::Ok();
}

bool BackendManager::FinalizeAll(uint64_t timeout_ns) {
  std::map<std::string, Slot> slots;
  {
    std::lock_guard lock(mutex_);
    slots.swap(slots_);
  }
  const uint64_t deadline_ns = AddNs(SteadyNowNs(), timeout_ns);
  std::vector<std::pair<std::string, std::future<void>>> unfinished;
  for (auto& [key, slot] : slots) {
    if (slot.backend == nullptr) continue;
    const std::string name = slot.backend->name();
    std::future<void> ended = RunDetached([backend = slot.backend.release()] { delete backend; });
    if (ended.wait_until(SteadyDeadline(deadline_ns)) == std::future_status::ready) continue;
    unfinished.emplace_back(name, std::move(ended));
  }
  // Backends whose Finalize started after the deadline share this additional time.
  constexpr uint64_t kGraceNs = 1'000'000'000;
  const auto last = SteadyDeadline(AddNs(deadline_ns, kGraceNs));
  bool have_ended = true;
  for (const auto& [name, ended] : unfinished) {
    if (ended.wait_until(last) == std::future_status::ready) continue;
    have_ended = false;
    NEREID_LOG_ERROR("backend '", name, "' has not ended: Finalize did not return within ",
                     timeout_ns / 1'000'000'000, " s");
  }
  return have_ended;
}

Backend* BackendManager::FindBuiltIn(const std::string& name) const {
  std::lock_guard lock(mutex_);
  const auto it = slots_.find(name);
  return it == slots_.end() ? nullptr : it->second.backend.get();
}

std::vector<BackendManager::Loaded> BackendManager::List() const {
  std::lock_guard lock(mutex_);
  std::vector<Loaded> list;
  for (const auto& [key, slot] : slots_) {
    if (slot.backend == nullptr) continue;
    Backend& backend = *slot.backend;
    list.push_back({backend.name(), backend.library(), backend.config().json()});
  }
  return list;
}

// Later settings override earlier ones: global, then those of "python" for Python-based backends,
// then those of the backend itself. All values are strings.
std::string BackendManager::ConfigJson(const BackendLocation& location) const {
  std::map<std::string, std::string> settings = {
      {"auto-complete-config", options_.auto_complete_config ? "true" : "false"},
      {"backend-directory", options_.backend_dirs.empty() ? "" : options_.backend_dirs.front()},
      {"min-compute-capability", std::to_string(options_.min_compute_capability)},
      {"default-max-batch-size", "4"},
  };
  if (location.is_python_based) settings["runtime_modeldir"] = location.directory;
  bool is_given = false;
  for (const std::string& name :
       {std::string(), std::string(location.is_python_based ? "python" : ""), location.name}) {
    const auto it = options_.settings.find(name);
    if (it == options_.settings.end()) continue;
    for (const auto& [key, value] : it->second) {
      settings[key] = value;
      is_given = is_given || key == "default-max-batch-size";
    }
  }
  const std::string& batch_size = settings["default-max-batch-size"];
  if (is_given) {
    NEREID_LOG_VERBOSE(1, "Found overwritten default setting: default-max-batch-size,", batch_size);
  } else {
    NEREID_LOG_VERBOSE(1, "Adding default backend config setting: default-max-batch-size,",
                       batch_size);
  }
  const nlohmann::json json = {{"cmdline", settings}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace nereid::core
