// What the values of inputs ask for, by their rules in the table of tensors. [instance thread]
#pragma once

#include <vector>

#include "backends/llm_core/adapter/batch_inputs.h"
#include "backends/llm_tables/engine_tensors.h"
#include "nereid/backend.h"

namespace nereid::llm {

// UNSUPPORTED for an input whose value asks for a feature that does not exist. Returns the inputs
// of the request that have no effect, which the log names.
Result<std::vector<const EngineInput*>> ApplyInputRules(BatchInputs& inputs);
// Refuses the parameter by which a client divides a request into its context and its generation:
// UNSUPPORTED for a text, INVALID_ARG for another type.
Status RefuseRequestType(const Request& request);

}  // namespace nereid::llm
