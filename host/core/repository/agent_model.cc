#include "host/core/repository/agent_model.h"

#include <filesystem>
#include <system_error>

#include "host/core/backend/plugin.h"
#include "host/core/observe/log.h"

namespace nereid::core {
namespace {

const char* ActionName(TRITONREPOAGENT_ActionType action) {
  switch (action) {
    case TRITONREPOAGENT_ACTION_LOAD:
      return "LOAD";
    case TRITONREPOAGENT_ACTION_LOAD_COMPLETE:
      return "LOAD_COMPLETE";
    case TRITONREPOAGENT_ACTION_LOAD_FAIL:
      return "LOAD_FAIL";
    case TRITONREPOAGENT_ACTION_UNLOAD:
      return "UNLOAD";
    case TRITONREPOAGENT_ACTION_UNLOAD_COMPLETE:
      break;
  }
  return "UNLOAD_COMPLETE";
}

}  // namespace

AgentModel::AgentModel(std::shared_ptr<RepoAgent> agent, std::string location,
                       std::string config_json,
                       const std::map<std::string, std::string>& parameters)
    : agent_(std::move(agent)),
      location_(std::move(location)),
      config_json_(std::move(config_json)),
      parameters_(parameters.begin(), parameters.end()) {}

Status AgentModel::CallAction(TRITONREPOAGENT_ActionType action) {
  return GuardedCall(agent_->name(), ActionName(action), [&] {
    return agent_->entry_points().model_action(ToHandle(agent_.get()), ToHandle(this), action);
  });
}

void AgentModel::CallActionAndLog(TRITONREPOAGENT_ActionType action) {
  const Status status = CallAction(action);
  if (status.ok()) return;
  NEREID_LOG_ERROR("repository agent '", agent_->name(), "': ", ActionName(action), " of '",
                   location_, "' failed: ", status.message());
}

Status AgentModel::Load() {
  const auto initialize = agent_->entry_points().model_initialize;
  initialized_ = true;
  if (initialize != nullptr) {
    NEREID_RETURN_IF_ERROR(GuardedCall(agent_->name(), "ModelInitialize", [&] {
      return initialize(ToHandle(agent_.get()), ToHandle(this));
    }));
  }
  stage_ = Stage::kLoading;
  Status status = CallAction(TRITONREPOAGENT_ACTION_LOAD);
  // An agent that rejected the load is not told that it failed.
  stage_ = status.ok() ? Stage::kLoadPending : Stage::kDone;
  return status;
}

void AgentModel::FinishLoad(bool loaded) {
  if (stage_ != Stage::kLoadPending) return;
  CallActionAndLog(loaded ? TRITONREPOAGENT_ACTION_LOAD_COMPLETE
                          : TRITONREPOAGENT_ACTION_LOAD_FAIL);
  stage_ = loaded ? Stage::kLoaded : Stage::kDone;
}

void AgentModel::Unload() {
  if (stage_ != Stage::kLoaded) return;
  CallActionAndLog(TRITONREPOAGENT_ACTION_UNLOAD);
  stage_ = Stage::kUnloadPending;
}

AgentModel::~AgentModel() {
  FinishLoad(false);
  Unload();
  if (stage_ == Stage::kUnloadPending) CallActionAndLog(TRITONREPOAGENT_ACTION_UNLOAD_COMPLETE);
  const auto finalize = agent_->entry_points().model_finalize;
  if (!initialized_ || finalize == nullptr) return;
  const Status status = GuardedCall(agent_->name(), "ModelFinalize", [&] {
    return finalize(ToHandle(agent_.get()), ToHandle(this));
  });
  if (!status.ok()) {
    NEREID_LOG_ERROR("repository agent '", agent_->name(), "': ModelFinalize of '", location_,
                     "' failed: ", status.message());
  }
}

Result<const char*> AgentModel::AcquireFolder() {
  NEREID_ASSIGN_OR_RETURN(TempFolder folder, TempFolder::Create());
  const std::string path = folder.path();
  return folders_.emplace(path, std::move(folder)).first->first.c_str();
}

Status AgentModel::ReleaseFolder(const std::string& path) {
  if (folders_.erase(path) > 0) return Status::Ok();
  return InvalidArgError("location '", path, "' was not acquired for this model");
}

Status AgentModel::MoveTo(const std::string& location) {
  if (stage_ != Stage::kLoading) {
    return InvalidArgError("location '", location,
                           "': a model's location can be set only during the action LOAD");
  }
  std::error_code error;
  if (!std::filesystem::is_directory(location, error)) {
    return InvalidArgError("location '", location, "': no such folder");
  }
  location_ = location;
  return Status::Ok();
}

}  // namespace nereid::core
