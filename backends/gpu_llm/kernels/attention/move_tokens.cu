// Grid: one block of threads for each sequence, layer and key/value head.
#include "backends/gpu_llm/kernels/attention/attention.h"
#include "backends/gpu_llm/kernels/attention/copy_token.cuh"
#include "backends/gpu_llm/kernels/attention/head_dims.h"
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/step_drafts.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

constexpr int kMoveThreads = 128;

template <int kHeadDim, bool kIsQuantized>
__global__ void __launch_bounds__(kMoveThreads) MoveTokensKernel(MoveTokensParams p) {
  LaunchNext();
  WaitForPrevious();
  const MoveRange range = p.ranges[blockIdx.x];
  char* const layer = static_cast<char*>(p.cache) + blockIdx.y * p.layer_bytes;
  const auto head_of = [&](int slot) {
    return layer + (int64_t{slot / kBlockTokens} * p.num_kv_heads + blockIdx.z) *
                       HeadBytes(kHeadDim, p.format);
  };
  for (int i = range.first; i < range.first + range.count; ++i) {
    const TokenMove move = p.moves[i];
    CopyToken<kHeadDim, kIsQuantized>(head_of(move.to), move.to % kBlockTokens, head_of(move.from),
                                      move.from % kBlockTokens, static_cast<int>(threadIdx.x),
                                      kMoveThreads);
    __syncthreads();
  }
}

template <int kHeadDim>
void LaunchFor(const MoveTokensParams& p, cudaStream_t stream) {
  const dim3 grid(p.num_sequences, p.num_layers, p.num_kv_heads);
  p.format == CacheFormat::kBf16
      ? Launch(MoveTokensKernel<kHeadDim, false>, grid, kMoveThreads, 0, stream, p)
      : Launch(MoveTokensKernel<kHeadDim, true>, grid, kMoveThreads, 0, stream, p);
}

}  // namespace

void MoveTokens(const MoveTokensParams& params, cudaStream_t stream) {
  ForHeadDim(params.head_dim, [&](auto head_dim) { LaunchFor<head_dim.value>(params, stream); });
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
