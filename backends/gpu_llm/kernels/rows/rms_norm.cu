// Grid: one block of threads for each row. Bound by memory bandwidth. 8,192 rows of 4,096: 84 % of
// an H200's 4.65 TB/s.
#include "backends/gpu_llm/kernels/rows/norm.h"
#include "backends/gpu_llm/kernels/rows/rms_row.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

template <int kChunks>
__global__ void __launch_bounds__(rms_row::kThreads) RmsNormKernel(RmsNormParams p) {
  LaunchNext();
  const RowWeights<kChunks> weight(p.weight, p.hidden_size);
  WaitForPrevious();
  const int64_t from_row =
      p.rows != nullptr ? p.rows[blockIdx.x] : static_cast<int64_t>(blockIdx.x);
  const uint4* in = reinterpret_cast<const uint4*>(p.in + from_row * p.hidden_size);
  uint4* out = reinterpret_cast<uint4*>(p.out + int64_t{blockIdx.x} * p.hidden_size);
  rms_row::NormRow<kChunks>(
      p.hidden_size, weight, p.epsilon, [&](int i) { return in[i]; },
      [&](int i, const uint4&, const uint4& normed) { out[i] = normed; });
}

}  // namespace

void RmsNorm(const RmsNormParams& params, cudaStream_t stream) {
  rms_row::LaunchRows(RmsNormKernel<rms_row::kFewChunks>, RmsNormKernel<rms_row::kMaxChunks>,
                      params.num_rows, params, stream);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
