// The status of models: the state of each version with its reason, the index and the readiness made
// from them, and the log of failures. No threads; ModelLifecycle guards its records. [any thread]
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "host/core/config/model_config.h"
#include "host/core/repository/model_table.h"
#include "host/core/repository/plan.h"
#include "nereid/status.h"

namespace nereid::core {

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
