// Grid: blocks of threads over the columns of each row. Two launches: the second one overwrites
// what the first one has filled.
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/sampling/logits.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

constexpr int kSpreadThreads = 256;

__global__ void __launch_bounds__(kSpreadThreads) FillRowsKernel(SpreadLogitsParams p) {
  LaunchNext();
  WaitForPrevious();
  const int column = 4 * (blockIdx.x * kSpreadThreads + threadIdx.x);
  if (column >= p.out_stride) return;
  constexpr float kNothing = kNegativeInfinity;
  *reinterpret_cast<float4*>(p.out + int64_t{blockIdx.y} * p.out_stride + column) = {
      kNothing, kNothing, kNothing, kNothing};
}

__global__ void __launch_bounds__(kSpreadThreads) SpreadRowsKernel(SpreadLogitsParams p) {
  LaunchNext();
  WaitForPrevious();
  const int column = blockIdx.x * kSpreadThreads + threadIdx.x;
  if (column >= p.num_columns) return;
  p.out[int64_t{blockIdx.y} * p.out_stride + p.target_ids[column]] =
      p.in[int64_t{blockIdx.y} * p.in_stride + column];
}

}  // namespace

void SpreadLogits(const SpreadLogitsParams& params, cudaStream_t stream) {
  const int quads = params.out_stride / 4;
  Launch(FillRowsKernel, dim3((quads + kSpreadThreads - 1) / kSpreadThreads, params.num_rows),
         kSpreadThreads, 0, stream, params);
  Launch(SpreadRowsKernel,
         dim3((params.num_columns + kSpreadThreads - 1) / kSpreadThreads, params.num_rows),
         kSpreadThreads, 0, stream, params);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
