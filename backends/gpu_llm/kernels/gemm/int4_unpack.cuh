// Unpacks int4 weights (weight_format.h) in shared memory to bf16 fragments of wgmma's operand a.
// Four lanes share a row: each reads all words of the row and extracts the columns that wgmma
// expects from it. So the other operand is not reordered. Device code only.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "backends/gpu_llm/kernels/device/form.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {

__device__ __forceinline__ uint4 LoadShared16(uint32_t address) {
  uint4 value;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(address)
               : "memory");
  return value;
}
__device__ __forceinline__ uint32_t LoadShared4(uint32_t address) {
  uint32_t value;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}

// Zero and scale of a group of columns in a row, each twice: zero is 128 + the zero point.
struct Int4Scale {
  __nv_bfloat162 zero, factor;
};
__device__ __forceinline__ Int4Scale LoadInt4Scale(uint32_t address) {
  const uint32_t word = LoadShared4(address);
  const uint32_t zero = 0x43004300u + (word & 31u) * 0x10001u;
  return {*reinterpret_cast<const __nv_bfloat162*>(&zero),
          __float2bfloat162_rn(__uint_as_float(word & ~31u))};
}

// Unpacks two values of a word to bf16. `mask` and `bias` are kInt4Mask and kInt4Bias in registers,
// because an instruction has only one immediate.
inline constexpr uint32_t kInt4Mask = 0x000f000fu, kInt4Bias = 0x43004300u;
__device__ __forceinline__ uint32_t UnpackInt4Pair(uint32_t word, int shift, uint32_t mask,
                                                   uint32_t bias, const Int4Scale& scale) {
  uint32_t biased;  // 128 + value: a bf16 whose last bits are the value
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(biased) : "r"(word >> shift), "r"(mask), "r"(bias));
  const __nv_bfloat162 value =
      __hmul2(__hsub2(*reinterpret_cast<const __nv_bfloat162*>(&biased), scale.zero), scale.factor);
  return *reinterpret_cast<const uint32_t*>(&value);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
