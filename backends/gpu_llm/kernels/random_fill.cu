#include "gpu_llm/kernels/device.cuh"
#include "gpu_llm/kernels/random_fill.h"
#include "llm_core/sampling/philox.h"

namespace nereid::gpu {
namespace {

__global__ void RandomFillKernel(bf16* out, int64_t count, float bound, uint64_t seed) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < (count + 7) / 8;
       i += stride) {
    const llm::PhiloxBlock bits =
        llm::Philox4x32({{static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32), 1, 0}},
                        static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
    for (int j = 0; j < 8 && 8 * i + j < count; ++j) {
      const uint32_t half = bits.words[j / 2] >> (16 * (j % 2)) & 0xffff;
      out[8 * i + j] = __float2bfloat16((static_cast<float>(half) / 32767.5f - 1.0f) * bound);
    }
  }
}

__global__ void ConstantFillKernel(bf16* out, int64_t count, float value) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) out[i] = __float2bfloat16(value);
}

}  // namespace

void RandomFill(__nv_bfloat16* out, int64_t count, float bound, uint64_t seed,
                cudaStream_t stream) {
  RandomFillKernel<<<2048, 256, 0, stream>>>(out, count, bound, seed);
}

void ConstantFill(__nv_bfloat16* out, int64_t count, float value, cudaStream_t stream) {
  ConstantFillKernel<<<static_cast<unsigned>((count + 255) / 256), 256, 0, stream>>>(out, count,
                                                                                     value);
}

}  // namespace nereid::gpu
