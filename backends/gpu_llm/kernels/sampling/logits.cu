// FinishLogits: in place, one logit a thread. Bound by memory bandwidth: 512 rows of 128,256 reach
// 36 % of an H200's 4.65 TB/s. PickLogProbs: one row a thread with a few reads each, so that the
// cost is that of a launch.
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/sampling/logits.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

constexpr int kFinishThreads = 256, kPickThreads = 128;

__global__ void __launch_bounds__(kFinishThreads) FinishLogitsKernel(FinishLogitsParams p) {
  LaunchNext();
  WaitForPrevious();
  const int column = blockIdx.x * kFinishThreads + threadIdx.x;
  if (column >= p.stride) return;
  float& logit = p.logits[int64_t{blockIdx.y} * p.stride + column];
  if (column >= p.vocab_size) {
    logit = kNegativeInfinity;
    return;
  }
  float value = logit;
  if (p.bias != nullptr) value += __bfloat162float(p.bias[column]);
  if (p.soft_cap > 0.0f) value = p.soft_cap * tanhf(value / p.soft_cap);
  logit = value;
}

__global__ void __launch_bounds__(kPickThreads) PickLogProbsKernel(PickLogProbsParams p) {
  LaunchNext();
  WaitForPrevious();
  const int row = blockIdx.x * kPickThreads + threadIdx.x;
  if (row >= p.num_rows || p.ids[row] < 0) return;
  p.log_probs[row] = p.logits[int64_t{row} * p.stride + p.ids[row]] - p.log_sums[row];
}

}  // namespace

void FinishLogits(const FinishLogitsParams& params, cudaStream_t stream) {
  Launch(FinishLogitsKernel,
         dim3((params.stride + kFinishThreads - 1) / kFinishThreads, params.num_rows),
         kFinishThreads, 0, stream, params);
}

void PickLogProbs(const PickLogProbsParams& params, cudaStream_t stream) {
  Launch(PickLogProbsKernel, (params.num_rows + kPickThreads - 1) / kPickThreads, kPickThreads, 0,
         stream, params);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
