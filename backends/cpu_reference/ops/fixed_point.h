// Converts input rows to fixed-point numbers for products with integer weights. Sums of such
// numbers are exact, in any order and on any instruction set, so that the batch cannot change a bit
// of them.
#pragma once

#include <cstdint>

#include "backends/cpu_reference/ops/weight_format.h"

namespace nereid::cpu {

// A number is scale * (65536 d0 + 256 d1 + d2) with digits from -128 to 127: about 24 bits,
// relative to the largest number of its segment. A row consists of
//   int8  d0[padded_columns], d1[padded_columns], d2[padded_columns]   zero after the last column
//   float scale[num_segments], sum[num_segments]                       sum of the segment / scale
struct FixedPointLayout {
  int64_t columns = 0;
  int64_t segment = 0;  // columns that share a scale

  static FixedPointLayout For(const WeightMatrix& weights) {
    return {weights.columns, weights.segment()};
  }
  int64_t padded_columns() const { return (columns + 63) / 64 * 64; }
  int64_t num_segments() const { return (columns + segment - 1) / segment; }
  int64_t row_bytes() const { return (3 * padded_columns() + 8 * num_segments() + 63) / 64 * 64; }
  bool operator==(const FixedPointLayout&) const = default;
};

struct FixedPointParams {
  const float* in = nullptr;  // [num_rows, columns]
  int64_t num_rows = 0;
  FixedPointLayout layout;
  uint8_t* out = nullptr;  // [num_rows, layout.row_bytes()], aligned to 64 bytes
};

}  // namespace nereid::cpu
