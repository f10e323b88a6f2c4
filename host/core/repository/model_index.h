// The list of all models that a client may ask for. [any thread]
#pragma once

#include <string>
#include <vector>

#include "host/core/repository/model_lifecycle.h"
#include "host/core/repository/repository_list.h"

namespace nereid {

struct IndexEntry {
  static constexpr int64_t kNoVersion = -1;  // known, never asked to load
  std::string name;                          // the model's own
  int64_t version = kNoVersion;
  VersionStatus status;
};

// By name: what lies in the repositories and what `statuses` know beside it, or what serves alone.
std::vector<IndexEntry> ListModels(const RepositoryList& repositories, ModelStatuses statuses,
                                   bool ready_only);

}  // namespace nereid
