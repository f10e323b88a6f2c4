// A custom batching library: a shared object with the five TRITONBACKEND_ModelBatch* functions,
// which has a say in the batches of a model with dynamic_batching. [load thread, then under the
// batcher's mutex]
#pragma once

#include <memory>
#include <string>

#include "host/core/config/model_config.h"
#include "host/core/scheduling/batch_strategy.h"
#include "nereid/status.h"
#include "triton/core/tritonbackend.h"

namespace nereid {

// The library that the parameter TRITON_BATCH_STRATEGY_PATH names, from the working directory or
// from the model's, else batchstrategy.so in the version's, the model's or the backend's directory.
// Null when there is none.
Result<std::unique_ptr<BatchStrategy>> LoadBatchLibrary(const ModelConfig& config, int64_t version,
                                                        const std::string& model_dir,
                                                        const std::string& backend_dir,
                                                        TRITONBACKEND_Model* model);

}  // namespace nereid
