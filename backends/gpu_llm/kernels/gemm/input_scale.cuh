// The power of two by which values of an input are divided before they become integers of two bytes
// (int4_bytes.cuh) or fp16 values. It makes the largest magnitude take 14 bits. Device code only.
#pragma once

#include "backends/gpu_llm/kernels/device/device.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {

// Returns the bits of the largest magnitude of eight values. Magnitudes of floats have the same
// order as their bits.
__device__ __forceinline__ uint32_t LargestMagnitude(const float (&values)[8]) {
  uint32_t largest = 0;
#pragma unroll
  for (const float value : values) largest = max(largest, __float_as_uint(value) & 0x7fffffffu);
  return largest;
}

// The scale of values whose largest magnitude has the bits `largest`. A value times factor() is
// less than 2^14; the result times scale() is the value again.
class InputScale {
 public:
  __device__ explicit InputScale(uint32_t largest)
      : largest_(largest), exponent_(max(largest >> 23, 14u)) {}
  __device__ float factor() const { return __uint_as_float((267u - exponent_) << 23); }
  // Not a number if a value is not finite.
  __device__ float scale() const {
    return __uint_as_float(largest_ < 0x7f800000u ? (exponent_ - 13u) << 23 : 0x7fc00000u);
  }

 private:
  uint32_t largest_, exponent_;
};

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
