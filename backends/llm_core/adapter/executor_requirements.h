// What the parameters of a model require of its executor. [load thread]
#pragma once

#include "backends/llm_core/adapter/llm_parameters.h"
#include "backends/llm_core/engine/executor.h"
#include "nereid/status.h"

namespace nereid::llm {

// UNSUPPORTED names the parameter and what the executor lacks for it.
Status CheckExecutor(const LlmParameters& parameters, Executor& executor);

}  // namespace nereid::llm
