#include "host/core/repository/model_lifecycle.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <set>
#include <utility>

#include "host/core/config/config_loader.h"
#include "host/core/handle/error.h"
#include "host/core/observe/log.h"

namespace nereid::core {

using Clock = std::chrono::steady_clock;

struct ModelLifecycle::State {
  struct Version {
    VersionStatus status;
    uint64_t generation = 0;  // generation of the model object that `status` describes; 0: none
    // Fingerprint and configuration of the last load, for comparison with the next one.
    std::optional<uint64_t> fingerprint;
    ModelConfig config;
  };
  struct Entry {
    bool is_loading = false;  // a load is in progress
    Clock::time_point load_start;
    size_t num_alive = 0;
    bool load_attempted = false;  // a load of the model was attempted
    bool is_required = false;     // see Plan
    std::map<int64_t, Version> versions;
    ModelTable::VersionMap serving;
    std::vector<std::string> unload_next;
    // Generations that serve or served and are not destroyed yet.
    std::set<uint64_t> served_generations;

    std::set<int64_t> NotServing() const {
      std::set<int64_t> numbers;
      for (const auto& [number, version] : versions) {
        if (serving.count(number) == 0) numbers.insert(number);
      }
      return numbers;
    }

    // Records the result of one version. All versions of the load `serve` now, or none.
    void RecordResult(const Plan& plan, const VersionLoad& load, bool serve);
    // Replaces the serving versions with those of the load; returns the previous ones.
    ModelTable::VersionMap ReplaceServing(const std::vector<VersionLoad>& loads, Outcome* outcome);
  };

  explicit State(std::chrono::milliseconds load_stall_after) : stall_after(load_stall_after) {}

  const std::chrono::milliseconds stall_after;  // see LoadLimits
  mutable std::mutex mutex;                     // guards the members below
  std::condition_variable changed;
  ModelTable* table = nullptr;  // null after the lifecycle was destroyed
  std::map<std::string, Entry> entries;
  size_t num_alive = 0;
  size_t num_loading = 0;  // model objects among them whose load is in progress
  uint64_t next_generation = 1;

  // Waits until no load of the model is in progress. UNAVAILABLE if that load is stalled.
  Status WaitUntilIdle(const std::string& name, const Entry& entry,
                       std::unique_lock<std::mutex>& lock) {
    while (entry.is_loading) {
      const Clock::time_point now = Clock::now();
      if (now - entry.load_start >= stall_after) {
        const auto age = std::chrono::duration_cast<std::chrono::seconds>(now - entry.load_start);
        return UnavailableError("model '", name, "' is being loaded: its load began ", age.count(),
                                " s ago and has not ended");
      }
      changed.wait_until(lock, entry.load_start + stall_after);
    }
    return Status::Ok();
  }

  void OnModelCreated(const std::string& name) {
    std::lock_guard lock(mutex);
    ++num_alive;
    ++entries[name].num_alive;
    entries[name].load_attempted = true;
  }

  void OnLoadBegun() {
    std::lock_guard lock(mutex);
    ++num_loading;
  }
  void OnLoadEnded() {
    std::lock_guard lock(mutex);
    --num_loading;
    changed.notify_all();
  }

  // [the thread that destroys the model: its reaper thread]
  void OnModelDestroyed(const std::string& name, int64_t version, uint64_t generation) {
    std::vector<std::string> next;
    {
      std::lock_guard lock(mutex);
      --num_alive;
      Entry& entry = entries[name];
      if (--entry.num_alive == 0) next.swap(entry.unload_next);
      Version& destroyed = entry.versions[version];
      if (destroyed.generation == generation && destroyed.status.state == ModelState::kUnloading) {
        destroyed.status = {ModelState::kUnavailable, "unloaded"};
      }
      if (entry.served_generations.erase(generation) > 0) {
        NEREID_LOG_INFO("successfully unloaded '", name, "' version ", version);
      }
      changed.notify_all();
    }
    UnloadAll(next);
  }

  void UnloadAll(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      const Status status = Unload(name, /*waits=*/true);
      if (!status.ok()) NEREID_LOG_ERROR("failed to unload '", name, "': ", status.message());
    }
  }

  Status Unload(const std::string& name, bool waits) {
    ModelTable::VersionMap dropped;  // destroyed after the lock is released
    std::vector<std::string> next;
    {
      std::unique_lock lock(mutex);
      const auto it = entries.find(name);
      if (it == entries.end() || table == nullptr) return Status::Ok();
      Entry& entry = it->second;
      if (!waits && entry.is_loading) return Status::Ok();
      NEREID_RETURN_IF_ERROR(WaitUntilIdle(name, entry, lock));
      for (auto& [number, version] : entry.versions) {
        if (entry.serving.count(number) > 0) {
          version.status = {ModelState::kUnloading, ""};
        } else if (version.status.state == ModelState::kUnavailable) {
          version.status.reason = "unloaded";
        }
      }
      dropped = std::exchange(entry.serving, {});
      table->Publish(name, {}, entry.NotServing());
      if (entry.num_alive == 0) next.swap(entry.unload_next);
      changed.notify_all();
    }
    UnloadAll(next);
    return Status::Ok();
  }
};

struct ModelLifecycle::VersionLoad {
  int64_t version = 0;
  uint64_t generation = 0;  // generation of the model object
  // The serving model that is kept; null if a new one is loaded.
  std::shared_ptr<Model> kept;
  bool changes_instances = false;  // the instance groups of `kept` change
  std::shared_ptr<Model> loaded;   // null if the load failed
  Status failure;

  bool ok() const { return failure.ok(); }
  // For example "version 1 is at UNAVAILABLE state: Internal: reason;".
  std::string FailureText() const {
    const ModelState state = kept == nullptr ? ModelState::kUnavailable : ModelState::kReady;
    return StrCat("version ", version, " is at ", ModelStateName(state), " state: ", Reason(), ";");
  }
  std::string Reason() const {
    return StrCat(StatusCodeName(failure.code()), ": ", failure.message());
  }
};

struct ModelLifecycle::Loading {
  Plan plan;
  std::function<void(const Outcome&)> loaded;
  std::function<void(Outcome)> done;
  std::vector<VersionLoad> versions;
  std::atomic<size_t> num_left{0};
};

void ModelLifecycle::State::Entry::RecordResult(const Plan& plan, const VersionLoad& load,
                                                bool serve) {
  Version& version = versions[load.version];
  if (load.kept != nullptr) {
    if (load.ok()) version.config = plan.config;
    return;
  }
  if (load.ok() && serve) {
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

ModelTable::VersionMap ModelLifecycle::State::Entry::ReplaceServing(
    const std::vector<VersionLoad>& loads, Outcome* outcome) {
  ModelTable::VersionMap next;
  for (const VersionLoad& load : loads) {
    const bool is_kept = load.kept != nullptr;
    next[load.version] = is_kept ? load.kept : load.loaded;
    outcome->keeps_versions |= is_kept;
    outcome->is_new |= !is_kept;
  }
  for (auto& [number, version] : versions) {
    if (next.count(number) > 0) continue;
    if (version.generation == 0)
      version.status.affects_readiness = false;  // the model has other versions now
    if (serving.count(number) == 0) continue;
    version.status = {ModelState::kUnloading, ""};
    outcome->is_new = true;
  }
  is_required = true;
  return std::exchange(serving, std::move(next));
}

namespace {

// Calls on_destroyed when the model that owns it is destroyed.
struct LifetimeToken {
  explicit LifetimeToken(std::function<void()> destroyed) : on_destroyed(std::move(destroyed)) {}
  ~LifetimeToken() { on_destroyed(); }
  std::function<void()> on_destroyed;
};

}  // namespace

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

ModelLifecycle::ModelLifecycle(ModelTable* table, ModelLoader* loader, unsigned num_threads,
                               unsigned num_retries, LoadLimits limits)
    : table_(table),
      loader_(loader),
      num_retries_(num_retries),
      state_(std::make_shared<State>(limits.stall_after)),
      pool_(std::make_unique<LoadThreadPool>(num_threads, limits)) {
  state_->table = table;
}

ModelLifecycle::~ModelLifecycle() {
  pool_.reset();
  for (const auto& [name, versions] : Statuses()) UnloadIfIdle(name);
  std::lock_guard lock(state_->mutex);
  state_->table = nullptr;
}

void ModelLifecycle::Load(Plan plan, std::function<void(const Outcome&)> loaded,
                          std::function<void(Outcome)> done) {
  auto loading = std::make_shared<Loading>();
  loading->plan = std::move(plan);
  loading->loaded = std::move(loaded);
  loading->done = std::move(done);
  for (const int64_t version : loading->plan.versions) loading->versions.push_back({version});
  loading->num_left = loading->versions.size();
  {
    std::unique_lock lock(state_->mutex);
    State::Entry& entry = state_->entries[loading->plan.name];
    Status idle = state_->WaitUntilIdle(loading->plan.name, entry, lock);
    if (!idle.ok()) {
      lock.unlock();
      failures_.Write(loading->plan.name, 0, idle.message(), loading->plan.is_poll);
      return loading->done({std::move(idle)});
    }
    entry.is_loading = true;
    entry.load_start = Clock::now();
    entry.is_required |= loading->plan.is_required;
    entry.unload_next.clear();
    for (VersionLoad& load : loading->versions) Prepare(loading->plan, &load);
  }
  for (VersionLoad& load : loading->versions) {
    pool_->Run(StrCat("'", loading->plan.name, "' version ", load.version),
               [this, loading, &load](const Status& admission) {
                 load.failure = admission;
                 LoadVersion(loading, &load);
               });
  }
}

// [under the state's mutex]
void ModelLifecycle::Prepare(const Plan& plan, VersionLoad* load) {
  State::Entry& entry = state_->entries[plan.name];
  State::Version& known = entry.versions[load->version];
  const auto serving = entry.serving.find(load->version);
  const auto fingerprint = plan.fingerprints.find(load->version);
  // An ensemble is always loaded anew, because its steps may have been replaced.
  const bool may_stay = serving != entry.serving.end() && fingerprint != plan.fingerprints.end() &&
                        known.fingerprint == fingerprint->second && !plan.config.is_ensemble();
  const config::ConfigChange change =
      may_stay ? config::ChangeBetween(known.config, plan.config) : config::ConfigChange::kModel;
  if (change != config::ConfigChange::kModel) {
    load->kept = serving->second;
    load->changes_instances = change == config::ConfigChange::kInstances;
    return;
  }
  load->generation = state_->next_generation++;
  // A serving version serves until it is replaced.
  if (serving != entry.serving.end()) return;
  known.status = {ModelState::kLoading, "", entry.is_required};
  known.generation = load->generation;
}

void ModelLifecycle::LoadVersion(const std::shared_ptr<Loading>& loading, VersionLoad* load) {
  const Plan& plan = loading->plan;
  if (load->ok() && load->kept == nullptr) {
    LoadModel(plan, load);
  } else if (load->ok() && load->changes_instances) {
    load->failure = loader_->UpdateInstances(load->kept.get(), plan.config);
  }
  if (load->ok()) {
    failures_.Forget(plan.name);
  } else {
    failures_.Write(
        plan.name, 0,
        StrCat("failed to load '", plan.name, "' version ", load->version, ": ", load->Reason()),
        plan.is_poll);
  }
  if (loading->num_left.fetch_sub(1) == 1) Finish(loading.get());
}

void ModelLifecycle::LoadModel(const Plan& plan, VersionLoad* load) {
  NEREID_LOG_INFO("loading: ", plan.name, ":", load->version);
  for (unsigned attempt = 0; attempt <= num_retries_; ++attempt) {
    state_->OnModelCreated(plan.name);
    auto destroyed = [state = state_, name = plan.name, version = load->version, files = plan.files,
                      generation = load->generation]() mutable {
      files.reset();
      state->OnModelDestroyed(name, version, generation);
    };
    state_->OnLoadBegun();
    auto model = loader_->Load({plan.name, load->version, plan.model_path, plan.config,
                                std::make_shared<LifetimeToken>(std::move(destroyed))});
    state_->OnLoadEnded();
    load->failure = model.status();
    if (!model.ok()) continue;
    load->loaded = std::move(model).value();
    return;
  }
}

void ModelLifecycle::Finish(Loading* loading) {
  Outcome outcome = Publish(loading);
  loading->plan.files.reset();  // from now on owned by the models only
  if (outcome.status.ok()) {
    NEREID_LOG_INFO("successfully loaded '", loading->plan.name, "'");
    loading->loaded(outcome);
  }
  {
    std::lock_guard lock(state_->mutex);
    state_->entries[loading->plan.name].is_loading = false;
    state_->changed.notify_all();
  }
  loading->done(std::move(outcome));
}

Status ModelLifecycle::WaitUntilIdle(const std::string& name) const {
  std::unique_lock lock(state_->mutex);
  const auto it = state_->entries.find(name);
  if (it == state_->entries.end()) return Status::Ok();
  return state_->WaitUntilIdle(name, it->second, lock);
}

bool ModelLifecycle::IsLoading(const std::string& name) const {
  std::lock_guard lock(state_->mutex);
  const auto it = state_->entries.find(name);
  return it != state_->entries.end() && it->second.is_loading;
}

// Decides which versions serve from now on. Replaced model objects are dropped after the lock is
// released, because their destruction may take long.
ModelLifecycle::Outcome ModelLifecycle::Publish(Loading* loading) {
  const Plan& plan = loading->plan;
  std::string failures;
  for (const VersionLoad& load : loading->versions) {
    if (!load.ok()) failures += load.FailureText();
  }
  Outcome outcome;
  ModelTable::VersionMap dropped;
  {
    std::lock_guard lock(state_->mutex);
    State::Entry& entry = state_->entries[plan.name];
    for (const VersionLoad& load : loading->versions)
      entry.RecordResult(plan, load, failures.empty());
    if (failures.empty()) dropped = entry.ReplaceServing(loading->versions, &outcome);
    // Publishes the name even if no version serves.
    table_->Publish(plan.name, entry.serving, entry.NotServing());
  }
  // Dropped before the load completes, so that it does not keep replaced models alive.
  loading->versions.clear();
  if (!failures.empty()) {
    outcome.status = InvalidArgError("load failed for model '", plan.name, "': ", failures);
  }
  return outcome;
}

Status ModelLifecycle::Unload(const std::string& name) {
  return state_->Unload(name, /*waits=*/true);
}

void ModelLifecycle::UnloadIfIdle(const std::string& name) {
  (void)state_->Unload(name, /*waits=*/false);
}

void ModelLifecycle::UnloadAfter(const std::string& name, std::vector<std::string> next) {
  std::lock_guard lock(state_->mutex);
  state_->entries[name].unload_next = std::move(next);
}

bool ModelLifecycle::WaitUntilUnloading(const std::vector<std::string>& names,
                                        std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_until(lock, deadline, [&] {
    return std::all_of(names.begin(), names.end(), [&](const std::string& name) {
      const auto it = state_->entries.find(name);
      return it == state_->entries.end() || it->second.serving.empty();
    });
  });
}

void ModelLifecycle::RecordFailure(const std::string& name, int64_t version,
                                   const std::string& reason, bool affects_readiness) {
  std::lock_guard lock(state_->mutex);
  State::Entry& entry = state_->entries[name];
  if (entry.serving.count(version) > 0) return;
  const auto old = entry.versions.find(version);
  const bool was_missed = old != entry.versions.end() && old->second.status.affects_readiness &&
                          old->second.status.state != ModelState::kUnloading &&
                          !IsUnloaded(old->second.status);
  entry.is_required |= affects_readiness;
  State::Version& failed = entry.versions[version];
  failed.generation = 0;
  failed.status = {ModelState::kUnavailable, reason,
                   (affects_readiness && !entry.load_attempted) || was_missed};
}

void ModelLifecycle::PublishUnavailable(const std::string& name) {
  std::lock_guard lock(state_->mutex);
  const State::Entry& entry = state_->entries[name];
  if (entry.serving.empty()) table_->Publish(name, {}, {});
}

bool ModelLifecycle::IsServing(const std::string& name) const {
  std::lock_guard lock(state_->mutex);
  const auto it = state_->entries.find(name);
  return it != state_->entries.end() && !it->second.serving.empty();
}

ModelStatuses ModelLifecycle::Statuses() const {
  std::lock_guard lock(state_->mutex);
  ModelStatuses statuses;
  for (const auto& [name, entry] : state_->entries) {
    for (const auto& [number, version] : entry.versions) {
      statuses[name][number] = version.status;
    }
  }
  return statuses;
}

size_t ModelLifecycle::num_alive() const {
  std::lock_guard lock(state_->mutex);
  return state_->num_alive;
}

std::vector<std::string> ModelLifecycle::LiveModels() const {
  std::lock_guard lock(state_->mutex);
  std::vector<std::string> names;
  for (const auto& [name, entry] : state_->entries) {
    if (entry.num_alive == 0) continue;
    const auto age =
        std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - entry.load_start);
    names.push_back(entry.is_loading ? StrCat("'", name, "' (its load, begun ", age.count(),
                                              " s ago, was abandoned)")
                                     : StrCat("'", name, "'"));
  }
  return names;
}

bool ModelLifecycle::HasLoads() const {
  std::lock_guard lock(state_->mutex);
  return std::any_of(state_->entries.begin(), state_->entries.end(),
                     [](const auto& each) { return each.second.is_loading; });
}

bool ModelLifecycle::OnlyLoadsAreLeft() const {
  std::lock_guard lock(state_->mutex);
  return state_->num_alive <= state_->num_loading;
}

bool ModelLifecycle::WaitUntilDestroyed(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_until(lock, deadline, [this] { return state_->num_alive == 0; });
}

}  // namespace nereid::core
