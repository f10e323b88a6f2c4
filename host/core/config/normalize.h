// Fills in what an author may leave out, as Triton does, on the canonical JSON form. Included by
// config/*.cc alone. [any thread]
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "host/core/config/config_loader.h"
#include "host/core/config/json_form.h"

namespace nereid::config {

// Name, version policy, backend, file name, optimization, batching defaults. Leaves instance groups
// alone.
void NormalizeFields(const ModelFolder& folder, Json* config);

// The outputs, by index and ascending, whose name one before them has.
std::vector<size_t> RepeatedOutputs(const Json& config);

// Batching defaults alone: run again after a backend changed max_batch_size.
void NormalizeBatching(Json* config);

// Instance groups: at least one, named, with kind, count and devices.
void NormalizeInstanceGroups(const InstanceDefaults& defaults, Json* config);

}  // namespace nereid::config
