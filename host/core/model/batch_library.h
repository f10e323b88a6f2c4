// A custom batching library: a shared library with the five TRITONBACKEND_ModelBatch* functions,
// which restricts the batches of a model with dynamic_batching. [load thread, then under the
// batcher's mutex]
#pragma once

#include <memory>
#include <string>

#include "host/core/config/model_config.h"
#include "host/core/scheduling/batch_rules.h"
#include "nereid/status.h"
#include "triton/core/tritonbackend.h"

namespace nereid::core {

// Loads the library that the parameter TRITON_BATCH_STRATEGY_PATH names, relative to the working
// directory or to the model's directory. Without the parameter, searches batchstrategy.so in the
// directories of the version, the model and the backend. Null if there is none.
Result<std::unique_ptr<BatchStrategy>> LoadBatchLibrary(const ModelConfig& config, int64_t version,
                                                        const std::string& model_dir,
                                                        const std::string& backend_dir,
                                                        TRITONBACKEND_Model* model);

}  // namespace nereid::core
