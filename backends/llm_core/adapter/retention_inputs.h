// Reads the retention priorities of a request, from its tensors or its parameters of the same
// names. [instance thread]
#pragma once

#include <memory>

#include "backends/llm_core/adapter/batch_inputs.h"
#include "backends/llm_core/engine/kv_retention.h"
#include "nereid/backend.h"

namespace nereid::llm {

// Null if the request has none. INVALID_ARG names the tensor or parameter and both values.
Result<std::shared_ptr<const KvRetention>> ReadRetention(const Request& request,
                                                         BatchInputs& inputs, int64_t row);

}  // namespace nereid::llm
