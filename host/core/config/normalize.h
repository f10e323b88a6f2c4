// Fills in fields that an author may omit, as Triton does, in the canonical JSON. Included only by
// config/*.cc. [any thread]
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "host/core/config/config_loader.h"
#include "host/core/config/proto_json.h"

namespace nereid::core::config {

// Fills in name, version policy, backend, file name, optimization and batching defaults, but not
// instance groups.
void NormalizeFields(const ConfigSource& source, Json* config);

// The indices, ascending, of outputs that have the same name as an earlier output.
std::vector<size_t> RepeatedOutputs(const Json& config);

// Fills in batching defaults. Called again after a backend changed max_batch_size.
void NormalizeBatching(Json* config);

// Ensures that there is at least one instance group and that each has a name, kind, count and
// devices.
void NormalizeInstanceGroups(const InstanceDefaults& defaults, Json* config);

}  // namespace nereid::core::config
