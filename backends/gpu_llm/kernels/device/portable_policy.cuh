// Every GPU from compute capability 8.0: a kernel starts when the previous one has ended, and e4m3
// is converted by integer operations and a product with a power of two. Device code only.
#pragma once

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "backends/gpu_llm/kernels/device/form.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {

inline constexpr bool kUsesDependentLaunch = false;

__device__ __forceinline__ void LaunchNext() {}
__device__ __forceinline__ void WaitForPrevious() {}

// There is neither a bulk copy engine nor wgmma, so that all reads are ordinary ones.
__device__ __forceinline__ void ProxyFence() {}

// Codes of two floats, saturated; `low` is in the low byte.
__device__ __forceinline__ uint32_t EncodeE4m3(float low, float high) {
  return __nv_cvt_float2_to_fp8x2({low, high}, __NV_SATFINITE, __NV_E4M3);
}
// Converts two codes in the low half of a word to two fp16 values. Exponent and mantissa move to
// their positions in fp16, whose exponents are larger by 8.
__device__ __forceinline__ uint32_t DecodeE4m3(uint32_t codes) {
  const uint32_t raised = __byte_perm(codes, 0, 0x1404);  // the codes are the high bytes of halves
  const uint32_t bits = (raised & 0x80008000u) | (raised & 0x7f007f00u) >> 1;
  const __half2 value = __hmul2(*reinterpret_cast<const __half2*>(&bits), __float2half2_rn(256.0f));
  return *reinterpret_cast<const uint32_t*>(&value);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
