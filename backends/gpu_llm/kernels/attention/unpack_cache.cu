// Unpacks blocks of a quantized KV cache to bf16, for attention that reads each block many times. A
// block of threads unpacks one head of a block in shared memory and copies it from there, so that
// all writes are whole lines. Bound by memory bandwidth.
#include "backends/gpu_llm/kernels/attention/attention.h"
#include "backends/gpu_llm/kernels/attention/head_dims.h"
#include "backends/gpu_llm/kernels/attention/unpack_block.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

template <int kHeadDim, CacheFormat kFormat>
__global__ void __launch_bounds__(kUnpackThreads) UnpackCacheKernel(UnpackCacheParams p) {
  extern __shared__ __align__(128) char tiles[];
  LaunchNext();
  const int i = static_cast<int>(blockIdx.x) / p.num_heads;
  const int head = p.first_head + static_cast<int>(blockIdx.x) % p.num_heads;
  WaitForPrevious();
  const int64_t from = int64_t{p.blocks[i]} * p.num_kv_heads + head;
  UnpackBlock<kHeadDim, kFormat>(
      static_cast<const char*>(p.cache) + from * HeadBytes(kHeadDim, kFormat), tiles,
      tiles + TileBytes(kHeadDim));
  __syncthreads();
  char* const to = static_cast<char*>(p.out) + int64_t{blockIdx.x} * HeadBytes(kHeadDim);
  for (int at = static_cast<int>(threadIdx.x) * 16; at < HeadBytes(kHeadDim);
       at += kUnpackThreads * 16) {
    *reinterpret_cast<uint4*>(to + at) = *reinterpret_cast<const uint4*>(tiles + at);
  }
}

template <int kHeadDim>
void LaunchFor(const UnpackCacheParams& p, cudaStream_t stream) {
  constexpr int kShared = static_cast<int>(HeadBytes(kHeadDim));
  const auto launch = [&](auto kernel) {
    (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
    Launch(kernel, p.num_blocks * p.num_heads, kUnpackThreads, kShared, stream, p);
  };
  p.format == CacheFormat::kFp8 ? launch(UnpackCacheKernel<kHeadDim, CacheFormat::kFp8>)
                                : launch(UnpackCacheKernel<kHeadDim, CacheFormat::kInt8>);
}

}  // namespace

void UnpackCache(const UnpackCacheParams& params, cudaStream_t stream) {
  ForHeadDim(params.head_dim, [&](auto head_dim) { LaunchFor<head_dim.value>(params, stream); });
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
