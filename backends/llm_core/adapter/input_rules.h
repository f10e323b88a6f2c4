// What the value of an input asks for, by its rule in the table of tensors. [instance thread]
#pragma once

#include <cstdint>

#include "backends/llm_tables/engine_tensors.h"
#include "nereid/backend.h"

namespace nereid::llm {

// Returns whether the tensor's value asks for the feature that the rule refuses. `num_rows` is the
// number of batch items in the request.
Result<bool> AsksForFeature(TensorView& view, InputRule rule, int64_t num_rows);

}  // namespace nereid::llm
