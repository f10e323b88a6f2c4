// For experts with many rows: sorts the pairs of row and expert by expert with many blocks of
// threads, and copies the rows to sorted order.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/gpu_llm/kernels/device/form.h"

namespace nereid::gpu {

// Pair = row * experts_per_token + rank. The order of pairs of one expert is arbitrary.
struct ExpertRowsParams {
  const int32_t* experts;  // [num_pairs]
  int32_t* sorted_index;   // [num_pairs]: position of each pair in sorted order
  int32_t* first_rows;     // [num_experts + 1]: positions of the first pairs of the experts
  // [num_experts + 1]: the experts' numbers of pairs and a counter of finished blocks; 0 before and
  // after.
  int32_t* counts;
  const void* in;          // [num_rows] rows of row_bytes
  void* out;               // [num_pairs] rows of row_bytes: those of the pairs, in sorted order
  const float* in_scales;  // [num_rows]: copied to out_scales [num_pairs]; null: none
  float* out_scales;
  int num_rows, num_experts, experts_per_token;
  int row_bytes;  // a multiple of 16
};
inline namespace NEREID_KERNEL_FORM {
void SortExpertRows(const ExpertRowsParams& params, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

}  // namespace nereid::gpu
