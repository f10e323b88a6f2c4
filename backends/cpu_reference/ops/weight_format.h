// A weight matrix in memory, in the precision of the checkpoint. Borrowed memory. [any thread]
#pragma once

#include <cstdint>

namespace nereid::cpu {

enum class WeightFormat : uint8_t { kF32, kBf16, kF16, kF8E4M3, kInt4, kInt8 };

// Integer weights are stored in strips of 16 outputs, so that one vector contains four columns of
// each:
//   kInt8: 64 bytes for each four columns; byte 4 o + c is column c of output o
//   kInt4: 64 bytes for each eight columns; byte 4 o + c has column c in its low half and column
//          4 + c in its high half
// Values are unsigned. Padding outputs of the last strip have scale 0.
inline constexpr int64_t kStripOutputs = 16;
inline constexpr int64_t kMaxSegment = 128;
// Columns and rows that share a scale of kF8E4M3 with block_scales.
inline constexpr int64_t kF8Block = 128;

// Row-major [rows, columns], except integers; row r contains the weights of output r.
//   kF8E4M3: weight = value * row_scales[r], or value * block_scales[r / 128, column / 128]
//   kInt4, kInt8: weight = (value - group_zeros[s, g, o]) * group_scales[s, g, o], where r = 16 s +
//            o and g = column / group_size; a group_size divides 128 or is a multiple of it, or is
//            the whole row
struct WeightMatrix {
  const void* data = nullptr;
  WeightFormat type = WeightFormat::kF32;
  int64_t rows = 0;
  int64_t columns = 0;
  const float* row_scales = nullptr;      // [rows]
  const float* block_scales = nullptr;    // [ceil(rows / 128), ceil(columns / 128)]
  const float* group_scales = nullptr;    // [strips, num_groups, 16]
  const uint16_t* group_zeros = nullptr;  // likewise
  int64_t group_size = 0;

  bool is_integer() const { return type == WeightFormat::kInt4 || type == WeightFormat::kInt8; }
  int64_t num_groups() const { return (columns + group_size - 1) / group_size; }
  int64_t num_strips() const { return (rows + kStripOutputs - 1) / kStripOutputs; }
  int64_t strip_bytes() const {
    const int64_t eights = (columns + 7) / 8;
    return eights * (type == WeightFormat::kInt4 ? 64 : 128);
  }
  // Columns that a product sums up as integers.
  int64_t segment() const {
    return group_size < kMaxSegment && kMaxSegment % group_size == 0 ? group_size : kMaxSegment;
  }
  // For formats that are stored row by row.
  int64_t row_bytes() const {
    switch (type) {
      case WeightFormat::kF32:
        return columns * 4;
      case WeightFormat::kF8E4M3:
        return columns;
      default:
        return columns * 2;
    }
  }
  int64_t size_bytes() const {
    if (!is_integer()) return rows * row_bytes();
    const int64_t scales = num_strips() * num_groups() * kStripOutputs;
    return num_strips() * strip_bytes() + scales * static_cast<int64_t>(sizeof(float) + 2);
  }
};

}  // namespace nereid::cpu
