// Converts rows of hidden states between bf16 and float. The loops are ones that compilers turn
// into vector instructions. No CUDA here.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace nereid::gpu {

// `to` has room for all values.
inline void FromBf16(std::span<const uint16_t> from, float* to) {
  for (size_t i = 0; i < from.size(); ++i) to[i] = std::bit_cast<float>(uint32_t{from[i]} << 16);
}

// Rounds to the nearest bf16 value, and to the even one of two equally near. A NaN may become
// infinite.
inline void ToBf16(std::span<const float> from, uint16_t* to) {
  for (size_t i = 0; i < from.size(); ++i) {
    const auto bits = std::bit_cast<uint32_t>(from[i]);
    to[i] = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
}

}  // namespace nereid::gpu
