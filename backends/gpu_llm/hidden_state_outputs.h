// The hidden states that a step returns to drafters: on the device, or as copies in pinned memory,
// where two steps have their own. [engine thread]
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "backends/gpu_llm/cuda/memory.h"
#include "backends/gpu_llm/model/hidden_states.h"
#include "backends/llm_core/engine/batch.h"
#include "backends/llm_core/engine/executor.h"
#include "nereid/status.h"

namespace nereid::gpu {

class HiddenStateOutputs {
 public:
  void SetPlace(llm::HiddenStatePlace place) { place_ = place; }
  // Allocates the host's copies for `max_num_rows` rows, which else grow with the largest step.
  Status Allocate(const HiddenStates& states, int64_t max_num_rows);

  // Begins to return the states that entries request. They are complete when the step is. `states`:
  // of the step; null: none are kept, which is an error. The previous step of this buffer (0 or 1)
  // was collected.
  Status Return(const llm::StepBatch& batch, const HiddenStates* states, int32_t buffer_index,
                cudaStream_t stream, llm::StepResult& result);
  // Begins a step. None of its states are requested before Return().
  void Clear(int32_t buffer_index) { steps_[buffer_index].rows.clear(); }
  // Moves the requested states of a completed step to its result.
  void Take(const HiddenStates* states, int32_t buffer_index, size_t num_entries,
            llm::StepResult& result) const;

 private:
  struct Step {
    PinnedMemory memory;                            // bf16, of the entries one after the other
    std::vector<std::pair<int32_t, int32_t>> rows;  // entry, and how many rows it has
  };
  llm::HiddenStatePlace place_ = llm::HiddenStatePlace::kHost;
  std::array<Step, 2> steps_;
};

}  // namespace nereid::gpu
