// The status of models: the table of what serves, the state of each version with its reason, the
// index and the readiness made from the states, and the log of failures. No threads; ModelLifecycle
// guards its records. [any thread]
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "host/core/config/model_config.h"
#include "host/core/repository/plan.h"
#include "nereid/status.h"

namespace nereid::core {

class Model;  // model/model.h

// ---- what serves ----

// The table of models by name: every known model and its serving versions. Readers (one look-up per
// request) wait neither for each other nor for a load. They copy a pointer from a snapshot; each
// group of threads has its own slot with that snapshot. [any thread]
class ModelTable {
 public:
  static constexpr int64_t kLatest = -1;
  using VersionMap = std::map<int64_t, std::shared_ptr<Model>>;

  ModelTable();

  // Returns the serving version `version`, or the highest one for kLatest. With model namespacing,
  // `name` is a qualified (folders.h) or plain name. INVALID_ARG lists the candidates of a plain
  // name that serves in several repositories. NOT_FOUND if the name or version is unknown;
  // UNAVAILABLE if the version is known but does not serve. The result keeps the model alive.
  // Release it before only the model's instance threads would hold references.
  Result<std::shared_ptr<Model>> Find(std::string_view name, int64_t version) const;

  // Serving versions of one model in ascending order; NOT_FOUND if the name is unknown.
  Result<std::vector<int64_t>> Versions(std::string_view name) const;

  // The models of these versions. Errors as for Versions.
  Result<std::vector<std::shared_ptr<Model>>> Serving(std::string_view name) const;

  // All serving models, ordered by name, then version.
  std::vector<std::shared_ptr<Model>> All() const;

  // Replaces the serving versions of `name` and the known versions that do not serve, atomically.
  // With empty sets the name stays known ("has no available versions"). Called only by the
  // lifecycle.
  void Publish(const std::string& name, VersionMap versions, std::set<int64_t> not_serving = {});

 private:
  struct ModelEntry {
    std::string name;
    VersionMap versions;
    std::set<int64_t> not_serving;
  };
  // Shares unchanged entries with the previous snapshot: a copy costs one pointer per model.
  struct Snapshot {
    std::vector<std::shared_ptr<const ModelEntry>> models;  // ordered by name
    // plain name -> qualified names; empty without model namespacing
    std::map<std::string, std::set<std::string>, std::less<>> qualified;

    const ModelEntry* Lookup(std::string_view name) const;  // null: unknown
    Result<const ModelEntry*> Resolve(std::string_view name) const;
    void Set(std::shared_ptr<const ModelEntry> model);
  };

  // Aligned, so that threads of different slots share no cache line.
  struct alignas(64) Slot {
    mutable std::mutex mutex;  // guards the members below
    std::shared_ptr<const Snapshot> snapshot;
    // What Find found last, in this snapshot: requests ask for the same model again and again. Null
    // if it was found by another name than its own.
    mutable const ModelEntry* last = nullptr;
  };
  static constexpr size_t kNumSlots = 16;

  const Slot& ThreadSlot() const;

  std::mutex write_mutex_;  // one writer at a time
  std::array<Slot, kNumSlots> slots_;
};

// ---- the state of each version ----

// kLoading -> kReady | kUnavailable; kReady -> kUnloading -> kUnavailable. If a reload
// fails, a model that is kReady stays so.
enum class ModelState { kLoading, kReady, kUnloading, kUnavailable };

// "LOADING", "READY", "UNLOADING", "UNAVAILABLE".
const char* ModelStateName(ModelState state);

struct VersionStatus {
  ModelState state = ModelState::kUnavailable;
  std::string reason;  // why it is unavailable: an error message or "unloaded"
  // True if the server is not ready while this version is loading or unavailable: a version of a
  // required model (see LoadPlan). As in Triton, unavailable ensembles and models with an invalid
  // configuration do not count.
  bool affects_readiness = true;
};

using ModelStatuses = std::map<std::string, std::map<int64_t, VersionStatus>>;

// True if every version that affects readiness serves.
bool AllServing(const ModelStatuses& statuses);

// An entry of the model index: the list of all models that a client may request.
struct IndexEntry {
  static constexpr int64_t kNoVersion = -1;  // in a repository, but never requested to load
  std::string name;                          // the plain name
  int64_t version = kNoVersion;
  VersionStatus status;
};

// Lists the models in `statuses` and `scanned`, ordered by name, under their plain names if they
// are stored under qualified ones. With `ready_only`, only ready versions.
std::vector<IndexEntry> ListModels(ModelStatuses statuses, const ScannedModels& scanned,
                                   bool has_namespaces, bool ready_only);

// ---- the record of a model ----

// The load of one version.
struct VersionLoad {
  int64_t version = 0;
  uint64_t generation = 0;  // generation of the model object
  // The serving model that is kept; null if a new one is loaded.
  std::shared_ptr<Model> kept = nullptr;
  bool changes_instances = false;           // the instance groups of `kept` change
  std::shared_ptr<Model> loaded = nullptr;  // null if the load failed
  Status failure = Status::Ok();

  bool ok() const { return failure.ok(); }
  // For example "Internal: reason".
  std::string Reason() const;
  // For example "version 1 is at UNAVAILABLE state: Internal: reason;".
  std::string FailureText() const;
};

// What no longer serves. Released without locks, because the destruction of models may take long:
// the agents of the models are notified of the unload, then the models are dropped.
struct DroppedModels {
  DroppedModels() = default;
  DroppedModels(DroppedModels&&) = default;
  DroppedModels& operator=(DroppedModels&&) = default;
  ~DroppedModels();

  ModelTable::VersionMap models;
  std::vector<std::weak_ptr<AgentChain>> agents;  // an expired chain has finished by itself
};

// All that is known of one model. [under the lifecycle's mutex]
struct ModelRecord {
  struct Version {
    VersionStatus status;
    uint64_t generation = 0;  // generation of the model object that `status` describes; 0: none
    // Fingerprint and configuration of the last load, for comparison with the next one.
    std::optional<uint64_t> fingerprint;
    ModelConfig config;
  };

  bool is_loading = false;  // a load is in progress
  std::chrono::steady_clock::time_point load_start;
  size_t num_alive = 0;         // model objects, serving or replaced, that are not destroyed yet
  bool load_attempted = false;  // a load of the model was attempted
  bool is_required = false;     // see LoadPlan
  std::map<int64_t, Version> versions;
  ModelTable::VersionMap serving;
  std::optional<LoadedModel> loaded;  // the last successful load, unless it was unloaded since
  std::vector<std::weak_ptr<AgentChain>> agents;  // of the versions of `loaded`
  std::vector<std::string> unload_next;           // see ModelLifecycle::UnloadAfter
  // Generations that serve or served and are not destroyed yet.
  std::set<uint64_t> served_generations;

  std::set<int64_t> NotServing() const;
  // A load of a version begins: decides whether it is kept. A new model object is of `generation`.
  void Begin(const LoadPlan& plan, uint64_t generation, VersionLoad* load);
  // A load ends: if all versions have loaded, they replace the serving ones. Otherwise these serve
  // on. `is_new`: set if versions were added or removed.
  DroppedModels Finish(const LoadPlan& plan, const std::vector<VersionLoad>& loads, bool* is_new);
  // Records a load that failed before any version was loaded; see ModelLifecycle::RecordFailure.
  void RecordFailure(int64_t version, const std::string& reason, bool affects_readiness);
  // Nothing serves from now on.
  DroppedModels Unload();
  // The model is no longer what its last load made it; its versions serve on.
  DroppedModels Forget();
  // A model object was destroyed. Returns true if it served.
  bool OnDestroyed(int64_t version, uint64_t generation);

 private:
  void RecordResult(const LoadPlan& plan, const VersionLoad& load, bool serve);
  void RecordLoaded(const LoadPlan& plan, bool keeps_versions, DroppedModels* dropped);
};

// Logs failed loads, each where it is found. A poll tries a failing model again each time, and its
// failure is logged again only when it has changed.
class FailureLog {
 public:
  // Logs `text`, a failure of the model `name`. `fingerprint` tells states of the model's directory
  // apart; 0 where that is unknown. If `is_poll`, nothing is logged if both are as in the last
  // call.
  void Write(const std::string& name, uint64_t fingerprint, const std::string& text, bool is_poll);
  // The model has loaded: its next failure is logged.
  void Forget(const std::string& name);

 private:
  struct Failure {
    uint64_t fingerprint;
    std::string text;
  };
  std::mutex mutex_;                     // guards the member below
  std::map<std::string, Failure> last_;  // by the model's name
};

}  // namespace nereid::core
