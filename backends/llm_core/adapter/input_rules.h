// What the value of an input asks for, by its rule in the table of tensors. [instance thread]
#pragma once

#include <cstdint>

#include "backends/llm_tables/engine_tensors.h"
#include "nereid/backend.h"

namespace nereid::llm {

// Whether a client asks for the feature that the rule refuses, by the tensor's value. `num_rows`:
// batch items of the request.
Result<bool> AsksForFeature(TensorView& view, InputRule rule, int64_t num_rows);

}  // namespace nereid::llm
