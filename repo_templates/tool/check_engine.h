// Checks settings of an LLM engine that no row of the table of parameters can judge: those that
// must fit each other, the checkpoint, or a folder that they name. The texts are those of the load.
#pragma once

#include <optional>

#include "backends/llm_core/model/architecture.h"
#include "repo_templates/tool/check.h"

namespace nereid::repo {

// `decoder` is the model of the checkpoint; empty if it is not known, and then only the settings
// are compared with each other.
void CheckEngineSettings(const RepositoryModel& model,
                         const std::optional<llm::DecoderModel>& decoder, Findings& findings);

}  // namespace nereid::repo
