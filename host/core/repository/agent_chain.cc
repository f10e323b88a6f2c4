#include "repository/agent_chain.h"

#include <utility>

#include "config/config_loader.h"

namespace nereid {

Result<std::shared_ptr<AgentChain>> AgentChain::Load(RepoAgents* agents, const ModelConfig& config,
                                                     std::string model_path,
                                                     std::shared_ptr<void> files) {
  std::shared_ptr<AgentChain> chain(new AgentChain(std::move(model_path), std::move(files)));
  for (const RepositoryAgent& wanted : config.repository_agents) {
    NEREID_ASSIGN_OR_RETURN(auto agent, agents->Get(wanted.name));
    auto model = std::make_unique<AgentModel>(std::move(agent), chain->location_,
                                              config::JsonText(config), wanted.parameters);
    Status status = model->Load();
    if (!status.ok()) {
      return std::move(status).WithContext(
          StrCat("repository agent '", wanted.name, "' refused model '", config.name, "'"));
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

}  // namespace nereid
