#include "host/core/repository/repo_agent.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "host/core/backend/plugin.h"
#include "host/core/observe/log.h"

namespace nereid::core {

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

}  // namespace nereid::core
