#include "host/core/repository/agents.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include "host/core/backend/plugin.h"
#include "host/core/config/config_loader.h"
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

constexpr std::chrono::seconds kFinalizeTimeout{5};

std::atomic<size_t> g_num_abandoned{0};

// Destroys `owned` on a detached thread and waits for it up to kFinalizeTimeout. `files` is kept
// until the agent has finished, because it may read them.
void FinalizeWithTimeout(std::unique_ptr<AgentModel> owned, std::shared_ptr<void> files) {
  enum class State { kEnding, kEnded, kAbandoned };
  const std::string agent = owned->agent_name(), location = owned->location();
  const auto state = std::make_shared<std::atomic<State>>(State::kEnding);
  const auto ended = RunDetached([model = owned.release(), files = std::move(files), state] {
    delete model;
    if (state->exchange(State::kEnded) == State::kAbandoned) --g_num_abandoned;
  });
  if (ended.wait_for(kFinalizeTimeout) == std::future_status::ready) return;
  ++g_num_abandoned;
  if (state->exchange(State::kAbandoned) == State::kEnded) {  // it finished meanwhile
    --g_num_abandoned;
    return;
  }
  NEREID_LOG_ERROR("repository agent '", agent, "' has not ended with '", location,
                   "': UNLOAD_COMPLETE, ModelFinalize or Finalize did not return within ",
                   kFinalizeTimeout.count(), " s");
}

}  // namespace

Result<std::shared_ptr<RepoAgent>> RepoAgent::Load(const std::string& name,
                                                   const std::string& path) {
  NEREID_ASSIGN_OR_RETURN(const SharedLibrary library, SharedLibrary::Open(path));
  EntryPoints entry;
#define NEREID_FIND(member, symbol) entry.member = library.Find<decltype(symbol)>(#symbol)
  NEREID_FIND(initialize, TRITONREPOAGENT_Initialize);
  NEREID_FIND(finalize, TRITONREPOAGENT_Finalize);
  NEREID_FIND(model_initialize, TRITONREPOAGENT_ModelInitialize);
  NEREID_FIND(model_finalize, TRITONREPOAGENT_ModelFinalize);
  NEREID_FIND(model_action, TRITONREPOAGENT_ModelAction);
#undef NEREID_FIND
  if (entry.model_action == nullptr) {
    return NotFoundError("repository agent library '", path,
                         "' does not export TRITONREPOAGENT_ModelAction");
  }
  std::shared_ptr<RepoAgent> agent(new RepoAgent(name, path, entry));
  if (entry.initialize != nullptr) {
    Status status =
        GuardedCall(name, "Initialize", [&] { return entry.initialize(ToHandle(agent.get())); });
    if (!status.ok()) {
      return std::move(status).WithContext(
          StrCat("repository agent '", name, "' failed to initialise"));
    }
  }
  return agent;
}

RepoAgent::~RepoAgent() {
  if (entry_points_.finalize == nullptr) return;
  const Status status =
      GuardedCall(name_, "Finalize", [&] { return entry_points_.finalize(ToHandle(this)); });
  if (!status.ok()) {
    NEREID_LOG_ERROR("repository agent '", name_, "' failed to finalise: ", status.message());
  }
}

Result<std::string> RepoAgents::FindLibrary(const std::string& name) const {
  if (name.empty() || name.front() == '.' || name.find('/') != std::string::npos) {
    return InvalidArgError("repository agent: expected a name, got '", name, "'");
  }
  std::string searched;
  for (const std::string& dir : dirs_) {
    const auto path =
        std::filesystem::path(dir) / name / StrCat("libtritonrepoagent_", name, ".so");
    std::error_code error;
    if (std::filesystem::is_regular_file(path, error)) return path.string();
    searched += StrCat(searched.empty() ? "" : ", ", path.string());
  }
  return NotFoundError("unable to find the library of repository agent '", name, "'; looked for ",
                       searched);
}

Result<std::shared_ptr<RepoAgent>> RepoAgents::Get(const std::string& name) {
  std::lock_guard lock(mutex_);
  if (auto agent = agents_[name].lock()) return agent;
  NEREID_ASSIGN_OR_RETURN(const std::string path, FindLibrary(name));
  NEREID_ASSIGN_OR_RETURN(auto agent, RepoAgent::Load(name, path));
  agents_[name] = agent;
  return agent;
}

std::map<std::string, std::string> RepoAgents::List() const {
  std::lock_guard lock(mutex_);
  std::map<std::string, std::string> list;
  for (const auto& [name, weak] : agents_) {
    if (const auto agent = weak.lock()) list[name] = agent->path();
  }
  return list;
}

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

AgentChain::~AgentChain() {
  for (auto& model : models_) FinalizeWithTimeout(std::move(model), files_);
}

size_t AgentChain::NumUnfinished() {
  return g_num_abandoned;
}

Result<std::shared_ptr<AgentChain>> AgentChain::Load(RepoAgents* agents, const ModelConfig& config,
                                                     std::string model_path,
                                                     std::shared_ptr<void> files) {
  std::shared_ptr<AgentChain> chain(new AgentChain(std::move(model_path), std::move(files)));
  for (const RepositoryAgent& configured : config.repository_agents) {
    NEREID_ASSIGN_OR_RETURN(auto agent, agents->Get(configured.name));
    auto model = std::make_unique<AgentModel>(std::move(agent), chain->location_,
                                              config::JsonText(config), configured.parameters);
    Status status = model->Load();
    if (!status.ok()) {
      FinalizeWithTimeout(std::move(model), chain->files_);
      // The agent's message comes first: scripts expect it directly after the model's name.
      return Status(status.code(),
                    StrCat(status.message(), " (repository agent '", configured.name, "')"));
    }
    chain->location_ = model->location();
    chain->models_.push_back(std::move(model));
  }
  return chain;
}

void AgentChain::FinishLoad(bool loaded) {
  std::lock_guard lock(mutex_);
  for (const auto& model : models_) model->FinishLoad(loaded);
}

void AgentChain::Unload() {
  std::lock_guard lock(mutex_);
  for (const auto& model : models_) model->Unload();
}

}  // namespace nereid::core
