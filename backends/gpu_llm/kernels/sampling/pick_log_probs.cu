// One row a thread: a few reads each, so that a launch is all it costs.
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/sampling/pick_log_probs.h"

namespace nereid::gpu {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads) PickLogProbsKernel(PickLogProbsParams p) {
  LaunchNext();
  WaitForPrevious();
  const int row = blockIdx.x * kThreads + threadIdx.x;
  if (row >= p.num_rows || p.ids[row] < 0) return;
  p.log_probs[row] = p.logits[int64_t{row} * p.stride + p.ids[row]] - p.log_sums[row];
}

}  // namespace

void PickLogProbs(const PickLogProbsParams& params, cudaStream_t stream) {
  Launch(PickLogProbsKernel, (params.num_rows + kThreads - 1) / kThreads, kThreads, 0, stream,
         params);
}

}  // namespace nereid::gpu
