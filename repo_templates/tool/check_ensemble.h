// The ensemble's own checks, run on what the repository says of the steps' models.
#pragma once

#include "repo_templates/tool/finding.h"
#include "repo_templates/tool/repository.h"

namespace nereid::repo {

void CheckEnsemble(const RepositoryModel& model, const Repository& repository, Findings& findings);

}  // namespace nereid::repo
