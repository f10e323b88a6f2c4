// Copies of the residual.
#include "backends/gpu_llm/model/hidden_states.h"

#include <utility>

#include "backends/gpu_llm/cuda/runtime.h"

namespace nereid::gpu {

Result<HiddenStates> HiddenStates::Create(std::vector<int32_t> layers, int32_t hidden_size,
                                          int32_t max_num_rows) {
  HiddenStates states;
  states.layers_ = std::move(layers);
  states.hidden_size_ = hidden_size;
  NEREID_ASSIGN_OR_RETURN(
      states.rows_,
      DeviceMemory::Allocate(static_cast<size_t>(states.row_size() * max_num_rows * 2),
                             "hidden states of layers"));
  return states;
}

Status HiddenStates::Store(int32_t layer, const __nv_bfloat16* residual, int32_t num_rows,
                           cudaStream_t stream) const {
  const auto bytes = static_cast<size_t>(hidden_size_ * 2);
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (layers_[i] != layer) continue;
    NEREID_RETURN_IF_CUDA_ERROR(cudaMemcpy2DAsync(
        rows_.as<__nv_bfloat16>() + static_cast<int64_t>(i) * hidden_size_, row_size() * 2,
        residual, bytes, bytes, num_rows, cudaMemcpyDeviceToDevice, stream));
  }
  return {};
}

}  // namespace nereid::gpu
