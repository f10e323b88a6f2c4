// Grid: two blocks of threads for each row, one for each half of the input.
#include "backends/gpu_llm/kernels/rows/head_input.h"

#include "backends/gpu_llm/kernels/rows/rms_row.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

// The source of the half. `scale` is that of its values.
__device__ __forceinline__ const uint4* HalfOf(const HeadInputParams& p, int row, bool is_hidden,
                                               float& scale) {
  scale = 1.0f;
  if (is_hidden) {
    const int from = p.hidden == nullptr ? -1 : p.hidden_rows[row];
    return reinterpret_cast<const uint4*>(from < 0 ? p.residual + int64_t{row} * p.hidden_size
                                                   : p.hidden + int64_t{from} * p.hidden_size);
  }
  scale = p.scale;
  int id = p.ids[row];
  if (id < 0) {
    id = p.last_tokens[-1 - id];
    if (p.target_ids != nullptr) id = p.target_ids[id];
  }
  return reinterpret_cast<const uint4*>(p.table + int64_t{id} * p.hidden_size);
}

template <int kChunks>
__global__ void __launch_bounds__(rms_row::kThreads) HeadInputKernel(HeadInputParams p) {
  LaunchNext();
  const int row = static_cast<int>(blockIdx.x);
  const bool is_hidden = blockIdx.y == 1;
  const RowWeights<kChunks> weight(is_hidden ? p.hidden_norm : p.embedding_norm, p.hidden_size);
  WaitForPrevious();
  float scale = 1.0f;
  const uint4* in = HalfOf(p, row, is_hidden, scale);
  auto* out =
      reinterpret_cast<uint4*>(p.out + (int64_t{2} * row + (is_hidden ? 1 : 0)) * p.hidden_size);
  auto* residual = reinterpret_cast<uint4*>(p.residual + int64_t{row} * p.hidden_size);
  rms_row::NormRow<kChunks>(
      p.hidden_size, weight, p.epsilon,
      [&](int i) {
        float values[8];
        Unpack8(in[i], values);
#pragma unroll
        for (float& value : values) value *= scale;
        return Pack8(values);  // a scaled embedding is rounded, as that of the target
      },
      [&](int i, const uint4& values, const uint4& normed) {
        out[i] = normed;
        if (is_hidden) residual[i] = p.norms_residual ? normed : values;
      });
}

}  // namespace

void HeadInput(const HeadInputParams& params, cudaStream_t stream) {
  rms_row::LaunchRows(HeadInputKernel<rms_row::kFewChunks>, HeadInputKernel<rms_row::kMaxChunks>,
                      dim3(params.num_rows, 2), params, stream);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
