// Converts the input of products with int4 weights to bytes. A mask alone makes bytes of int4
// weights, and the tensor cores multiply bytes twice as fast as bf16 values. A value of the input
// becomes an integer of two bytes, times a scale that several values share; operand b of the
// product has the high bytes of a row in one column and the low bytes in another. The scale makes
// the largest magnitude take 14 bits: a bf16 value is exact unless it is less than 1/64 of the
// largest. Device code only.
#pragma once

#include "backends/gpu_llm/kernels/device/device.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {

constexpr uint32_t kByteOnes = 0x01010101u;

// Returns the bits of the largest magnitude of eight values. Magnitudes of floats have the same
// order as their bits.
__device__ __forceinline__ uint32_t LargestMagnitude(const float (&values)[8]) {
  uint32_t largest = 0;
#pragma unroll
  for (const float value : values) largest = max(largest, __float_as_uint(value) & 0x7fffffffu);
  return largest;
}

// The power of two by which values are divided before they become integers of two bytes or, in
// fused decode steps, fp16 values. `largest`: the bits of their largest magnitude. A value times
// factor() is less than 2^14, and scale() is the inverse of factor().
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

// The high and low bytes of the eight inputs that belong to a word of weights (weight_format.h).
// x has the inputs of the word's even nibbles: columns 0, 4, 1 and 5. y has those of its odd
// nibbles: columns 2, 6, 3 and 7.
struct InputBytes {
  uint2 high, low;
  int32_t sum;  // of the eight integers
};
__device__ __forceinline__ InputBytes ToInputBytes(const float (&values)[8], float factor) {
  // A float of this size has a last bit of 1: the sum with an integer has the integer in its bits.
  constexpr float kInteger = 0x1.8p23f;
  constexpr uint32_t kIntegerBits = 0x4b400000u;  // of kInteger
  uint32_t low[8], high[8];
  int32_t sum = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    low[i] = __float_as_uint(fmaf(values[i], factor, kInteger));
    high[i] = low[i] + 128;  // because the low byte is signed
    sum += static_cast<int32_t>(low[i] - kIntegerBits);
  }
  const auto pack = [](const uint32_t(&from)[8], int first, uint32_t byte) {
    return __byte_perm(__byte_perm(from[first], from[first + 4], byte),
                       __byte_perm(from[first + 1], from[first + 5], byte), 0x5410);
  };
  return {{pack(high, 0, 0x0051), pack(high, 2, 0x0051)},
          {pack(low, 0, 0x0040), pack(low, 2, 0x0040)},
          sum};
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
