// Turns what the command line calls a checkpoint into a model to serve: finds its folder, downloads
// it if necessary, and writes its repository. [main thread]
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "host/cli/hub_id.h"
#include "host/cli/progress_bar.h"
#include "host/cli/serve_options.h"
#include "nereid/status.h"
#include "repo_templates/tool/checkpoint.h"

namespace nereid::cli {

struct ServedModel {
  std::string name;
  repo::CheckpointSummary checkpoint;
  bool has_chat_template = false;
  // The LoRA adapters: names and absolute folders.
  std::vector<std::pair<std::string, std::string>> adapters;
  bool is_loaded_at_start = true;  // otherwise when a request names it
};

// Finds the checkpoint's folder. A hub id whose snapshot is complete in the cache needs no network.
Result<std::string> FindCheckpoint(const std::string& checkpoint, const std::string& install_root,
                                   ProgressBar& progress);

// Asks the hub for id.revision and downloads what the cache lacks. Returns the folder.
Result<std::string> PullCheckpoint(const HubId& id, ProgressBar& progress);

// The checkpoints of the command line with their names, after all have been inspected. Errors name
// what is wrong with which checkpoint.
Result<std::vector<ServedModel>> FindModels(const ServeOptions& options,
                                            const std::string& install_root, ProgressBar& progress);

// Decides which models are loaded at the start: in their order, as many as the memory budget holds.
// INVALID_ARG if it does not hold one of them.
Status PlanMemory(const ServeOptions& options, std::vector<ServedModel>& models);

// Writes one repository for each model below `folder`. Returns their paths.
Result<std::vector<std::string>> WriteRepositories(const ServeOptions& options,
                                                   const std::vector<ServedModel>& models,
                                                   const std::string& install_root,
                                                   const std::string& folder);

}  // namespace nereid::cli
