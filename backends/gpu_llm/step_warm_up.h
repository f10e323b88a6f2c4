// Runs steps of many sizes before the first request. The first steps of a size load kernels, choose
// the algorithms of matrix products and are recorded, which takes as long as many other steps. This
// file uses no CUDA, so that tests run it on the CPU. [load thread]
#pragma once

#include <chrono>
#include <vector>

#include "backends/llm_core/engine/executor.h"
#include "nereid/status.h"

namespace nereid::gpu {

// Runs steps with prompts, of each number of rows that chooses its own algorithms, and steps of
// each padded number of sequences that decode, until each size is typical or replays a recorded
// graph. Those that any server has soon come first: steps of up to 512 rows. After `most_time`, the
// other sizes are left to the steps of requests. No sequence may have KV blocks yet: the steps
// write to the first ones.
Status WarmUpSteps(llm::Executor& executor, std::chrono::milliseconds most_time);

// Runs steps with draft tokens of each padded number of rows until one of them replays a recorded
// graph, or several were typical, and then some more. Returns the least duration of these in ms, by
// the rows. The smallest sizes come first. After some seconds, the other sizes are left to the
// steps of requests, and nothing is returned. The steps write to the first KV blocks, too.
Result<std::vector<llm::StepCostPoint>> WarmUpDraftSteps(llm::Executor& executor,
                                                         const llm::DraftStepForm& form);

}  // namespace nereid::gpu
