// The life of each model version: loaded in parallel, swapped on reload, drained and unloaded; its
// state and the reason for it. Publishes what serves in the ModelTable. Knows names and versions,
// neither folders nor ensembles. [any thread]
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "host/core/repository/load_pool.h"
#include "host/core/repository/model_loader.h"
#include "host/core/repository/model_table.h"
#include "nereid/status.h"

namespace nereid {

// kLoading -> kReady | kUnavailable; kReady -> kUnloading -> kUnavailable. A reload that fails
// leaves kReady as it was.
enum class ModelState { kLoading, kReady, kUnloading, kUnavailable };

// "LOADING", "READY", "UNLOADING", "UNAVAILABLE".
const char* ModelStateName(ModelState state);

struct VersionStatus {
  ModelState state = ModelState::kUnavailable;
  std::string reason;  // why it is unavailable: an error, or "unloaded"
  // Counts against the server's readiness while it is unavailable. As in Triton, neither a model
  // whose configuration cannot be taken does so nor an ensemble.
  bool is_missed = true;
};

// It served, and was asked to leave.
inline bool IsUnloaded(const VersionStatus& status) {
  return status.state == ModelState::kUnavailable && status.reason == "unloaded";
}

using ModelStatuses = std::map<std::string, std::map<int64_t, VersionStatus>>;

class ModelLifecycle {
 public:
  // What one load is about: the versions that shall serve from then on. Those that serve as they
  // are meant to already stay; where the instance groups alone differ, they are changed in place.
  struct Plan {
    std::string name;
    std::string model_path;
    std::vector<int64_t> versions;
    ModelConfig config;
    std::shared_ptr<void> files;  // kept as long as the models live: a temporary folder, say
    // Of a version's files: one that served with another is loaded anew, as is one without.
    std::map<int64_t, uint64_t> prints;
  };

  struct Outcome {
    Status status;
    bool is_new = false;          // versions joined or left
    bool keeps_versions = false;  // some that served before stay
  };

  // `table` and `loader` outlive this object.
  ModelLifecycle(ModelTable* table, ModelLoader* loader, unsigned num_threads,
                 unsigned num_retries);
  // Waits for loads under way and drops what serves; models in use live on until their users are
  // done.
  ~ModelLifecycle();

  // Starts the load; waits only while another load or unload of the same model is under way. `done`
  // runs on a load thread when every version is loaded or has failed, before another load or unload
  // of the model begins. All versions must load, or what served before goes on, if anything did.
  void Load(Plan plan, std::function<void(Outcome)> done);
  // Returns when no load of `name` is under way.
  void WaitUntilIdle(const std::string& name) const;

  // When nothing of `name` is left after its next unload, `next` are unloaded too: the steps of an
  // ensemble serve until its last request is answered. A load of `name` cancels it.
  void ThenUnload(const std::string& name, std::vector<std::string> next);
  // False when one of them still served at the deadline.
  bool WaitUntilUnloading(const std::vector<std::string>& names,
                          std::chrono::steady_clock::time_point deadline);

  // Takes the model out of the table; its versions are gone when the last request is answered.
  // No-op for unknown names.
  void Unload(const std::string& name);

  // A load failed before anything was loaded. `is_missed`: see VersionStatus; as in Triton, nothing
  // is where a version of the model was loaded before, but what the server missed already.
  void RecordFailure(const std::string& name, int64_t version, const std::string& reason,
                     bool is_missed);

  // From now on the table says of `name` that it has no available versions, until one serves.
  void MakeKnown(const std::string& name);

  bool IsServing(const std::string& name) const;
  ModelStatuses Statuses() const;
  // Models, old and new, of which something is left.
  size_t num_alive() const;
  // Their names.
  std::vector<std::string> Alive() const;
  // False when something was left at the deadline.
  bool WaitUntilGone(std::chrono::steady_clock::time_point deadline);

 private:
  struct State;        // shared with the models' lifetime tokens, which may outlive this object
  struct Loading;      // one load under way
  struct VersionLoad;  // one version of it

  // Of a version that serves and may stay: what of it must change.
  void Prepare(const Plan& plan, VersionLoad* load);
  // Loads a version, or changes it in place.
  void Carry(const std::shared_ptr<Loading>& loading, VersionLoad* load);
  void LoadModel(const Plan& plan, VersionLoad* load);
  void Finish(Loading* loading);
  Outcome Publish(Loading* loading);

  ModelTable* const table_;
  ModelLoader* const loader_;
  const unsigned num_retries_;
  const std::shared_ptr<State> state_;
  std::unique_ptr<LoadPool> pool_;
};

}  // namespace nereid
