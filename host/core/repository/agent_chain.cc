#include "host/core/repository/agent_chain.h"

#include <atomic>
#include <chrono>
#include <utility>

#include "host/core/backend/plugin.h"
#include "host/core/config/config_loader.h"
#include "host/core/observe/log.h"

namespace nereid::core {
namespace {

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
