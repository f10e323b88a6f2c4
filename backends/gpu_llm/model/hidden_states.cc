// Copies of the residual, and of what drafters keep.
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

Status KeptHiddenStates::Allocate(int64_t num_rows, int64_t row_size) {
  row_size_ = row_size;
  NEREID_ASSIGN_OR_RETURN(
      rows_,
      DeviceMemory::Allocate(static_cast<size_t>(2 * num_rows * row_size), "kept hidden states"));
  if (num_rows > 0) {
    NEREID_ASSIGN_OR_RETURN(lists_, PinnedMemory::Allocate(static_cast<size_t>(8 * num_rows)));
  }
  NEREID_ASSIGN_OR_RETURN(copied_, MakeEvent());
  return {};
}

void KeptHiddenStates::Keep(const llm::HiddenRows& rows, std::span<const int32_t> kept) {
  for (size_t i = 0; i < kept.size(); ++i) from_.push_back(rows.StepRow(static_cast<int32_t>(i)));
  to_.insert(to_.end(), kept.begin(), kept.end());
}

Status KeptHiddenStates::Finish(const HiddenStates* captured, cudaStream_t stream) {
  if (from_.empty()) return {};
  if (captured == nullptr || captured->row_size() != row_size_)
    return InternalError("a drafter's model does not keep the hidden states that it reads");
  NEREID_RETURN_IF_CUDA_ERROR(cudaEventSynchronize(copied_.get()));
  const size_t count = from_.size();
  if (8 * count > lists_.size_bytes()) {
    return InternalError("a drafter got the hidden states of ", count, " tokens, at most ",
                         lists_.size_bytes() / 8);
  }
  auto* const lists = lists_.as<int32_t>();
  std::copy(from_.begin(), from_.end(), lists);
  std::copy(to_.begin(), to_.end(), lists + count);
  const auto size = static_cast<int>(row_size_);
  CopyRows({captured->rows(), lists, rows(), lists + count, static_cast<int>(count), size, size},
           stream);
  from_.clear();
  to_.clear();
  NEREID_RETURN_IF_CUDA_ERROR(cudaGetLastError());
  return CudaStatus(cudaEventRecord(copied_.get(), stream), "kept hidden states");
}

}  // namespace nereid::gpu
