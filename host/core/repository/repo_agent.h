// A repository agent library `libtritonrepoagent_<name>.so` (TRITONREPOAGENT_Agent). Lives as long
// as a model that it processed. [load threads, unloading threads]
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "host/core/handle/handle_cast.h"
#include "nereid/status.h"
#include "triton/core/tritonrepoagent.h"

namespace nereid::core {

class RepoAgent {
 public:
  struct EntryPoints {
    decltype(&TRITONREPOAGENT_Initialize) initialize = nullptr;
    decltype(&TRITONREPOAGENT_Finalize) finalize = nullptr;
    decltype(&TRITONREPOAGENT_ModelInitialize) model_initialize = nullptr;
    decltype(&TRITONREPOAGENT_ModelFinalize) model_finalize = nullptr;
    decltype(&TRITONREPOAGENT_ModelAction) model_action = nullptr;  // never null
  };

  // Opens the library at `path` and initialises the agent.
  static Result<std::shared_ptr<RepoAgent>> Load(const std::string& name, const std::string& path);
  // Finalizes the agent.
  ~RepoAgent();
  RepoAgent(const RepoAgent&) = delete;
  RepoAgent& operator=(const RepoAgent&) = delete;

  const std::string& name() const { return name_; }
  const std::string& path() const { return path_; }
  const EntryPoints& entry_points() const { return entry_points_; }
  void* state() const { return state_; }
  void set_state(void* state) { state_ = state; }

 private:
  RepoAgent(std::string name, std::string path, const EntryPoints& entry_points)
      : name_(std::move(name)), path_(std::move(path)), entry_points_(entry_points) {}

  const std::string name_;
  const std::string path_;
  const EntryPoints entry_points_;
  void* state_ = nullptr;
};

// Finds and loads agents; each is loaded once while models use it. [any thread]
class RepoAgents {
 public:
  explicit RepoAgents(std::vector<std::string> dirs) : dirs_(std::move(dirs)) {}

  // Loads the agent from the first directory that contains <name>/libtritonrepoagent_<name>.so.
  // NOT_FOUND lists the searched paths.
  Result<std::shared_ptr<RepoAgent>> Get(const std::string& name);
  // Names and library paths of the loaded agents.
  std::map<std::string, std::string> List() const;

 private:
  Result<std::string> FindLibrary(const std::string& name) const;

  const std::vector<std::string> dirs_;
  mutable std::mutex mutex_;  // guards agents_; held while an agent initialises
  std::map<std::string, std::weak_ptr<RepoAgent>> agents_;
};

}  // namespace nereid::core

NEREID_HANDLE(TRITONREPOAGENT_Agent, nereid::core::RepoAgent);
