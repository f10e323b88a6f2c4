// Every backend that was ever needed, by library path. One a server; backends stay until it ends.
// [any thread]
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

namespace nereid {

struct BackendOptions {
  std::vector<std::string> backend_dirs;  // in search order
  bool auto_complete_config = true;
  double min_compute_capability = 0;
  // Settings by backend name, "" for all of them: --backend-config.
  std::map<std::string, std::vector<std::pair<std::string, std::string>>> settings;
};

class BackendManager {
 public:
  BackendManager(BackendOptions options, MemoryManager* memory)
      : options_(std::move(options)), memory_(memory) {}

  // Finds the model's backend and loads it at its first use. The result lives as long as this.
  Result<Backend*> Get(const ModelConfig& config, const std::string& model_dir, int64_t version);
  // Makes a backend known under `name` without a library: for tests.
  Status AddBuiltIn(const std::string& name, const BackendEntryPoints& entry_points);
  // Ends every backend, once nobody uses one any more: each after the one before, and those that
  // are left at the deadline at once, which have a second then. False where one did not end: it is
  // named in the log, runs on, and needs all that it was given.
  bool EndAll(uint64_t timeout_ns);

  const BackendOptions& options() const { return options_; }
  // Names, paths and configurations of what is loaded, for the start-up table.
  struct Loaded {
    std::string name, library, config_json;
  };
  std::vector<Loaded> List() const;

 private:
  struct Slot {
    std::shared_future<Result<Backend*>> result;  // of the first load, which others wait for
    std::unique_ptr<Backend> backend;
  };
  Result<Backend*> Load(const BackendLocation& location);
  Backend* FindBuiltIn(const std::string& name) const;
  std::string ConfigJson(const BackendLocation& location) const;

  const BackendOptions options_;
  MemoryManager* const memory_;
  mutable std::mutex mutex_;           // guards slots_; never held while a backend runs
  std::map<std::string, Slot> slots_;  // by library path, and name of a python-based backend
};

}  // namespace nereid
