// A model as seen by one agent (TRITONREPOAGENT_AgentModel). Takes the model through the actions
// LOAD, LOAD_COMPLETE or LOAD_FAIL, UNLOAD and UNLOAD_COMPLETE. The destructor performs the
// outstanding actions. [one thread at a time]
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "host/core/handle/handle_cast.h"
#include "host/core/repository/repo_agent.h"
#include "host/core/repository/temp_folder.h"
#include "nereid/status.h"
#include "triton/core/tritonrepoagent.h"

namespace nereid::core {

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

}  // namespace nereid::core

NEREID_HANDLE(TRITONREPOAGENT_AgentModel, nereid::core::AgentModel);
