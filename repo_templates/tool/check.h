// `nereid-repo check`: finds the faults of a model repository without loading anything.
#pragma once

#include <string>
#include <vector>

#include "repo_templates/tool/finding.h"

namespace nereid::repo {

struct CheckOptions {
  // Where backends are looked for; empty: not looked for.
  std::vector<std::string> backend_directories;
};

Findings CheckRepository(const std::string& path, const CheckOptions& options);

}  // namespace nereid::repo
