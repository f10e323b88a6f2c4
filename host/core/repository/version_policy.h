// Which versions of a model are served. [any thread]
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "host/core/config/model_config.h"
#include "nereid/status.h"

namespace nereid {

// Of `available` (ascending) those that `policy` selects, ascending. Notes what it names and is not
// there; INVALID_ARG when nothing is left.
Result<std::vector<int64_t>> SelectVersions(const VersionPolicy& policy,
                                            const std::vector<int64_t>& available,
                                            const std::string& model_path,
                                            std::vector<std::string>* notes);

}  // namespace nereid
