// The repository agents of one load of a model, in the order of the configuration. Each may
// relocate the model's files before the next one sees them. Lives as long as any object of the
// load. [one thread at a time]
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "host/core/config/model_config.h"
#include "host/core/repository/agent_model.h"
#include "host/core/repository/repo_agent.h"
#include "nereid/status.h"

namespace nereid::core {

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
