// Conversion of fp8 (e4m3) weights in registers. Device code only.
#pragma once

#include "backends/gpu_llm/kernels/device/device.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {

// Converts four e4m3 values of a word to bf16: {bytes 0 and 2}, {bytes 1 and 3}. Sign, exponent and
// mantissa move to their positions; 2^120 accounts for the different exponent biases.
__device__ __forceinline__ void Fp8ToBf16(uint32_t word, uint32_t& even, uint32_t& odd) {
  const uint32_t bias = 0x7b807b80u;
  even = (word & 0x00800080u) << 8 | (word & 0x007f007fu) << 4;
  odd = (word & 0x80008000u) | (word & 0x7f007f00u) >> 4;
  const auto scale = [&](uint32_t& pair) {
    const __nv_bfloat162 scaled = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&pair),
                                          *reinterpret_cast<const __nv_bfloat162*>(&bias));
    pair = *reinterpret_cast<const uint32_t*>(&scaled);
  };
  scale(even);
  scale(odd);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
