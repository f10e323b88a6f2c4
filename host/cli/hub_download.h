// Finds the checkpoint of a model on a hub: in the local cache, or by downloading what serving
// needs. [one thread]
#pragma once

#include <string>
#include <vector>

#include "host/cli/hub_cache.h"
#include "host/cli/hub_file.h"
#include "host/cli/hub_id.h"
#include "nereid/status.h"

namespace nereid::cli {

// Downloads the files of id.revision that serving needs and that the cache lacks. Returns the
// folder of the snapshot.
Result<std::string> DownloadSnapshot(const HubId& id, const HubCache& cache,
                                     const HubConnection& hub, const DownloadEvents& events);

// What a hub says about a revision: its commit and the paths of its files.
struct HubRevision {
  std::string commit;
  std::vector<std::string> files;
};

// Reads the answer of /api/models/<id>/revision/<revision>. `name` is what errors call it.
// INVALID_ARG if it has no commit or no list of files. The paths are not checked.
Result<HubRevision> ParseHubRevision(const std::string& text, const std::string& name);

// The files of a repository that serving needs besides weights: the texts of configuration,
// tokenizer and chat template. INVALID_ARG if a name is not a plain file name or a path of such
// names.
Result<std::vector<std::string>> SideFiles(const std::vector<std::string>& files);

// The weight files: those that the text of model.safetensors.index.json lists, or, without one
// (empty text), model.safetensors. NOT_FOUND if the repository has none, with what it has.
Result<std::vector<std::string>> WeightFilesToDownload(const std::vector<std::string>& files,
                                                       const std::string& index_text);

}  // namespace nereid::cli
