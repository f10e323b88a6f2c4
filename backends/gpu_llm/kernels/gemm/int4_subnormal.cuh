// Int4 weights (weight_format.h) as subnormal bf16 values, which takes 5/8 of an instruction a
// weight. The low eight bits of a bf16 with zeros above are an integer times 2^-133. So masks alone
// make the values 0 to 15 of a word's even nibbles times 2^-133, and of its odd nibbles times
// 2^-129; the tensor cores multiply them without rounding. The caller multiplies the
// inputs of even nibbles by kInt4EvenFactor and those of odd nibbles by kInt4OddFactor, so that
// products stay in range, and the sums by kInt4OutputFactor. Inputs of 2^64 or more would become
// infinite. Device code only.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "backends/gpu_llm/kernels/device/form.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {

constexpr float kInt4EvenFactor = 0x1p64f, kInt4OddFactor = 0x1p60f, kInt4OutputFactor = 0x1p69f;
// Two weights of 1.
constexpr uint32_t kInt4EvenOnes = 0x00010001u, kInt4OddOnes = 0x00100010u;

// Eight weights in adjacent pairs, without their zero point: even, odd, even, odd nibbles.
__device__ __forceinline__ void UnpackInt4Subnormal(uint32_t word, uint32_t (&pairs)[4]) {
  const uint32_t high = word >> 8;
  pairs[0] = word & 0x000f000fu, pairs[1] = word & 0x00f000f0u;
  pairs[2] = high & 0x000f000fu, pairs[3] = high & 0x00f000f0u;
}

__device__ __forceinline__ uint32_t ScaleBf16Pair(uint32_t pair, float factor) {
  const __nv_bfloat162 scaled =
      __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&pair), __float2bfloat162_rn(factor));
  return *reinterpret_cast<const uint32_t*>(&scaled);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
