// Conversion of fp8 (e4m3) weights in registers. Device code only.
#pragma once

#include "backends/gpu_llm/kernels/device/device.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {

// Moving the bits of an e4m3 value to their positions in bf16 makes it 2^-120 of its value, because
// the exponent biases differ. This factor, twice in a word, undoes that.
constexpr uint32_t kFp8Factor = 0x7b807b80u;
// A word of block scales (weight_format.h) of which both are 1.
constexpr uint32_t kFp8NoScales = 0x3f803f80u;

// Returns the factor of weights that are multiplied by a block's scale as well. `half` selects one
// of the word's two scales: 0 that of the tile's first 8 rows, 1 that of its other 8 rows.
__device__ __forceinline__ uint32_t Fp8FactorOf(uint32_t scales, int half) {
  const uint32_t scale = __byte_perm(scales, 0, half == 0 ? 0x1010 : 0x3232), bias = kFp8Factor;
  const __nv_bfloat162 factor = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&scale),
                                        *reinterpret_cast<const __nv_bfloat162*>(&bias));
  return *reinterpret_cast<const uint32_t*>(&factor);
}

// Converts four e4m3 values of a word to bf16: {bytes 0 and 2}, {bytes 1 and 3}. `factor`:
// kFp8Factor, or with a block's scale Fp8FactorOf(); then the products are rounded.
__device__ __forceinline__ void Fp8ToBf16(uint32_t word, uint32_t factor, uint32_t& even,
                                          uint32_t& odd) {
  even = (word & 0x00800080u) << 8 | (word & 0x007f007fu) << 4;
  odd = (word & 0x80008000u) | (word & 0x7f007f00u) >> 4;
  const auto scale = [&](uint32_t& pair) {
    const __nv_bfloat162 scaled = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&pair),
                                          *reinterpret_cast<const __nv_bfloat162*>(&factor));
    pair = *reinterpret_cast<const uint32_t*>(&scaled);
  };
  scale(even);
  scale(odd);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
