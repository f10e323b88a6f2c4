// Conversions between bf16 and float on the host: of single values, and of rows by loops that
// compilers turn into vector instructions. No CUDA here.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace nereid::gpu {

// Rounds to the nearest bf16 value, and to the even one of two equally near. A NaN may become
// infinite or zero.
inline uint16_t RoundToBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// `to` has room for all values.
inline void ToBf16(std::span<const float> from, uint16_t* to) {
  for (size_t i = 0; i < from.size(); ++i) to[i] = RoundToBf16(from[i]);
}
inline void FromBf16(std::span<const uint16_t> from, float* to) {
  for (size_t i = 0; i < from.size(); ++i) to[i] = std::bit_cast<float>(uint32_t{from[i]} << 16);
}

}  // namespace nereid::gpu
