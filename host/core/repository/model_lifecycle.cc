#include "host/core/repository/model_lifecycle.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <set>
#include <utility>

#include "host/core/config/config_loader.h"
#include "host/core/handle/error.h"
#include "host/core/observe/log.h"

namespace nereid {

struct ModelLifecycle::State {
  struct Version {
    VersionStatus status;
    uint64_t generation = 0;  // of the model object that the status is about; 0: there was none
    // As last loaded, for the next load to compare with.
    std::optional<uint64_t> print;
    ModelConfig config;
  };
  struct Entry {
    bool busy = false;  // a load is under way
    size_t num_alive = 0;
    bool has_lived = false;  // something of it was loaded, or tried to be
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

    // What became of one version of a load, of which all versions `serve` now or none of them.
    void Note(const Plan& plan, const VersionLoad& load, bool serve);
    // Puts what a load brought in place of what serves; returns what leaves.
    ModelTable::VersionMap Swap(const std::vector<VersionLoad>& loads, Outcome* outcome);
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
    entries[name].has_lived = true;
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

struct ModelLifecycle::VersionLoad {
  int64_t version = 0;
  uint64_t generation = 0;  // of the model object
  // Serves and stays; null where a model is loaded.
  std::shared_ptr<Model> kept;
  bool changes_instances = false;  // of `kept`
  std::shared_ptr<Model> loaded;   // null where loading failed
  Status failure;

  bool ok() const { return failure.ok(); }
  // "version 1 is at UNAVAILABLE state: Internal: why;"
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
  std::function<void(Outcome)> done;
  std::vector<VersionLoad> versions;
  std::atomic<size_t> num_left{0};
};

void ModelLifecycle::State::Entry::Note(const Plan& plan, const VersionLoad& load, bool serve) {
  Version& version = versions[load.version];
  if (load.kept != nullptr) {
    if (load.ok()) version.config = plan.config;
    return;
  }
  if (load.ok() && serve) {
    version.status = {ModelState::kReady, ""};
    version.generation = load.generation;
    version.config = plan.config;
    const auto print = plan.prints.find(load.version);
    version.print = print == plan.prints.end() ? std::nullopt : std::optional(print->second);
    served.insert(load.generation);
  } else if (serving.count(load.version) == 0) {
    const char* other = "another version failed to load";
    version.status = {ModelState::kUnavailable, load.ok() ? other : load.Reason(),
                      !plan.config.is_ensemble()};
  }
}

ModelTable::VersionMap ModelLifecycle::State::Entry::Swap(const std::vector<VersionLoad>& loads,
                                                          Outcome* outcome) {
  ModelTable::VersionMap next;
  for (const VersionLoad& load : loads) {
    const bool is_kept = load.kept != nullptr;
    next[load.version] = is_kept ? load.kept : load.loaded;
    outcome->keeps_versions |= is_kept;
    outcome->is_new |= !is_kept;
  }
  for (auto& [number, version] : versions) {
    if (next.count(number) > 0) continue;
    if (version.generation == 0) version.status.is_missed = false;  // the model has others now
    if (serving.count(number) == 0) continue;
    version.status = {ModelState::kUnloading, ""};
    outcome->is_new = true;
  }
  return std::exchange(serving, std::move(next));
}

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

void ModelLifecycle::Load(Plan plan, std::function<void(Outcome)> done) {
  auto loading = std::make_shared<Loading>();
  loading->plan = std::move(plan);
  loading->done = std::move(done);
  for (const int64_t version : loading->plan.versions) loading->versions.push_back({version});
  loading->num_left = loading->versions.size();
  {
    std::unique_lock lock(state_->mutex);
    State::Entry& entry = state_->entries[loading->plan.name];
    state_->changed.wait(lock, [&entry] { return !entry.busy; });
    entry.busy = true;
    entry.then_unload.clear();
    for (VersionLoad& load : loading->versions) Prepare(loading->plan, &load);
  }
  for (VersionLoad& load : loading->versions) {
    pool_->Run([this, loading, &load] { Carry(loading, &load); });
  }
}

// [holding the state's mutex]
void ModelLifecycle::Prepare(const Plan& plan, VersionLoad* load) {
  State::Entry& entry = state_->entries[plan.name];
  State::Version& known = entry.versions[load->version];
  const auto serving = entry.serving.find(load->version);
  const auto print = plan.prints.find(load->version);
  // An ensemble was made for steps that may be others by now.
  const bool may_stay = serving != entry.serving.end() && print != plan.prints.end() &&
                        known.print == print->second && !plan.config.is_ensemble();
  const config::ConfigChange change =
      may_stay ? config::ChangeBetween(known.config, plan.config) : config::ConfigChange::kModel;
  if (change != config::ConfigChange::kModel) {
    load->kept = serving->second;
    load->changes_instances = change == config::ConfigChange::kInstances;
    return;
  }
  load->generation = state_->next_generation++;
  // One that serves does so until the swap.
  if (serving != entry.serving.end()) return;
  known.status = {ModelState::kLoading, ""};
  known.generation = load->generation;
}

void ModelLifecycle::Carry(const std::shared_ptr<Loading>& loading, VersionLoad* load) {
  const Plan& plan = loading->plan;
  if (load->kept == nullptr) {
    LoadModel(plan, load);
  } else if (load->changes_instances) {
    load->failure = loader_->UpdateInstances(load->kept.get(), plan.config);
  }
  if (!load->ok()) {
    NEREID_LOG_ERROR("failed to load '", plan.name, "' version ", load->version, ": ",
                     load->Reason());
  }
  if (loading->num_left.fetch_sub(1) == 1) Finish(loading.get());
}

void ModelLifecycle::LoadModel(const Plan& plan, VersionLoad* load) {
  NEREID_LOG_INFO("loading: ", plan.name, ":", load->version);
  for (unsigned attempt = 0; attempt <= num_retries_; ++attempt) {
    state_->Born(plan.name);
    auto gone = [state = state_, name = plan.name, version = load->version, files = plan.files,
                 generation = load->generation]() mutable {
      files.reset();
      state->Gone(name, version, generation);
    };
    auto model = loader_->Load({plan.name, load->version, plan.model_path, plan.config,
                                std::make_shared<LifetimeToken>(std::move(gone))});
    load->failure = model.status();
    if (!model.ok()) continue;
    load->loaded = std::move(model).value();
    return;
  }
}

void ModelLifecycle::Finish(Loading* loading) {
  Outcome outcome = Publish(loading);
  loading->plan.files.reset();  // from now on the models' alone
  if (outcome.status.ok()) NEREID_LOG_INFO("successfully loaded '", loading->plan.name, "'");
  loading->done(std::move(outcome));
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
    for (const VersionLoad& load : loading->versions) entry.Note(plan, load, failures.empty());
    if (failures.empty()) dropped = entry.Swap(loading->versions, &outcome);
    // Known, with no version to serve, where there was none before.
    table_->Publish(plan.name, entry.serving, entry.NotServing());
  }
  // Before the load is said to be over, so that what lost is not held by it.
  loading->versions.clear();
  if (!failures.empty()) {
    outcome.status = InvalidArgError("load failed for model '", plan.name, "': ", failures);
  }
  return outcome;
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
  State::Version& failed = entry.versions[version];
  failed.generation = 0;
  failed.status = {ModelState::kUnavailable, reason, (is_missed && !entry.has_lived) || was_missed};
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
