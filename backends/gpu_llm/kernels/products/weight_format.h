// How a weight matrix [num_outputs, depth] lies in device memory.
//   bf16, fp8 (e4m3): row by row; fp8 rows have a factor each
//   int4: tiles of 16 rows, one behind the other; a tile is blocks of 128 columns, one behind the
//     other; a block is 1,024 bytes of values, then its scales. The values are two halves of 64
//     columns; in a half, lane 4 g + t of a warp owns 16 bytes: four words, of columns [8 t, + 8)
//     of its first 32 columns for row g and for row g + 8, then the same of the other 32 columns.
//     Nibble i of a word's low 16 bits is column 2 i, of its high 16 bits column 2 i + 1. Scales
//     are scales_per_block rows of 16 words, one a row of the tile: a float whose last five bits
//     hold the zero (0 to 16), which no fp16 or bf16 scale misses.
//     Rows and columns that pad the last tile and block have scale 0.
#pragma once

#include <cstdint>
#include <cstring>

namespace nereid::gpu {

enum class WeightFormat : int32_t { kBf16, kFp8, kInt4 };

inline constexpr int kInt4TileRows = 16;
inline constexpr int kInt4BlockColumns = 128;
inline constexpr int kInt4ValueBytes = kInt4TileRows * kInt4BlockColumns / 2;

constexpr int Int4BlockBytes(int scales_per_block) {
  return kInt4ValueBytes + 4 * kInt4TileRows * scales_per_block;
}
constexpr int64_t Int4TileBytes(int64_t depth, int scales_per_block) {
  return (depth + kInt4BlockColumns - 1) / kInt4BlockColumns * Int4BlockBytes(scales_per_block);
}

// Within a block: which word, and where in it, holds a value.
struct Int4Place {
  int word, shift;
};
constexpr Int4Place PlaceInInt4Block(int row, int column) {
  const int half = column / 64, step = column / 32 % 2, t = column / 8 % 4, i = column % 8;
  const int lane = row % 8 * 4 + t;
  return {half * 128 + lane * 4 + step * 2 + row / 8, i % 2 * 16 + i / 2 * 4};
}

inline uint32_t Int4ScaleWord(float scale, int zero) {
  uint32_t bits;
  std::memcpy(&bits, &scale, 4);
  return (bits & ~31u) | static_cast<uint32_t>(zero);
}

struct WeightMatrix {
  WeightFormat format = WeightFormat::kBf16;
  int scales_per_block = 1;           // int4: 1, 2 or 4
  const void* data = nullptr;         // null: there is no such matrix
  const float* row_scales = nullptr;  // fp8: [num_outputs]
  int num_outputs = 0, depth = 0;
  // fp8: products of many rows may round their input to fp8 too.
  bool quantizes_input = false;
};

}  // namespace nereid::gpu
