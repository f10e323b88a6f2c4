// What the LLM models need beyond a valid configuration: tensors of the right type under the right
// name, parameters that mean something, a tokenizer and a checkpoint where they are said to be.
#pragma once

#include "repo_templates/tool/finding.h"
#include "repo_templates/tool/repository.h"

namespace nereid::repo {

// Nothing for models of other backends.
void CheckLlmModel(const RepositoryModel& model, Findings& findings);

}  // namespace nereid::repo
