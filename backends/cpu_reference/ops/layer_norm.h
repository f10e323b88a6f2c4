// out = (in - mean(in)) / deviation(in) * weight + bias, row by row.
//   in, out      [num_rows, size]   float
//   weight, bias [size]             float
#pragma once

#include <cstdint>

namespace nereid::cpu {

struct LayerNormParams {
  const float* in = nullptr;
  const float* weight = nullptr;
  const float* bias = nullptr;
  float epsilon = 0.0f;
  int64_t num_rows = 0;
  int64_t size = 0;
  float* out = nullptr;
};

}  // namespace nereid::cpu
