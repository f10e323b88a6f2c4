// Actions: loads the versions of models in parallel, replaces them on reload and unloads them.
// Keeps the record of each model (status.h) and publishes the serving versions in the ModelTable.
// Knows names and versions, but no directories. [any thread]
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "host/core/config/model_config.h"
#include "host/core/repository/load_thread_pool.h"
#include "host/core/repository/plan.h"
#include "host/core/repository/status.h"
#include "nereid/status.h"

namespace nereid::core {

class Model;  // model/model.h

struct ModelLoadRequest {
  std::string name;
  int64_t version = 0;
  std::string model_path;  // directory of config.pbtxt; version files are in <model_path>/<version>
  ModelConfig config;      // from ReadModelConfig
  // The model releases it after its instances and itself were finalized and their memory was freed,
  // or when loading fails. This notifies the lifecycle that an unload is complete.
  std::shared_ptr<void> lifetime;
};

// The interface between the model lifecycle (repository/) and models (model/): the lifecycle
// requests models from a loader and does not know backends. server.cc implements it with model/,
// tests implement it with fakes.
class ModelLoader {
 public:
  virtual ~ModelLoader() = default;
  // Blocks until the model can execute requests. [a load thread; several at once]
  virtual Result<std::shared_ptr<Model>> Load(ModelLoadRequest request) = 0;
  // Changes the instances of a serving model to those of `config`. On error the model serves
  // unchanged. [a load thread; one at a time per model]
  virtual Status UpdateInstances(Model* model, const ModelConfig& config) = 0;
};

class ModelLifecycle {
 public:
  struct Outcome {
    Status status;
    bool is_new = false;  // versions were added or removed
  };

  // `table` and `loader` must outlive this object.
  ModelLifecycle(ModelTable* table, ModelLoader* loader, unsigned num_threads, unsigned num_retries,
                 LoadLimits limits = {});
  // Waits for loads in progress and drops the serving models. Models in use live until their users
  // release them.
  ~ModelLifecycle();

  // Starts the load. Waits only while another load or unload of the same model is in progress.
  // `done` runs on a load thread, also if a version failed: the previously serving versions
  // continue to serve then. It runs with UNAVAILABLE on the calling thread if another load of the
  // model is stalled (see LoadThreadPool).
  void Load(LoadPlan plan, std::function<void(Outcome)> done);
  // Returns when no load of `name` is in progress. UNAVAILABLE if that load is stalled.
  Status WaitUntilIdle(const std::string& name) const;
  bool IsLoading(const std::string& name) const;

  // After the next unload of `name`, when its last model object is destroyed, unloads `next`, too:
  // the steps of an ensemble serve until its last request is answered. A load of `name` cancels
  // this. A step that is loaded again before, or that a loaded ensemble calls, serves on.
  void UnloadAfter(const std::string& name, const std::vector<std::string>& next);
  // Returns false if one of `names` still serves at the deadline.
  bool WaitUntilUnloading(const std::vector<std::string>& names,
                          std::chrono::steady_clock::time_point deadline);

  // Removes the model from the table. Its versions are destroyed when their last request is
  // answered. No-op for unknown names. Waits while a load of the model is in progress; UNAVAILABLE
  // if that load is stalled.
  Status Unload(const std::string& name);
  // Like Unload, but does nothing while a load of the model is in progress.
  void UnloadIfIdle(const std::string& name);

  // Logs failed loads of all versions.
  FailureLog& failures() { return failures_; }
  // Records a load that failed before any version was loaded. `affects_readiness`: see
  // VersionStatus. As in Triton, it is ignored if a version of the model was loaded before, but a
  // status that already affected readiness keeps doing so.
  void RecordFailure(const std::string& name, int64_t version, const std::string& reason,
                     bool affects_readiness);

  // Publishes `name` without versions if none serves, so that requests get the error "has no
  // available versions".
  void PublishUnavailable(const std::string& name);

  bool IsServing(const std::string& name) const;
  // True if the model serves and the load would change nothing.
  bool IsCurrent(const LoadPlan& plan) const;
  ModelStatuses Statuses() const;
  LoadedModels Loaded() const;
  // Number of model objects, serving or replaced, that are not destroyed yet.
  size_t num_alive() const;
  // Their quoted names. Those that are being loaded are followed by the age of their load.
  std::vector<std::string> LiveModels() const;
  // True if a load is in progress.
  bool HasLoads() const;
  // True if every model object that is not destroyed belongs to a load in progress.
  bool OnlyLoadsAreLeft() const;
  // Returns false if model objects are left at the deadline.
  bool WaitUntilDestroyed(std::chrono::steady_clock::time_point deadline);

 private:
  struct State;    // shared with the models' lifetime tokens, which may outlive this object
  struct Loading;  // one load in progress

  // Loads one version or changes its instances in place. Returns what tells the outcome if all
  // versions have ended, else null. [load thread]
  std::function<void()> LoadVersion(const std::shared_ptr<Loading>& loading, VersionLoad* load);
  void LoadModel(const LoadPlan& plan, VersionLoad* load);
  Outcome Finish(Loading* loading);

  ModelTable* const table_;
  ModelLoader* const loader_;
  const unsigned num_retries_;
  FailureLog failures_;
  const std::shared_ptr<State> state_;
  std::unique_ptr<LoadThreadPool> pool_;
};

}  // namespace nereid::core
