// The agents of one load of a model, in the order of its configuration: each may move the model's
// files before the next sees them. Kept as long as anything of the load lives. [one thread at a
// time]
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

namespace nereid {

class AgentChain {
 public:
  // Ends the models under their agents in order, and agents that no other model has. Those that do
  // not return within some seconds are named in the log and left behind.
  ~AgentChain();
  // How many are left behind now: while there are any, the process must not end by exit().
  static size_t NumLeftBehind();

  // Runs LOAD through all agents of the configuration; the first refusal ends it. `files` is what
  // the folder `model_path` must outlive, if anything.
  static Result<std::shared_ptr<AgentChain>> Load(RepoAgents* agents, const ModelConfig& config,
                                                  std::string model_path,
                                                  std::shared_ptr<void> files);

  // Where the model is to be loaded from.
  const std::string& location() const { return location_; }
  void FinishLoad(bool loaded);
  // The model leaves service; UNLOAD_COMPLETE follows on destruction.
  void Unload();

 private:
  AgentChain(std::string location, std::shared_ptr<void> files)
      : files_(std::move(files)), location_(std::move(location)) {}

  const std::shared_ptr<void> files_;
  std::string location_;
  std::mutex mutex_;  // guards what follows: loads and unloads of a model may meet
  std::vector<std::unique_ptr<AgentModel>> models_;
};

}  // namespace nereid
