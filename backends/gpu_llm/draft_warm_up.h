// Runs steps with draft tokens of every size before the first request. Such steps have a different
// number of rows each time, and the first ones of a size load kernels, choose the algorithms of
// matrix products and are recorded, which takes as long as several or many other steps. No CUDA
// here. [load thread]
#pragma once

#include "backends/llm_core/engine/executor.h"
#include "nereid/status.h"

namespace nereid::gpu {

// Runs steps of each padded number of rows until one of them replays a recorded graph, or several
// were typical. The smallest sizes come first. After some seconds, the other sizes are left to the
// steps of requests. No sequence may have KV blocks yet: the steps write to the first ones.
Status WarmUpDraftSteps(llm::Executor& executor, const llm::DraftStepForm& form);

}  // namespace nereid::gpu
