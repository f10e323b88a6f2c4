// Repository agents: the libraries, and what they do with one model. [load threads, unloading
// threads]
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "host/core/config/model_config.h"
#include "host/core/handle/handle_cast.h"
#include "host/core/repository/folders.h"
#include "nereid/status.h"
#include "triton/core/tritonrepoagent.h"

namespace nereid::core {

// A repository agent library `libtritonrepoagent_<name>.so` (TRITONREPOAGENT_Agent). Lives as long
// as a model that it processed.
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

// A model as seen by one agent (TRITONREPOAGENT_AgentModel). Takes the model through the actions
// LOAD, LOAD_COMPLETE or LOAD_FAIL, UNLOAD and UNLOAD_COMPLETE. The destructor performs the
// outstanding actions. [one thread at a time]
class AgentModel {
 public:
  using Parameters = std::vector<std::pair<std::string, std::string>>;

  // `config_json` is the model's configuration before any agent changed it.
  AgentModel(std::shared_ptr<RepoAgent> agent, std::string location, std::string config_json,
             const std::map<std::string, std::string>& parameters);
  // Performs the outstanding actions and calls ModelFinalize.
  ~AgentModel();
  AgentModel(const AgentModel&) = delete;
  AgentModel& operator=(const AgentModel&) = delete;

  // Calls ModelInitialize and the action LOAD, which may change location(). An error of the agent
  // fails the load.
  Status Load();
  // Calls LOAD_COMPLETE or LOAD_FAIL. Errors of this and the following actions are only logged.
  void FinishLoad(bool loaded);
  void Unload();

  const std::string& agent_name() const { return agent_->name(); }
  const std::string& location() const { return location_; }
  const std::string& config_json() const { return config_json_; }
  const Parameters& parameters() const { return parameters_; }
  void* state() const { return state_; }
  void set_state(void* state) { state_ = state; }

  // ---- called by the agent through the C API ----
  // Creates a directory. The path and the directory live until ReleaseFolder or the end of this
  // object.
  Result<const char*> AcquireFolder();
  // INVALID_ARG if `path` was not acquired here.
  Status ReleaseFolder(const std::string& path);
  // INVALID_ARG outside the action LOAD, or if the directory does not exist.
  Status MoveTo(const std::string& location);

 private:
  enum class Stage { kNew, kLoading, kLoadPending, kLoaded, kUnloadPending, kDone };
  Status CallAction(TRITONREPOAGENT_ActionType action);
  void CallActionAndLog(TRITONREPOAGENT_ActionType action);

  const std::shared_ptr<RepoAgent> agent_;
  std::string location_;
  const std::string config_json_;
  const Parameters parameters_;
  std::map<std::string, TempFolder> folders_;  // by path
  Stage stage_ = Stage::kNew;
  bool initialized_ = false;
  void* state_ = nullptr;
};

// The repository agents of one load of a model, in the order of the configuration. Each may
// relocate the model's files before the next one sees them. Lives as long as any object of the
// load. [one thread at a time]
class AgentChain {
 public:
  // Finalizes the agent models in order, and then agents that no other model uses. Agents that do
  // not return within kFinalizeTimeout are logged and keep running on detached threads.
  ~AgentChain();
  // Number of agents that are still running such a finalization. While it is not 0, the process
  // must not end by exit().
  static size_t NumUnfinished();

  // Runs the action LOAD of all agents of the configuration; the first error ends it. `files` owns
  // the files in `model_path`, if they are temporary; may be null.
  static Result<std::shared_ptr<AgentChain>> Load(RepoAgents* agents, const ModelConfig& config,
                                                  std::string model_path,
                                                  std::shared_ptr<void> files);

  // The directory to load the model from.
  const std::string& location() const { return location_; }
  void FinishLoad(bool loaded);
  // The model is being unloaded. UNLOAD_COMPLETE follows on destruction.
  void Unload();

 private:
  AgentChain(std::string location, std::shared_ptr<void> files)
      : files_(std::move(files)), location_(std::move(location)) {}

  const std::shared_ptr<void> files_;
  std::string location_;
  std::mutex mutex_;  // guards what follows: a load and an unload of a model may run concurrently
  std::vector<std::unique_ptr<AgentModel>> models_;
};

}  // namespace nereid::core

NEREID_HANDLE(TRITONREPOAGENT_Agent, nereid::core::RepoAgent);
NEREID_HANDLE(TRITONREPOAGENT_AgentModel, nereid::core::AgentModel);
