// Copies of the residual.
#include "backends/gpu_llm/model/hidden_states.h"

#include <utility>

#include "backends/gpu_llm/cuda/runtime.h"
#include "backends/gpu_llm/kernels/rows/hidden_states.h"

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
  if (rows_.size_bytes() == 0) return {};
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (layers_[i] != layer) continue;
    CopyRows({residual, nullptr, rows() + static_cast<int64_t>(i) * hidden_size_, nullptr, num_rows,
              static_cast<int>(hidden_size_), static_cast<int>(row_size())},
             stream);
  }
  return CudaStatus(cudaGetLastError(), "hidden states of layers");
}

}  // namespace nereid::gpu
