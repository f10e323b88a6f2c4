// The instances of a model: creates them, starts their threads, changes them while the model serves
// and finalizes those that were removed. Part of a Model, whose configuration, backend and services
// it reads. [any thread, unless a function says otherwise]
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "host/core/backend/instance.h"
#include "host/core/config/model_config.h"
#include "host/core/model/instance_specs.h"
#include "host/core/model/instance_thread.h"
#include "host/core/request/infer_request.h"
#include "host/core/scheduling/scheduler.h"
#include "nereid/status.h"

namespace nereid::core {

class Model;  // model/model.h

class ModelInstances {
 public:
  explicit ModelInstances(Model* model) : model_(model) {}

  // Creates and initializes the instances of the model's configuration. [load thread]
  Status Create();
  // Instances that execute requests. The others are passive: only their backend uses them, and they
  // have no thread. [load thread]
  size_t num_active() const;
  // Binds the active instances to `scheduler`, which must outlive them, and runs the warm-up. A
  // system thread starts now only if it has work before the first request. [load thread]
  Status Bind(Scheduler* scheduler);
  // Stops and finalizes all instances, after the scheduler was stopped. [reaper thread]
  void Clear();

  // Starts the threads of all instances, unless they run. Called for each request.
  Status EnsureStarted() {
    return threads_started_.load(std::memory_order_acquire) ? Status::Ok() : StartThreads();
  }
  // Executes the request on the first instance through its inline entry point.
  void ExecuteInline(InferRequest* request);
  // Ok if the backend reports every instance as ready.
  Status CheckReady() const;
  // The only instance; null if there are several.
  std::shared_ptr<Instance> Single() const;

  // Changes the instances to those of `config`. New instances serve when this returns. Surplus
  // instances finish their requests and end; returns their indices. On error nothing changes. [one
  // load thread at a time]
  Result<std::vector<size_t>> Update(const ModelConfig& config);
  // Waits until the surplus instances of Update have been finalized, but at most some seconds. Does
  // not wait for instances with open sequences or with requests that the backend has not released.
  void WaitForRetired(const std::vector<size_t>& indices);

 private:
  // An instance with its instance group and its thread.
  struct ManagedInstance {
    InstanceGroup group;
    std::shared_ptr<Instance> instance;
    std::unique_ptr<InstanceThread> thread;  // null: passive instance
  };
  using ManagedInstances = std::vector<ManagedInstance>;

  ManagedInstances Make(std::vector<InstanceSpec> specs, const ModelConfig& config) const;
  Status Initialize(const ManagedInstances& instances) const;
  // Creates the thread object of an instance. `index`: of the instance in the scheduler.
  // `may_serve`: see InstanceThread.
  Status CreateThread(ManagedInstance* managed, size_t index, std::shared_future<bool> may_serve);
  Status StartThreads();
  // Starts the threads of added instances. They serve once all of them are warm; if one fails, none
  // serves.
  Status StartAdded(ManagedInstances* instances);
  // Retires instances: each finishes its requests and is then finalized. Returns the indices of
  // their threads.
  std::vector<size_t> Retire(ManagedInstances instances);
  // The thread of instance `index` has executed its last batch. [that thread]
  void OnThreadEnding(size_t index);
  // Finalizes the retired instance `index` on a reaper thread if the backend has released all of
  // its requests. Otherwise checks again after `retry_ns`, which doubles each time.
  void FinalizeRetired(size_t index, uint64_t retry_ns);

  Model* const model_;
  Scheduler* scheduler_ = nullptr;  // null before Bind
  size_t next_index_ = 0;           // next instance index [load thread]
  // One per GPU, for DEVICE_BLOCKING backends. [load thread]
  std::map<int32_t, std::shared_ptr<std::mutex>> device_mutexes_;
  std::atomic<bool> threads_started_{false};
  mutable std::mutex mutex_;  // guards what follows
  ManagedInstances instances_;
  ManagedInstances retiring_;           // instances removed by Update, until they are finalized
  std::set<size_t> unchecked_indices_;  // indices of retiring instances that were not checked yet
  std::condition_variable retired_ended_;
};

}  // namespace nereid::core
