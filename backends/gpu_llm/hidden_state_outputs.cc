#include "backends/gpu_llm/hidden_state_outputs.h"

#include <span>

#include "backends/gpu_llm/bf16.h"
#include "backends/gpu_llm/cuda/runtime.h"

namespace nereid::gpu {

Status HiddenStateOutputs::Allocate(const HiddenStates& states, int64_t max_num_rows) {
  for (Step& step : steps_) {
    NEREID_ASSIGN_OR_RETURN(
        step.memory,
        PinnedMemory::Allocate(static_cast<size_t>(2 * states.row_size() * max_num_rows)));
  }
  return {};
}

Status HiddenStateOutputs::Return(const llm::StepBatch& batch, const HiddenStates* states,
                                  int32_t buffer_index, cudaStream_t stream,
                                  llm::StepResult& result) {
  if (states == nullptr) return InternalError("a step returns hidden states, but none are kept");
  if (place_ == llm::HiddenStatePlace::kDevice) {
    result.keeps_hidden_states = true;
    return {};
  }
  Step& step = steps_[buffer_index];
  const int64_t row_bytes = states->row_size() * 2;
  int64_t num_rows = 0;
  for (size_t i = 0; i < batch.entries.size(); ++i) {
    if (!batch.entries[i].returns_hidden_states) continue;
    step.rows.push_back({static_cast<int32_t>(i), batch.entries[i].num_tokens});
    num_rows += batch.entries[i].num_tokens;
  }
  const auto size_bytes = static_cast<size_t>(num_rows * row_bytes);
  if (step.memory.size_bytes() < size_bytes) {
    NEREID_ASSIGN_OR_RETURN(step.memory, PinnedMemory::Allocate(size_bytes));
  }
  const auto* const from = reinterpret_cast<const char*>(states->rows());
  char* to = step.memory.as<char>();
  for (size_t i = 0; i < step.rows.size();) {
    // One copy takes the rows of all entries that follow each other without a gap.
    const int32_t first = batch.entries[step.rows[i].first].first_token;
    int32_t end = first;
    for (; i < step.rows.size(); ++i) {
      const llm::BatchEntry& entry = batch.entries[step.rows[i].first];
      if (entry.first_token != end) break;
      end += entry.num_tokens;
    }
    const int64_t count_bytes = (end - first) * row_bytes;
    NEREID_RETURN_IF_CUDA_ERROR(
        cudaMemcpyAsync(to, from + first * row_bytes, count_bytes, cudaMemcpyDeviceToHost, stream));
    to += count_bytes;
  }
  return {};
}

void HiddenStateOutputs::Take(const HiddenStates* states, int32_t buffer_index, size_t num_entries,
                              llm::StepResult& result) const {
  const Step& step = steps_[buffer_index];
  if (step.rows.empty()) return;
  result.hidden_states.resize(num_entries);
  const auto* from = step.memory.as<uint16_t>();
  for (const auto& [sequence, num_rows] : step.rows) {
    std::vector<float>& to = result.hidden_states[sequence];
    to.resize(static_cast<size_t>(num_rows * states->row_size()));
    FromBf16(std::span(from, to.size()), to.data());
    from += to.size();
  }
}

}  // namespace nereid::gpu
