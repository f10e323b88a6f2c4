// A repository as the checker reads it: each folder with its configuration and versions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "host/core/config/config_loader.h"
#include "repo_templates/tool/finding.h"

namespace nereid::repo {

struct RepositoryModel {
  config::ModelFolder folder;
  std::optional<ModelConfig> config;  // when it can be read
  std::vector<int64_t> versions;      // ascending

  // <model>/<latest version>; the model's folder when it has none.
  std::string VersionFolder() const;
};

using Repository = std::vector<RepositoryModel>;

// Sorted by name. What cannot be read becomes a finding.
Repository ReadRepository(const std::string& path, Findings& findings);

// nullptr when there is none of that name.
const RepositoryModel* FindModel(const Repository& repository, const std::string& name);

}  // namespace nereid::repo
