// Quantization of keys and values to one byte an element, and conversion of the codes to fp16,
// which represents every code exactly. Device code only.
#pragma once

#include <cuda_fp16.h>

#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/kernels/device/device.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {

// Maximum magnitude of a code.
__device__ __forceinline__ float MaxCode(CacheFormat format) {
  return format == CacheFormat::kFp8 ? 448.0f : 127.0f;
}

// Codes of four values, each multiplied by `inverse`. NaN becomes 0.
__device__ __forceinline__ uint32_t Encode4(const float (&values)[4], float inverse,
                                            CacheFormat format) {
  float scaled[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    scaled[i] = values[i] * inverse;
    if (scaled[i] != scaled[i]) scaled[i] = 0.0f;
  }
  if (format == CacheFormat::kFp8) {
    return EncodeE4m3(scaled[2], scaled[3]) << 16 | EncodeE4m3(scaled[0], scaled[1]);
  }
  uint32_t word = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int code = __float2int_rn(fminf(fmaxf(scaled[i], -127.0f), 127.0f));
    word |= static_cast<uint32_t>(code & 255) << 8 * i;
  }
  return word;
}

// Converts two codes in the low half of a word to two fp16 values.
template <CacheFormat kFormat>
__device__ __forceinline__ uint32_t Decode2(uint32_t codes) {
  if constexpr (kFormat == CacheFormat::kFp8) return DecodeE4m3(codes);
  // 0x6400 is 1024 in fp16, whose last bit has the value 1.
  const uint32_t raised = __byte_perm(codes ^ 0x8080u, 0x64646464u, 0x4140);
  uint32_t halves;
  asm("sub.f16x2 %0, %1, %2;" : "=r"(halves) : "r"(raised), "r"(0x64806480u));
  return halves;
}

__device__ __forceinline__ uint32_t PackHalf(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
// Converts two bf16 values to two fp16 values.
__device__ __forceinline__ uint32_t ToHalf(uint32_t pair) {
  return PackHalf(LowBf16(pair), HighBf16(pair));
}

// MatrixMultiplyAdd with fp16 operands.
__device__ __forceinline__ void HalfMultiplyAdd(float (&d)[4], uint32_t a0, uint32_t a1,
                                                uint32_t a2, uint32_t a3, uint32_t b0,
                                                uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
