#include "repository/model_lifecycle.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <utility>

#include "base/error.h"
#include "observe/log.h"

namespace nereid {

struct ModelLifecycle::State {
  struct Version {
    VersionStatus status;
    uint64_t generation = 0;  // of the model object that the status is about
  };
  struct Entry {
    bool busy = false;  // a load is under way
    size_t num_alive = 0;
    std::map<int64_t, Version> versions;
    ModelTable::VersionMap serving;
    std::vector<std::string> then_unload;
    std::set<uint64_t> served;  // generations that serve or did, and are not gone yet

    std::set<int64_t> NotServing() const {
      std::set<int64_t> numbers;
      for (const auto& [number, version] : versions) {
        if (serving.count(number) == 0) numbers.insert(number);
      }
      return numbers;
    }
  };

  mutable std::mutex mutex;  // guards all members
  std::condition_variable changed;
  ModelTable* table = nullptr;  // null once the lifecycle has ended
  std::map<std::string, Entry> entries;
  size_t num_alive = 0;
  uint64_t next_generation = 1;

  void Born(const std::string& name) {
    std::lock_guard lock(mutex);
    ++num_alive;
    ++entries[name].num_alive;
  }

  // [whichever thread drops the last of a model: its reaper]
  void Gone(const std::string& name, int64_t version, uint64_t generation) {
    std::vector<std::string> next;
    {
      std::lock_guard lock(mutex);
      --num_alive;
      Entry& entry = entries[name];
      if (--entry.num_alive == 0) next.swap(entry.then_unload);
      Version& gone = entry.versions[version];
      if (gone.generation == generation && gone.status.state == ModelState::kUnloading) {
        gone.status = {ModelState::kUnavailable, "unloaded"};
      }
      if (entry.served.erase(generation) > 0) {
        NEREID_LOG_INFO("successfully unloaded '", name, "' version ", version);
      }
      changed.notify_all();
    }
    for (const std::string& other : next) Unload(other);
  }

  void Unload(const std::string& name) {
    ModelTable::VersionMap dropped;  // destroyed after the lock is released
    std::vector<std::string> next;
    {
      std::unique_lock lock(mutex);
      const auto it = entries.find(name);
      if (it == entries.end() || table == nullptr) return;
      Entry& entry = it->second;
      changed.wait(lock, [&entry] { return !entry.busy; });
      for (auto& [number, version] : entry.versions) {
        if (entry.serving.count(number) > 0) {
          version.status = {ModelState::kUnloading, ""};
        } else if (version.status.state == ModelState::kUnavailable) {
          version.status.reason = "unloaded";
        }
      }
      dropped = std::exchange(entry.serving, {});
      table->Publish(name, {}, entry.NotServing());
      if (entry.num_alive == 0) next.swap(entry.then_unload);
      changed.notify_all();
    }
    for (const std::string& other : next) Unload(other);
  }
};

struct ModelLifecycle::Loading {
  Plan plan;
  std::function<void(Status)> done;
  ModelTable::VersionMap updated;              // changed in place, nothing is loaded
  std::vector<uint64_t> generations;           // one a version
  std::vector<std::shared_ptr<Model>> models;  // null where loading failed
  std::vector<Status> failures;
  std::atomic<size_t> num_left{0};
};

namespace {

// Drops itself from the lifecycle's books when the model that holds it is gone.
struct LifetimeToken {
  explicit LifetimeToken(std::function<void()> gone) : on_gone(std::move(gone)) {}
  ~LifetimeToken() { on_gone(); }
  std::function<void()> on_gone;
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
                               unsigned num_retries)
    : table_(table),
      loader_(loader),
      num_retries_(num_retries),
      state_(std::make_shared<State>()),
      pool_(std::make_unique<LoadPool>(num_threads)) {
  state_->table = table;
}

ModelLifecycle::~ModelLifecycle() {
  pool_.reset();
  for (const auto& [name, versions] : Statuses()) Unload(name);
  std::lock_guard lock(state_->mutex);
  state_->table = nullptr;
}

void ModelLifecycle::Load(Plan plan, std::function<void(Status)> done) {
  auto loading = std::make_shared<Loading>();
  loading->plan = std::move(plan);
  loading->done = std::move(done);
  const std::vector<int64_t>& versions = loading->plan.versions;
  loading->models.resize(versions.size());
  loading->failures.resize(versions.size());
  loading->num_left = versions.size();
  {
    std::unique_lock lock(state_->mutex);
    State::Entry& entry = state_->entries[loading->plan.name];
    state_->changed.wait(lock, [&entry] { return !entry.busy; });
    entry.busy = true;
    entry.then_unload.clear();
    if (loading->plan.instances_only && entry.serving.size() == versions.size()) {
      loading->updated = entry.serving;
    }
    if (!loading->updated.empty()) {
      pool_->Run([this, loading] { Update(loading.get()); });
      return;
    }
    for (const int64_t version : versions) {
      loading->generations.push_back(state_->next_generation++);
      if (entry.serving.count(version) > 0) continue;  // it serves on until the swap
      entry.versions[version] = {{ModelState::kLoading, ""}, loading->generations.back()};
    }
  }
  for (size_t i = 0; i < versions.size(); ++i) {
    pool_->Run([this, loading, i] { LoadVersion(loading, i); });
  }
}

void ModelLifecycle::Update(Loading* loading) {
  const Plan& plan = loading->plan;
  Status first_error;
  for (const auto& [version, model] : loading->updated) {
    Status status = loader_->UpdateInstances(model.get(), plan.config);
    if (status.ok()) continue;
    status = std::move(status).WithContext(
        StrCat("failed to update the instances of '", plan.name, "' version ", version));
    if (first_error.ok()) first_error = std::move(status);
  }
  loading->updated.clear();
  if (first_error.ok()) {
    NEREID_LOG_INFO("successfully updated the instances of '", plan.name, "'");
  }
  Done(loading, std::move(first_error));
}

void ModelLifecycle::LoadVersion(const std::shared_ptr<Loading>& loading, size_t index) {
  const Plan& plan = loading->plan;
  const int64_t version = plan.versions[index];
  NEREID_LOG_INFO("loading: ", plan.name, ":", version);
  for (unsigned attempt = 0; attempt <= num_retries_; ++attempt) {
    state_->Born(plan.name);
    auto gone = [state = state_, name = plan.name, version, files = plan.files,
                 generation = loading->generations[index]]() mutable {
      files.reset();
      state->Gone(name, version, generation);
    };
    auto model = loader_->Load({plan.name, version, plan.model_path, plan.config,
                                std::make_shared<LifetimeToken>(std::move(gone))});
    if (model.ok()) {
      loading->models[index] = std::move(model).value();
      loading->failures[index] = Status::Ok();
      break;
    }
    loading->failures[index] = std::move(model).status();
  }
  if (!loading->failures[index].ok()) {
    NEREID_LOG_ERROR("failed to load '", plan.name, "' version ", version, ": ",
                     StatusCodeName(loading->failures[index].code()), ": ",
                     loading->failures[index].message());
  }
  if (loading->num_left.fetch_sub(1) == 1) Finish(loading.get());
}

void ModelLifecycle::Finish(Loading* loading) {
  Status status = Publish(loading);
  loading->plan.files.reset();  // from now on the models' alone
  if (status.ok()) NEREID_LOG_INFO("successfully loaded '", loading->plan.name, "'");
  Done(loading, std::move(status));
}

void ModelLifecycle::Done(Loading* loading, Status status) {
  loading->done(std::move(status));
  std::lock_guard lock(state_->mutex);
  state_->entries[loading->plan.name].busy = false;
  state_->changed.notify_all();
}

void ModelLifecycle::WaitUntilIdle(const std::string& name) const {
  std::unique_lock lock(state_->mutex);
  const auto it = state_->entries.find(name);
  if (it == state_->entries.end()) return;
  state_->changed.wait(lock, [&entry = it->second] { return !entry.busy; });
}

// Decides what serves from now on. Model objects that lose are dropped after the lock is released:
// their end may take long.
Status ModelLifecycle::Publish(Loading* loading) {
  const Plan& plan = loading->plan;
  std::string failures;
  ModelTable::VersionMap fresh, dropped;
  for (size_t i = 0; i < plan.versions.size(); ++i) {
    if (loading->failures[i].ok()) {
      fresh[plan.versions[i]] = std::move(loading->models[i]);
    } else {
      failures += StrCat("version ", plan.versions[i],
                         " is at UNAVAILABLE state: ", StatusCodeName(loading->failures[i].code()),
                         ": ", loading->failures[i].message(), ";");
    }
  }
  const bool has_failed = !failures.empty();
  {
    std::lock_guard lock(state_->mutex);
    State::Entry& entry = state_->entries[plan.name];
    for (size_t i = 0; i < plan.versions.size(); ++i) {
      State::Version& version = entry.versions[plan.versions[i]];
      if (!loading->failures[i].ok() && entry.serving.count(plan.versions[i]) == 0) {
        version.status = {ModelState::kUnavailable,
                          StrCat(StatusCodeName(loading->failures[i].code()), ": ",
                                 loading->failures[i].message())};
      } else if (loading->failures[i].ok() && !has_failed) {
        version = {{ModelState::kReady, ""}, loading->generations[i]};
        entry.served.insert(loading->generations[i]);
      } else if (loading->failures[i].ok() && entry.serving.count(plan.versions[i]) == 0) {
        version.status = {ModelState::kUnavailable, "another version failed to load"};
      }
    }
    if (has_failed) {
      dropped = std::move(fresh);
      // Known, with no version to serve, where there was none before.
      table_->Publish(plan.name, entry.serving, entry.NotServing());
    } else {
      for (const auto& [number, model] : entry.serving) {
        if (fresh.count(number) == 0) entry.versions[number].status = {ModelState::kUnloading, ""};
      }
      dropped = std::exchange(entry.serving, std::move(fresh));
      table_->Publish(plan.name, entry.serving, entry.NotServing());
    }
  }
  if (failures.empty()) return Status::Ok();
  StatusCode code = StatusCode::kInvalidArg;
  return {code, StrCat("load failed for model '", plan.name, "': ", failures)};
}

void ModelLifecycle::Unload(const std::string& name) {
  state_->Unload(name);
}

void ModelLifecycle::ThenUnload(const std::string& name, std::vector<std::string> next) {
  std::lock_guard lock(state_->mutex);
  state_->entries[name].then_unload = std::move(next);
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
                                   const std::string& reason, bool is_missed) {
  std::lock_guard lock(state_->mutex);
  State::Entry& entry = state_->entries[name];
  if (entry.serving.count(version) > 0) return;
  const auto old = entry.versions.find(version);
  const bool was_missed = old != entry.versions.end() && old->second.status.is_missed &&
                          old->second.status.state != ModelState::kUnloading &&
                          !IsUnloaded(old->second.status);
  entry.versions[version].status = {ModelState::kUnavailable, reason, is_missed || was_missed};
}

void ModelLifecycle::MakeKnown(const std::string& name) {
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

std::vector<std::string> ModelLifecycle::Alive() const {
  std::lock_guard lock(state_->mutex);
  std::vector<std::string> names;
  for (const auto& [name, entry] : state_->entries) {
    if (entry.num_alive > 0) names.push_back(name);
  }
  return names;
}

bool ModelLifecycle::WaitUntilGone(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_until(lock, deadline, [this] { return state_->num_alive == 0; });
}

}  // namespace nereid
