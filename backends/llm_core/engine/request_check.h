// What a request may ask of an engine. Pure. [any thread]
#pragma once

#include "backends/llm_core/engine/executor.h"
#include "backends/llm_core/engine/request.h"
#include "nereid/status.h"

namespace nereid::llm {

// INVALID_ARG names the field, its value and the allowed range; UNSUPPORTED what the executor
// lacks. Whether the request fits the cache is the scheduler's to say.
Status CheckRequest(const GenerationRequest& request, const ExecutorLimits& limits,
                    const ExecutorFeatures& features);

}  // namespace nereid::llm
