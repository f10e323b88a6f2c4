// Runs steps with draft tokens of every size before the first request. Such steps have a different
// number of rows each time, and the first ones of a size load kernels, choose the algorithms of
// matrix products and are recorded, which takes as long as many other steps. This file uses no
// CUDA, so that tests run it on the CPU. [load thread]
#pragma once

#include <vector>

#include "backends/llm_core/engine/executor.h"
#include "nereid/status.h"

namespace nereid::gpu {

// Runs steps of each padded number of rows until one of them replays a recorded graph, or several
// were typical, and then some more. Returns the least duration of these in ms, by the rows. The
// smallest sizes come first. After some seconds, the other sizes are left to the steps of requests,
// and nothing is returned. No sequence may have KV blocks yet: the steps write to the first ones.
Result<std::vector<llm::StepCostPoint>> WarmUpDraftSteps(llm::Executor& executor,
                                                         const llm::DraftStepForm& form);

}  // namespace nereid::gpu
