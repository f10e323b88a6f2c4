// What validate.cc and its neighbours share. [any thread]
#pragma once

#include <string>
#include <vector>

#include "host/core/config/fault.h"
#include "host/core/config/model_config.h"

namespace nereid::config {

void Add(Faults* faults, std::string key, std::string message);

// Batch sizes that are aimed at: from 1 to max_batch_size. `what`: "dynamic batching preferred
// size".
void ValidatePreferredSizes(const std::vector<int32_t>& sizes, const ModelConfig& config,
                            const char* what, const std::string& key, Faults* faults);

void ValidateEnsemble(const ModelConfig& config, Faults* faults);

void ValidateSequenceBatching(const ModelConfig& config, Faults* faults);

}  // namespace nereid::config
