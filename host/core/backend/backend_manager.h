// Loads backends on first use and keeps them until the server ends. One per server. [any thread]
#pragma once

#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "host/core/backend/backend.h"

namespace nereid::core {

struct BackendOptions {
  std::vector<std::string> backend_dirs;  // in search order
  bool auto_complete_config = true;
  double min_compute_capability = 0;
  // Settings by backend name; "" holds the settings of all backends (--backend-config).
  std::map<std::string, std::vector<std::pair<std::string, std::string>>> settings;
};

class BackendManager {
 public:
  BackendManager(BackendOptions options, MemoryManager* memory)
      : options_(std::move(options)), memory_(memory) {}

  // Finds the model's backend and loads it on first use. The manager owns the result.
  Result<Backend*> Get(const ModelConfig& config, const std::string& model_dir, int64_t version);
  // Registers a backend without a library under `name`, for tests.
  Status AddBuiltIn(const std::string& name, const BackendEntryPoints& entry_points);
  // Finalizes all backends; nothing may use them any more. They are finalized one after the other
  // until `timeout_ns` has passed. The remaining ones are then finalized concurrently, with one
  // more second. Returns false if a backend did not finish: it is logged and keeps running, so all
  // objects that it uses must be leaked.
  bool FinalizeAll(uint64_t timeout_ns);

  const BackendOptions& options() const { return options_; }
  // Name, library path and configuration of a loaded backend, for the start-up table.
  struct Loaded {
    std::string name, library, config_json;
  };
  std::vector<Loaded> List() const;

 private:
  struct Slot {
    // Result of the first load, for which other callers wait.
    std::shared_future<Result<Backend*>> result;
    std::unique_ptr<Backend> backend;
  };
  Result<Backend*> Load(const BackendLocation& location);
  Backend* FindBuiltIn(const std::string& name) const;
  std::string ConfigJson(const BackendLocation& location) const;

  const BackendOptions options_;
  MemoryManager* const memory_;
  mutable std::mutex mutex_;  // guards slots_; never held while backend code runs
  // The key is the library's path, followed by the directory of a Python-based backend.
  std::map<std::string, Slot> slots_;
};

}  // namespace nereid::core
