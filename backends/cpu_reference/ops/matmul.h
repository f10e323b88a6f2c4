// out = in x weights^T (+ bias) (+ out). The only matrix product of the model, for decode and
// prefill.
//   in      [num_rows, columns]        float
//   weights [outputs, columns]         any WeightFormat, never converted in memory; integer weights
//                                      take fixed-point input
//   bias    [outputs] or null          float
//   out     [num_rows, out_stride]     float
// Computes outputs [first_output, last_output) for all rows; threads divide a product by outputs.
// Each output element is a dot product with one fixed order of additions. It does not depend on
// num_rows, on the range of outputs or on the number of threads. This makes the result of a request
// bit-identical in any batch.
#pragma once

#include "backends/cpu_reference/ops/weight_format.h"

namespace nereid::cpu {

// Outputs that are computed together for all rows. Ranges should start at multiples of it.
inline constexpr int64_t kOutputsPerPanel = 32;

struct MatmulParams {
  const float* in = nullptr;
  const uint8_t* fixed_point = nullptr;  // replaces `in` for integer weights; see fixed_point.h
  int64_t num_rows = 0;
  WeightMatrix weights;
  const float* bias = nullptr;
  float* out = nullptr;
  int64_t out_stride = 0;
  bool accumulate = false;
  int64_t first_output = 0;
  int64_t last_output = 0;
  float* scratch = nullptr;  // MatmulScratchFloats(num_rows, columns) floats, owned by the thread
};

// Grows with both sizes, so that the size for the largest product is enough for all.
int64_t MatmulScratchFloats(int64_t num_rows, int64_t columns);

}  // namespace nereid::cpu
