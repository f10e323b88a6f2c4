// One model under one agent: TRITONREPOAGENT_AgentModel. Takes the model through LOAD,
// LOAD_COMPLETE or LOAD_FAIL, UNLOAD and UNLOAD_COMPLETE; whatever is still owed is done at the
// end. [one thread at a time]
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

namespace nereid {

class AgentModel {
 public:
  using Parameters = std::vector<std::pair<std::string, std::string>>;

  // `config_json` is what the model's configuration was before any agent.
  AgentModel(std::shared_ptr<RepoAgent> agent, std::string location, std::string config_json,
             const std::map<std::string, std::string>& parameters);
  // Ends the sequence and finalises.
  ~AgentModel();
  AgentModel(const AgentModel&) = delete;
  AgentModel& operator=(const AgentModel&) = delete;

  // ModelInitialize and the action LOAD: afterwards location() may be another. The agent's refusal
  // is the load's.
  Status Load();
  // Tells the agent how the load ended. Errors of this and what follows are logged.
  void FinishLoad(bool loaded);
  void Unload();

  const std::string& agent_name() const { return agent_->name(); }
  const std::string& location() const { return location_; }
  const std::string& config_json() const { return config_json_; }
  const Parameters& parameters() const { return parameters_; }
  void* state() const { return state_; }
  void set_state(void* state) { state_ = state; }

  // ---- what the agent asks for ----
  // A new folder; text and folder live until it is released or this object ends.
  Result<const char*> AcquireFolder();
  // INVALID_ARG when `path` was not acquired here.
  Status ReleaseFolder(const std::string& path);
  // INVALID_ARG outside LOAD or when there is no such folder.
  Status MoveTo(const std::string& location);

 private:
  enum class Stage { kNew, kLoading, kLoadOwed, kLoaded, kUnloadOwed, kDone };
  Status Act(TRITONREPOAGENT_ActionType action);
  void ActAndLog(TRITONREPOAGENT_ActionType action);

  const std::shared_ptr<RepoAgent> agent_;
  std::string location_;
  const std::string config_json_;
  const Parameters parameters_;
  std::map<std::string, TempFolder> folders_;  // by path
  Stage stage_ = Stage::kNew;
  bool initialized_ = false;
  void* state_ = nullptr;
};

}  // namespace nereid

NEREID_HANDLE(TRITONREPOAGENT_AgentModel, nereid::AgentModel);
