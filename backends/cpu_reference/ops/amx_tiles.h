// Shared by the matrix products with AMX: the shape of the tile registers and the scratch memory.
// For files that are compiled for AMX only.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "backends/cpu_reference/ops/matmul.h"

namespace nereid::cpu::amx {

constexpr int kNumTiles = 8;
constexpr int64_t kTileRows = 16;
constexpr int64_t kTileBytes = 1024;

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};  // [tile]
  uint8_t rows[16] = {};        // [tile]
};

// The caller's scratch memory from its first cache line on.
inline uint8_t* AlignedScratch(const MatmulParams& params) {
  const auto address = reinterpret_cast<uintptr_t>(params.scratch);
  return reinterpret_cast<uint8_t*>((address + 63) / 64 * 64);
}

}  // namespace nereid::cpu::amx
