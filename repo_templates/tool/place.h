// Findings with the place in config.pbtxt to which they belong.
#pragma once

#include <string>

#include "host/core/config/config_loader.h"
#include "repo_templates/tool/finding.h"

namespace nereid::repo {

// At a field: "ensemble_scheduling.step[0].model_name". "": the file as a whole.
Finding At(const config::ModelFolder& folder, const std::string& key, const std::string& message);

// At an entry of a map field, by the text of its key: ("parameters", "tokenizer_dir").
Finding AtEntry(const config::ModelFolder& folder, const std::string& map, const std::string& entry,
                const std::string& message);

Finding Warning(Finding finding);

}  // namespace nereid::repo
