// The layout of a weight matrix [num_outputs, depth] in device memory.
//   bf16, fp8 (e4m3): row by row. Each fp8 row has a scale. Where blocks have scales as well,
//     those of a tile of 16 rows and of 128 columns are a word of two bf16 values: one for the
//     first 8 rows, which may be gate's, and one for the others. The words are those of all tiles
//     for the first columns, then for the next ones. Only matrices of whole
//     tiles have block scales
//   int4: consecutive tiles of 16 rows; a tile is consecutive blocks of 128 columns; a block is
//     1,024 bytes of values, then its scales. The values are two halves of 64 columns. In a half,
//     lane 4 g + t of a warp owns 16 bytes: four words, of columns [8 t, + 8) of the first 32
//     columns for row g and for row g + 8, then the same of the other 32 columns. Nibble i of a
//     word's low 16 bits is column 2 i, of its high 16 bits column 2 i + 1. The scales are
//     scales_per_block rows of 16 words, one for each row of the tile: a float whose last five bits
//     are replaced by the zero point (0 to 16), which does not change any fp16 or bf16 scale. Rows
//     and columns that pad the last tile and block have scale 0.
#pragma once

#include <cstdint>
#include <cstring>

namespace nereid::gpu {

enum class WeightFormat : int32_t { kBf16, kFp8, kInt4 };

inline constexpr int kInt4TileRows = 16;
inline constexpr int kInt4BlockColumns = 128;
inline constexpr int kInt4ValueBytes = kInt4TileRows * kInt4BlockColumns / 2;

// fp8: rows of a word of block scales, rows of one of its scales, and columns of both.
inline constexpr int kFp8TileRows = 16, kFp8ScaleRows = 8, kFp8BlockColumns = 128;
// The largest block scale: kernels that convert weights to bf16 multiply it by 2^120.
inline constexpr float kMaxFp8BlockScale = 255.0f;
constexpr int64_t NumFp8Tiles(int64_t num_outputs) {
  return (num_outputs + kFp8TileRows - 1) / kFp8TileRows;
}
constexpr int64_t NumFp8BlockScales(int64_t num_outputs, int64_t depth) {  // words
  return NumFp8Tiles(num_outputs) * ((depth + kFp8BlockColumns - 1) / kFp8BlockColumns);
}

constexpr int Int4BlockBytes(int scales_per_block) {
  return kInt4ValueBytes + 4 * kInt4TileRows * scales_per_block;
}
template <typename Count>
constexpr Count NumInt4Blocks(Count depth) {  // of a tile
  return (depth + kInt4BlockColumns - 1) / kInt4BlockColumns;
}
constexpr int64_t Int4TileBytes(int64_t depth, int scales_per_block) {
  return NumInt4Blocks(depth) * Int4BlockBytes(scales_per_block);
}

// Position of a value within a block: word index and bit shift.
struct Int4Location {
  int word, shift;
};
constexpr Int4Location LocateInInt4Block(int row, int column) {
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
  int scales_per_block = 1;                // int4: 1, 2 or 4
  const void* data = nullptr;              // null: the matrix does not exist
  const float* row_scales = nullptr;       // fp8: [num_outputs]
  const uint32_t* block_scales = nullptr;  // fp8: [NumFp8BlockScales()]; null: there are none
  int num_outputs = 0, depth = 0;
  // fp8: matrix products of many rows may quantize their input to fp8 as well.
  bool quantizes_input = false;
};

}  // namespace nereid::gpu
