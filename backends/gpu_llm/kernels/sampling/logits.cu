// FinishLogits changes logits in place; each thread has some of one row, and the memory's bandwidth
// limits it. PickLogProbs has a thread for each row, which reads little, so that it takes as long
// as a launch.
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/device/soft_cap.cuh"
#include "backends/gpu_llm/kernels/sampling/logits.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

constexpr int kFinishThreads = 256, kPickThreads = 128;
constexpr int kColumns = 4;  // of a thread of FinishLogitsKernel, loaded at once

__global__ void __launch_bounds__(kFinishThreads) FinishLogitsKernel(FinishLogitsParams p) {
  LaunchNext();
  WaitForPrevious();
  const int first = blockIdx.x * (kFinishThreads * kColumns) + threadIdx.x;
  float* row = p.logits + int64_t{blockIdx.y} * p.stride;
  float values[kColumns];
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    const int column = first + i * kFinishThreads;
    values[i] = column < p.vocab_size ? row[column] : kNegativeInfinity;
    if (p.bias != nullptr && column < p.vocab_size) values[i] += __bfloat162float(p.bias[column]);
  }
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    const int column = first + i * kFinishThreads;
    if (p.soft_cap > 0.0f && column < p.vocab_size) values[i] = SoftCapped(values[i], p.soft_cap);
    if (column < p.stride) row[column] = values[i];
  }
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
  constexpr int kBlockColumns = kFinishThreads * kColumns;
  Launch(FinishLogitsKernel,
         dim3((params.stride + kBlockColumns - 1) / kBlockColumns, params.num_rows), kFinishThreads,
         0, stream, params);
}

void PickLogProbs(const PickLogProbsParams& params, cudaStream_t stream) {
  Launch(PickLogProbsKernel, (params.num_rows + kPickThreads - 1) / kPickThreads, kPickThreads, 0,
         stream, params);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
