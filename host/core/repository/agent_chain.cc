#include "host/core/repository/agent_chain.h"

#include <atomic>
#include <chrono>
#include <utility>

#include "host/core/backend/run_apart.h"
#include "host/core/config/config_loader.h"
#include "host/core/observe/log.h"

namespace nereid {
namespace {

constexpr std::chrono::seconds kMaxEnd{5};

std::atomic<size_t> g_num_left{0};

// `files`: what the agent may read until it has ended.
void End(std::unique_ptr<AgentModel> owned, std::shared_ptr<void> files) {
  enum class State { kEnding, kEnded, kLeft };
  const std::string agent = owned->agent_name(), location = owned->location();
  const auto state = std::make_shared<std::atomic<State>>(State::kEnding);
  const auto ended = RunApart([model = owned.release(), files = std::move(files), state] {
    delete model;
    if (state->exchange(State::kEnded) == State::kLeft) --g_num_left;
  });
  if (ended.wait_for(kMaxEnd) == std::future_status::ready) return;
  ++g_num_left;
  if (state->exchange(State::kLeft) == State::kEnded) {  // in the meantime
    --g_num_left;
    return;
  }
  NEREID_LOG_ERROR("repository agent '", agent, "' has not ended with '", location,
                   "': UNLOAD_COMPLETE, ModelFinalize or Finalize did not return within ",
                   kMaxEnd.count(), " s");
}

}  // namespace

AgentChain::~AgentChain() {
  for (auto& model : models_) End(std::move(model), files_);
}

size_t AgentChain::NumLeftBehind() {
  return g_num_left;
}

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
      End(std::move(model), chain->files_);
      // What the agent says comes first: scripts look for it behind the model's name.
      return Status(status.code(),
                    StrCat(status.message(), " (repository agent '", wanted.name, "')"));
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
