// Reads what ends an output before its length does, beyond end_id: further end ids, and stop words
// given as ids or as text. [instance thread]
#pragma once

#include <cstdint>

#include "backends/llm_core/adapter/batch_inputs.h"
#include "backends/llm_core/adapter/client_request.h"
#include "nereid/status.h"

namespace nereid::llm {

// Changes the end ids that `out` has so far. Called when its beams and the decoding of its text are
// read. INVALID_ARG names the tensor and both values.
Status ReadStops(BatchInputs& inputs, int64_t row, const RequestDefaults& defaults,
                 RequestItem& out);

}  // namespace nereid::llm
