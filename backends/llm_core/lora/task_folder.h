// Reads the folder that lora_prefetch_dir names: LoRA adapters as TensorRT-LLM's converters write
// them. The model puts them into its cache when it loads. Each adapter is a folder whose name is
// its task id, with model.lora_weights.npy and model.lora_config.npy. The files are untrusted.
// [load thread]
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/llm_core/lora/task_adapters.h"
#include "nereid/status.h"

namespace nereid::llm {

// Adds the tasks in the order of their numbers until the cache is full. `warn` receives the reason
// for each task that is left out; other folders are left out as well. As with TensorRT-LLM, a
// missing folder is no error.
void PrefetchTasks(const std::string& folder, TaskAdapters& tasks,
                   const std::function<void(const Status&)>& warn);

// The tensors of one task as those of a request. `weights` and `config` are the contents of the
// files, `halves` and `numbers` the memory of the result.
Result<TaskWeights> ReadTaskFiles(std::string_view weights, std::string_view config,
                                  std::vector<uint16_t>& halves, std::vector<int32_t>& numbers);

}  // namespace nereid::llm
