// A weight matrix in memory, in the precision in which the checkpoint stores it. Borrowed.
// [any thread]
#pragma once

#include <cstdint>

namespace nereid::cpu {

enum class WeightType : uint8_t { kF32, kBf16, kF16, kF8E4M3, kInt4 };

// Columns of an int4 row that lie in 64 bytes together: 16 words of 32 bits, where nibble k of word
// i is column 16 k + i. So one shift of all words gives 16 columns in order, for vectors of 4, 8 or
// 16 lanes alike. The last block of a row may be part empty.
inline constexpr int64_t kInt4BlockColumns = 128;
inline constexpr int64_t kInt4BlockBytes = 64;

// Row-major [rows, columns]; row r is the weights of output r.
//   kF8E4M3: weight = value * row_scales[r]
//   kInt4:   weight = (value - group_zeros[r, g]) * group_scales[r, g], g = column / group_size; a
//            group_size divides 128 or is a multiple of it, or is the whole row
struct WeightMatrix {
  const void* data = nullptr;
  WeightType type = WeightType::kF32;
  int64_t rows = 0;
  int64_t columns = 0;
  const float* row_scales = nullptr;     // [rows]
  const float* group_scales = nullptr;   // [rows, num_groups]
  const uint8_t* group_zeros = nullptr;  // [rows, num_groups]
  int64_t group_size = 0;

  int64_t num_groups() const { return (columns + group_size - 1) / group_size; }
  int64_t row_bytes() const {
    switch (type) {
      case WeightType::kF32:
        return columns * 4;
      case WeightType::kF8E4M3:
        return columns;
      case WeightType::kInt4:
        return (columns + kInt4BlockColumns - 1) / kInt4BlockColumns * kInt4BlockBytes;
      default:
        return columns * 2;
    }
  }
};

}  // namespace nereid::cpu
