#include "host/core/repository/model_lifecycle.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <utility>

#include "host/core/observe/log.h"
#include "host/core/repository/agents.h"

namespace nereid::core {
namespace {

using Clock = std::chrono::steady_clock;

// Calls on_destroyed when the model that owns it is destroyed.
struct LifetimeToken {
  explicit LifetimeToken(std::function<void()> destroyed) : on_destroyed(std::move(destroyed)) {}
  ~LifetimeToken() { on_destroyed(); }
  std::function<void()> on_destroyed;
};

int64_t AgeInSeconds(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - start).count();
}

// Which models an unload leaves alone: none, those that are being loaded, or steps of an unloaded
// ensemble that are in use again.
enum class Spare { kNone, kLoading, kUsed };

}  // namespace

struct ModelLifecycle::State {
  explicit State(std::chrono::milliseconds load_stall_after) : stall_after(load_stall_after) {}

  const std::chrono::milliseconds stall_after;  // see LoadLimits
  mutable std::mutex mutex;                     // guards the members below
  std::condition_variable changed;
  ModelTable* table = nullptr;  // null after the lifecycle was destroyed
  std::map<std::string, ModelRecord> records;
  size_t num_alive = 0;
  size_t num_loading = 0;  // model objects among them whose load is in progress
  uint64_t next_generation = 1;

  // Waits until no load of the model is in progress. UNAVAILABLE if that load is stalled.
  Status WaitUntilIdle(const std::string& name, const ModelRecord& record,
                       std::unique_lock<std::mutex>& lock) {
    while (record.is_loading) {
      if (Clock::now() - record.load_start >= stall_after) {
        return UnavailableError("model '", name, "' is being loaded: its load began ",
                                AgeInSeconds(record.load_start), " s ago and has not ended");
      }
      changed.wait_until(lock, record.load_start + stall_after);
    }
    return Status::Ok();
  }

  // Null: nothing is known of the model.
  const ModelRecord* Find(const std::string& name) const {
    const auto it = records.find(name);
    return it == records.end() ? nullptr : &it->second;
  }

  LoadedModels Loaded() const {
    LoadedModels loaded;
    for (const auto& [name, record] : records) {
      if (record.loaded.has_value()) loaded.emplace(name, *record.loaded);
    }
    return loaded;
  }

  void OnLoadBegun(const std::string& name) {
    std::lock_guard lock(mutex);
    ++num_alive;
    ++num_loading;
    ModelRecord& record = records[name];
    ++record.num_alive;
    record.load_attempted = true;
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
      ModelRecord& record = records[name];
      if (record.OnDestroyed(version, generation)) {
        NEREID_LOG_INFO("successfully unloaded '", name, "' version ", version);
      }
      if (record.num_alive == 0) next.swap(record.unload_next);
      changed.notify_all();
    }
    UnloadSteps(next);
  }

  void UnloadSteps(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      const Status status = Unload(name, Spare::kUsed);
      if (!status.ok()) NEREID_LOG_ERROR("failed to unload '", name, "': ", status.message());
    }
  }

  Status Unload(const std::string& name, Spare spare) {
    DroppedModels dropped;  // released after the lock
    std::vector<std::string> next;
    {
      std::unique_lock lock(mutex);
      const auto it = records.find(name);
      if (it == records.end() || table == nullptr) return Status::Ok();
      ModelRecord& record = it->second;
      if (spare == Spare::kLoading && record.is_loading) return Status::Ok();
      NEREID_RETURN_IF_ERROR(WaitUntilIdle(name, record, lock));
      if (spare == Spare::kUsed &&
          (record.loaded.has_value() || !EnsemblesCalling(name, Loaded()).empty())) {
        return Status::Ok();
      }
      dropped = record.Unload();
      table->Publish(name, {}, record.NotServing());
      if (record.num_alive == 0) next.swap(record.unload_next);
      changed.notify_all();
    }
    UnloadSteps(next);
    return Status::Ok();
  }
};

struct ModelLifecycle::Loading {
  LoadPlan plan;
  std::function<void(Outcome)> done;
  std::vector<VersionLoad> versions;
  std::atomic<size_t> num_left{0};
};

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

void ModelLifecycle::Load(LoadPlan plan, std::function<void(Outcome)> done) {
  auto loading = std::make_shared<Loading>();
  loading->plan = std::move(plan);
  loading->done = std::move(done);
  for (const int64_t version : loading->plan.versions) loading->versions.push_back({version});
  loading->num_left = loading->versions.size();
  {
    std::unique_lock lock(state_->mutex);
    ModelRecord& record = state_->records[loading->plan.name];
    Status idle = state_->WaitUntilIdle(loading->plan.name, record, lock);
    if (!idle.ok()) {
      lock.unlock();
      failures_.Write(loading->plan.name, 0, idle.message(), loading->plan.is_poll);
      return loading->done({std::move(idle)});
    }
    record.is_loading = true;
    record.load_start = Clock::now();
    record.is_required |= loading->plan.is_required;
    record.unload_next.clear();
    for (VersionLoad& load : loading->versions) {
      record.Begin(loading->plan, state_->next_generation++, &load);
    }
  }
  for (VersionLoad& load : loading->versions) {
    pool_->Run(StrCat("'", loading->plan.name, "' version ", load.version),
               [this, loading, &load](const Status& admission) {
                 load.failure = admission;
                 return LoadVersion(loading, &load);
               });
  }
}

std::function<void()> ModelLifecycle::LoadVersion(const std::shared_ptr<Loading>& loading,
                                                  VersionLoad* load) {
  const LoadPlan& plan = loading->plan;
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
  if (loading->num_left.fetch_sub(1) > 1) return nullptr;
  return [loading, outcome = Finish(loading.get())] { loading->done(outcome); };
}

void ModelLifecycle::LoadModel(const LoadPlan& plan, VersionLoad* load) {
  NEREID_LOG_INFO("loading: ", plan.name, ":", load->version);
  for (unsigned attempt = 0; attempt <= num_retries_; ++attempt) {
    auto destroyed = [state = state_, name = plan.name, version = load->version, files = plan.files,
                      generation = load->generation]() mutable {
      files.reset();
      state->OnModelDestroyed(name, version, generation);
    };
    state_->OnLoadBegun(plan.name);
    auto model = loader_->Load({plan.name, load->version, plan.model_path, plan.config,
                                std::make_shared<LifetimeToken>(std::move(destroyed))});
    state_->OnLoadEnded();
    load->failure = model.status();
    if (!model.ok()) continue;
    load->loaded = std::move(model).value();
    return;
  }
}

ModelLifecycle::Outcome ModelLifecycle::Finish(Loading* loading) {
  LoadPlan& plan = loading->plan;
  std::string failures;
  for (const VersionLoad& load : loading->versions) {
    if (!load.ok()) failures += load.FailureText();
  }
  Outcome outcome;
  if (!failures.empty()) {
    outcome.status = InvalidArgError("load failed for model '", plan.name, "': ", failures);
  }
  {
    DroppedModels dropped;  // released after the lock, but before another load may begin
    {
      std::lock_guard lock(state_->mutex);
      ModelRecord& record = state_->records[plan.name];
      dropped = record.Finish(plan, loading->versions, &outcome.is_new);
      // Publishes the name even if no version serves.
      table_->Publish(plan.name, record.serving, record.NotServing());
    }
    if (outcome.status.ok()) {
      NEREID_LOG_INFO("successfully loaded '", plan.name, "'");
      if (plan.agents != nullptr) plan.agents->FinishLoad(true);
    }
    // From now on, only the models own what they use, and only the table owns the models.
    loading->versions.clear();
    plan.files.reset();
    plan.agents.reset();
  }
  {
    std::lock_guard lock(state_->mutex);
    state_->records[plan.name].is_loading = false;
    state_->changed.notify_all();
  }
  return outcome;
}

Status ModelLifecycle::WaitUntilIdle(const std::string& name) const {
  std::unique_lock lock(state_->mutex);
  const ModelRecord* const record = state_->Find(name);
  return record == nullptr ? Status::Ok() : state_->WaitUntilIdle(name, *record, lock);
}

bool ModelLifecycle::IsLoading(const std::string& name) const {
  std::lock_guard lock(state_->mutex);
  const ModelRecord* const record = state_->Find(name);
  return record != nullptr && record->is_loading;
}

Status ModelLifecycle::Unload(const std::string& name) {
  return state_->Unload(name, Spare::kNone);
}

void ModelLifecycle::UnloadIfIdle(const std::string& name) {
  (void)state_->Unload(name, Spare::kLoading);
}

void ModelLifecycle::UnloadAfter(const std::string& name, const std::vector<std::string>& next) {
  std::vector<DroppedModels> dropped;  // released after the lock
  std::lock_guard lock(state_->mutex);
  for (const std::string& step : next) dropped.push_back(state_->records[step].Forget());
  state_->records[name].unload_next = next;
}

bool ModelLifecycle::WaitUntilUnloading(const std::vector<std::string>& names,
                                        std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_until(lock, deadline, [&] {
    return std::all_of(names.begin(), names.end(), [&](const std::string& name) {
      const ModelRecord* const record = state_->Find(name);
      return record == nullptr || record->serving.empty();
    });
  });
}

void ModelLifecycle::RecordFailure(const std::string& name, int64_t version,
                                   const std::string& reason, bool affects_readiness) {
  std::lock_guard lock(state_->mutex);
  state_->records[name].RecordFailure(version, reason, affects_readiness);
}

void ModelLifecycle::PublishUnavailable(const std::string& name) {
  std::lock_guard lock(state_->mutex);
  if (state_->records[name].serving.empty()) table_->Publish(name, {}, {});
}

bool ModelLifecycle::IsServing(const std::string& name) const {
  std::lock_guard lock(state_->mutex);
  const ModelRecord* const record = state_->Find(name);
  return record != nullptr && !record->serving.empty();
}

bool ModelLifecycle::IsCurrent(const LoadPlan& plan) const {
  std::lock_guard lock(state_->mutex);
  const ModelRecord* const record = state_->Find(plan.name);
  return record != nullptr && !record->serving.empty() && record->loaded.has_value() &&
         IsUnchanged(plan, *record->loaded);
}

ModelStatuses ModelLifecycle::Statuses() const {
  std::lock_guard lock(state_->mutex);
  ModelStatuses statuses;
  for (const auto& [name, record] : state_->records) {
    for (const auto& [number, version] : record.versions) {
      statuses[name][number] = version.status;
    }
  }
  return statuses;
}

LoadedModels ModelLifecycle::Loaded() const {
  std::lock_guard lock(state_->mutex);
  return state_->Loaded();
}

size_t ModelLifecycle::num_alive() const {
  std::lock_guard lock(state_->mutex);
  return state_->num_alive;
}

std::vector<std::string> ModelLifecycle::LiveModels() const {
  std::lock_guard lock(state_->mutex);
  std::vector<std::string> names;
  for (const auto& [name, record] : state_->records) {
    if (record.num_alive == 0) continue;
    names.push_back(StrCat("'", name, "'"));
    if (!record.is_loading) continue;
    names.back() +=
        StrCat(" (its load, begun ", AgeInSeconds(record.load_start), " s ago, was abandoned)");
  }
  return names;
}

bool ModelLifecycle::HasLoads() const {
  std::lock_guard lock(state_->mutex);
  return std::any_of(state_->records.begin(), state_->records.end(),
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
