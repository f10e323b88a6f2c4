// out = in / rms(in) * weight, row by row; in and out may be the same.
//   in, out [num_rows, size] with strides in_stride, out_stride   float
//   weight  [size]                                                float
#pragma once

#include <cstdint>

namespace nereid::cpu {

struct RmsNormParams {
  const float* in = nullptr;
  int64_t in_stride = 0;
  const float* weight = nullptr;
  float epsilon = 0.0f;
  int64_t num_rows = 0;
  int64_t size = 0;
  float* out = nullptr;
  int64_t out_stride = 0;
  bool accumulate = false;  // out += instead of out =
};

}  // namespace nereid::cpu
