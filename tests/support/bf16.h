// Conversions between float and bf16 for tests, written apart from those of the tree.
#pragma once

#include <bit>
#include <cstdint>

namespace nereid {

// Rounds a finite value to the nearest bf16 value, and to the even one of two equally near.
inline uint16_t Bf16Bits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline float FromBf16(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

}  // namespace nereid
