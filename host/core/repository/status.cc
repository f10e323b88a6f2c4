#include "host/core/repository/status.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <utility>

#include "host/core/handle/error.h"
#include "host/core/observe/log.h"
#include "host/core/repository/agents.h"

namespace nereid::core {
namespace {

// The version was ready and was unloaded on request.
bool IsUnloaded(const VersionStatus& status) {
  return status.state == ModelState::kUnavailable && status.reason == "unloaded";
}

bool BlocksReadiness(const VersionStatus& status) {
  if (status.state == ModelState::kReady || status.state == ModelState::kUnloading) return false;
  return status.affects_readiness && !IsUnloaded(status);
}

}  // namespace

ModelTable::ModelTable() {
  auto empty = std::make_shared<const Snapshot>();
  for (Slot& slot : slots_) slot.snapshot = empty;
}

const ModelTable::Slot& ModelTable::ThreadSlot() const {
  static std::atomic<size_t> next{0};
  static thread_local const size_t index = next.fetch_add(1, std::memory_order_relaxed) % kNumSlots;
  return slots_[index];
}

const ModelTable::ModelEntry* ModelTable::Snapshot::Lookup(std::string_view name) const {
  const auto it = std::lower_bound(models.begin(), models.end(), name,
                                   [](const auto& model, auto key) { return model->name < key; });
  return it == models.end() || (*it)->name != name ? nullptr : it->get();
}

void ModelTable::Snapshot::Set(std::shared_ptr<const ModelEntry> model) {
  const auto it =
      std::lower_bound(models.begin(), models.end(), model->name,
                       [](const auto& known, const auto& key) { return known->name < key; });
  if (it != models.end() && (*it)->name == model->name) {
    *it = std::move(model);
  } else {
    models.insert(it, std::move(model));
  }
}

// [under the mutex of the snapshot's slot]
Result<const ModelTable::ModelEntry*> ModelTable::Snapshot::Resolve(std::string_view name) const {
  if (const ModelEntry* model = Lookup(name)) return model;
  const ModelEntry* known = nullptr;
  std::string serving;  // keys of serving models
  if (const auto it = qualified.find(name); it != qualified.end()) {
    size_t num_serving = 0;
    for (const std::string& key : it->second) {
      const ModelEntry& model = *Lookup(key);
      if (known == nullptr || !model.versions.empty()) known = &model;
      if (model.versions.empty()) continue;
      ++num_serving;
      serving += StrCat(serving.empty() ? "'" : ", '", key, "'");
    }
    if (num_serving > 1) {
      return InvalidArgError("There are ", num_serving, " identifiers of model '", name,
                             "' in global map, model namespace must be provided to resolve "
                             "ambiguity: ",
                             serving);
    }
  }
  if (known != nullptr) return known;
  return NotFoundError("Request for unknown model: '", name, "' is not found");
}

Result<std::shared_ptr<Model>> ModelTable::Find(std::string_view name, int64_t version) const {
  const Slot& slot = ThreadSlot();
  std::lock_guard lock(slot.mutex);
  const ModelEntry* model = slot.last;
  if (model == nullptr || model->name != name) {
    NEREID_ASSIGN_OR_RETURN(model, slot.snapshot->Resolve(name));
    slot.last = model->name == name ? model : nullptr;
  }
  if (version == kLatest) {
    if (!model->versions.empty()) return model->versions.rbegin()->second;
    return NotFoundError("Request for unknown model: '", name, "' has no available versions");
  }
  const auto found = model->versions.find(version);
  if (found != model->versions.end()) return found->second;
  if (model->not_serving.count(version) > 0) {
    return UnavailableError("Request for unknown model: '", name, "' version ", version,
                            " is not at ready state");
  }
  return NotFoundError("Request for unknown model: '", name, "' version ", version,
                       " is not found");
}

Result<std::vector<int64_t>> ModelTable::Versions(std::string_view name) const {
  const Slot& slot = ThreadSlot();
  std::lock_guard lock(slot.mutex);
  NEREID_ASSIGN_OR_RETURN(const ModelEntry* entry, slot.snapshot->Resolve(name));
  std::vector<int64_t> versions;
  for (const auto& [version, model] : entry->versions) versions.push_back(version);
  return versions;
}

Result<std::vector<std::shared_ptr<Model>>> ModelTable::Serving(std::string_view name) const {
  const Slot& slot = ThreadSlot();
  std::lock_guard lock(slot.mutex);
  NEREID_ASSIGN_OR_RETURN(const ModelEntry* entry, slot.snapshot->Resolve(name));
  std::vector<std::shared_ptr<Model>> models;
  for (const auto& [version, model] : entry->versions) models.push_back(model);
  return models;
}

std::vector<std::shared_ptr<Model>> ModelTable::All() const {
  const Slot& slot = ThreadSlot();
  std::lock_guard lock(slot.mutex);
  std::vector<std::shared_ptr<Model>> models;
  for (const auto& entry : slot.snapshot->models) {
    for (const auto& [version, model] : entry->versions) models.push_back(model);
  }
  return models;
}

void ModelTable::Publish(const std::string& name, VersionMap versions,
                         std::set<int64_t> not_serving) {
  std::lock_guard write_lock(write_mutex_);
  auto next = std::make_shared<Snapshot>(*slots_[0].snapshot);
  next->Set(std::make_shared<const ModelEntry>(
      ModelEntry{name, std::move(versions), std::move(not_serving)}));
  if (IsQualified(name)) next->qualified[std::string(PlainName(name))].insert(name);
  std::shared_ptr<const Snapshot> old;  // released last, outside the locks of all slots
  for (Slot& slot : slots_) {
    std::shared_ptr<const Snapshot> fresh = next;
    std::lock_guard lock(slot.mutex);
    slot.snapshot.swap(fresh);
    slot.last = nullptr;
    if (old == nullptr) old = std::move(fresh);
  }
}

const char* ModelStateName(ModelState state) {
  switch (state) {
    case ModelState::kLoading:
      return "LOADING";
    case ModelState::kReady:
      return "READY";
    case ModelState::kUnloading:
      return "UNLOADING";
    case ModelState::kUnavailable:
      break;
  }
  return "UNAVAILABLE";
}

bool AllServing(const ModelStatuses& statuses) {
  for (const auto& [name, versions] : statuses) {
    for (const auto& [version, status] : versions) {
      if (BlocksReadiness(status)) return false;
    }
  }
  return true;
}

std::vector<IndexEntry> ListModels(ModelStatuses statuses, const ScannedModels& scanned,
                                   bool has_namespaces, bool ready_only) {
  if (!ready_only) {
    for (const auto& [name, folders] : scanned) statuses[name];
  }
  std::vector<IndexEntry> index;
  for (const auto& [key, versions] : statuses) {
    const std::string name(has_namespaces ? PlainName(key) : std::string_view(key));
    if (versions.empty()) {
      const auto folders = scanned.find(key);
      const bool is_ambiguous = folders != scanned.end() && folders->second.size() > 1;
      const char* reason = is_ambiguous ? "model appears in two or more repositories" : "";
      index.push_back({name, IndexEntry::kNoVersion, {ModelState::kUnavailable, reason}});
    }
    for (const auto& [version, status] : versions) {
      if (ready_only && status.state != ModelState::kReady) continue;
      index.push_back({name, version, status});
    }
  }
  std::stable_sort(index.begin(), index.end(), [](const IndexEntry& a, const IndexEntry& b) {
    return a.name < b.name;  // models of equal name in several repositories become adjacent
  });
  return index;
}

std::string VersionLoad::Reason() const {
  return StrCat(StatusCodeName(failure.code()), ": ", failure.message());
}

std::string VersionLoad::FailureText() const {
  const ModelState state = kept == nullptr ? ModelState::kUnavailable : ModelState::kReady;
  return StrCat("version ", version, " is at ", ModelStateName(state), " state: ", Reason(), ";");
}

DroppedModels::~DroppedModels() {
  for (const std::weak_ptr<AgentChain>& one : agents) {
    if (const std::shared_ptr<AgentChain> chain = one.lock()) chain->Unload();
  }
}

std::set<int64_t> ModelRecord::NotServing() const {
  std::set<int64_t> numbers;
  for (const auto& [number, version] : versions) {
    if (serving.count(number) == 0) numbers.insert(number);
  }
  return numbers;
}

void ModelRecord::Begin(const LoadPlan& plan, uint64_t generation, VersionLoad* load) {
  Version& known = versions[load->version];
  const auto at = serving.find(load->version);
  if (at != serving.end()) {
    const VersionAction action = PlanVersion(plan, load->version, known.fingerprint, known.config);
    // A serving version serves until it is replaced.
    if (action == VersionAction::kReplace) {
      load->generation = generation;
      return;
    }
    load->kept = at->second;
    load->changes_instances = action == VersionAction::kUpdateInstances;
    return;
  }
  load->generation = generation;
  known.status = {ModelState::kLoading, "", is_required};
  known.generation = generation;
}

DroppedModels ModelRecord::Finish(const LoadPlan& plan, const std::vector<VersionLoad>& loads,
                                  bool* is_new) {
  const bool serve =
      std::all_of(loads.begin(), loads.end(), [](const VersionLoad& load) { return load.ok(); });
  for (const VersionLoad& load : loads) RecordResult(plan, load, serve);
  DroppedModels dropped;
  if (!serve) return dropped;
  ModelTable::VersionMap next;
  bool keeps_versions = false;
  for (const VersionLoad& load : loads) {
    const bool is_kept = load.kept != nullptr;
    next[load.version] = is_kept ? load.kept : load.loaded;
    keeps_versions |= is_kept;
    *is_new |= !is_kept;
  }
  for (auto& [number, version] : versions) {
    if (next.count(number) > 0) continue;
    if (version.generation == 0)
      version.status.affects_readiness = false;  // the model has other versions now
    if (serving.count(number) == 0) continue;
    version.status = {ModelState::kUnloading, ""};
    *is_new = true;
  }
  is_required = true;
  dropped.models = std::exchange(serving, std::move(next));
  RecordLoaded(plan, keeps_versions, &dropped);
  return dropped;
}

// Records the result of one version. All versions of the load `serve` now, or none.
void ModelRecord::RecordResult(const LoadPlan& plan, const VersionLoad& load, bool serve) {
  Version& version = versions[load.version];
  if (load.kept != nullptr) {
    if (load.ok()) version.config = plan.config;
    return;
  }
  if (serve) {
    version.status = {ModelState::kReady, ""};
    version.generation = load.generation;
    version.config = plan.config;
    const auto fingerprint = plan.fingerprints.find(load.version);
    version.fingerprint =
        fingerprint == plan.fingerprints.end() ? std::nullopt : std::optional(fingerprint->second);
    served_generations.insert(load.generation);
  } else if (serving.count(load.version) == 0) {
    const char* other = "another version failed to load";
    version.status = {ModelState::kUnavailable, load.ok() ? other : load.Reason(),
                      is_required && !plan.config.is_ensemble()};
  }
}

// The agents of the previous load are dropped unless one of its versions still serves.
void ModelRecord::RecordLoaded(const LoadPlan& plan, bool keeps_versions, DroppedModels* dropped) {
  const bool was_requested = loaded.has_value() && loaded->is_requested;
  loaded = LoadedModel{plan.fingerprint, plan.config_override.has_value(),
                       plan.is_requested || was_requested, plan.steps};
  if (!keeps_versions) dropped->agents.swap(agents);
  std::erase_if(agents, [](const auto& chain) { return chain.expired(); });
  if (plan.agents != nullptr) agents.push_back(plan.agents);
}

void ModelRecord::RecordFailure(int64_t version, const std::string& reason,
                                bool affects_readiness) {
  if (serving.count(version) > 0) return;
  const auto old = versions.find(version);
  const bool was_missed = old != versions.end() && old->second.status.affects_readiness &&
                          old->second.status.state != ModelState::kUnloading &&
                          !IsUnloaded(old->second.status);
  is_required |= affects_readiness;
  Version& failed = versions[version];
  failed.generation = 0;
  failed.status = {ModelState::kUnavailable, reason,
                   (affects_readiness && !load_attempted) || was_missed};
}

DroppedModels ModelRecord::Unload() {
  for (auto& [number, version] : versions) {
    if (serving.count(number) > 0) {
      version.status = {ModelState::kUnloading, ""};
    } else if (version.status.state == ModelState::kUnavailable) {
      version.status.reason = "unloaded";
    }
  }
  DroppedModels dropped = Forget();
  dropped.models.swap(serving);
  return dropped;
}

DroppedModels ModelRecord::Forget() {
  DroppedModels dropped;
  loaded.reset();
  dropped.agents.swap(agents);
  return dropped;
}

bool ModelRecord::OnDestroyed(int64_t version, uint64_t generation) {
  --num_alive;
  Version& destroyed = versions[version];
  if (destroyed.generation == generation && destroyed.status.state == ModelState::kUnloading) {
    destroyed.status = {ModelState::kUnavailable, "unloaded"};
  }
  return served_generations.erase(generation) > 0;
}

void FailureLog::Write(const std::string& name, uint64_t fingerprint, const std::string& text,
                       bool is_poll) {
  {
    std::lock_guard lock(mutex_);
    const auto [at, is_new] = last_.try_emplace(name, Failure{fingerprint, text});
    if (!is_new) {
      Failure& last = at->second;
      if (is_poll && last.fingerprint == fingerprint && last.text == text) return;
      last = {fingerprint, text};
    }
  }
  NEREID_LOG_ERROR(text);
}

void FailureLog::Forget(const std::string& name) {
  std::lock_guard lock(mutex_);
  last_.erase(name);
}

}  // namespace nereid::core
