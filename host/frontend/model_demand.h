// Loads models when a request names them, within a memory budget, and unloads those that have been
// idle. A model that has to leave for another one first answers its requests; requests that arrive
// for it meanwhile wait, in order of arrival, until it is loaded again. [any thread]
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "nereid/server.h"
#include "nereid/status.h"

namespace nereid {

struct ModelDemandOptions {
  struct Model {
    std::string name;
    uint64_t num_bytes = 0;  // that it takes of the budget while it is loaded
  };
  std::vector<Model> models;         // empty: no model is loaded on demand
  uint64_t max_bytes = 0;            // of the loaded models together; 0: no limit
  std::chrono::seconds max_idle{0};  // 0: no limit
};

// What ModelDemand needs of a server. The functions that block run on its thread.
class ModelControl {
 public:
  virtual ~ModelControl() = default;
  virtual bool IsReady(const std::string& name) const = 0;
  // True if a request has reached the model within this time, over any protocol.
  virtual bool WasUsedWithin(const std::string& name, std::chrono::seconds time) const = 0;
  // Blocks until the model is ready.
  virtual Status Load(const std::string& name) = 0;
  // Blocks until the model's memory is free.
  virtual Status Unload(const std::string& name) = 0;
};

// `server` outlives the object.
std::unique_ptr<ModelControl> ControlOf(const Server& server);

class ModelDemand {
 public:
  // Keeps its model loaded. The object outlives it.
  using Lease = std::shared_ptr<const void>;
  using OnReady = std::function<void(Result<Lease>)>;

  ModelDemand(const ModelDemandOptions& options, std::unique_ptr<ModelControl> control);
  ~ModelDemand() { Stop(); }
  ModelDemand(const ModelDemand&) = delete;
  ModelDemand& operator=(const ModelDemand&) = delete;

  // Ends requests that wait, and all later ones, with UNAVAILABLE. Leases may still be released.
  void Stop();

  bool Knows(const std::string& name) const { return models_.contains(name); }
  std::vector<std::string> names() const;

  // Returns a lease if the model, which is known, is loaded. Otherwise returns null and calls
  // `on_ready` later on the object's thread, with the load's error if it fails. UNAVAILABLE if too
  // many requests wait.
  Result<Lease> Use(const std::string& name, OnReady on_ready);

 private:
  using Clock = std::chrono::steady_clock;
  using Lock = std::unique_lock<std::mutex>;

  struct Model {
    std::string name;
    uint64_t num_bytes = 0;
    size_t num_leases = 0;
    Clock::time_point used_at;
    bool is_changing = false;  // it is being loaded or unloaded, or answers its last requests
  };
  struct Waiting {
    Model* model;
    OnReady on_ready;
  };

  void Run();
  void ServeNext(Lock& lock);
  Status MakeReady(Model& model, Lock& lock);
  Status MakeRoomFor(const Model& model, Lock& lock);
  Status Unload(Model& model, Lock& lock);
  void UnloadIdle(Lock& lock);
  Model* ChooseVictim(const Model& model);
  uint64_t BytesBeside(const Model& model) const;
  Lease MakeLease(Model& model);
  void Release(Model& model);

  const uint64_t max_bytes_;
  const std::chrono::seconds max_idle_;
  const std::unique_ptr<ModelControl> control_;
  std::mutex mutex_;                     // guards the models and all members below
  std::map<std::string, Model> models_;  // the names never change
  std::condition_variable changed_;
  std::deque<Waiting> waiting_;
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace nereid
