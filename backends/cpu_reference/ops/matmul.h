// out = in x weights^T (+ bias) (+ out): the one matrix product of the model, for decode and
// prefill.
//   in      [num_rows, columns]        float
//   weights [outputs, columns]         any WeightType, never converted in memory; integers take
//                                      their input in fixed point
//   bias    [outputs] or null          float
//   out     [num_rows, out_stride]     float
// Computes outputs [first_output, last_output) for all rows; threads share a product by outputs.
// Each out element is a dot product by one fixed order of additions: it does not depend on
// num_rows, on the range of outputs or on the number of threads. That is what makes a request's
// result independent of the batch, bit by bit.
#pragma once

#include "backends/cpu_reference/ops/weight_type.h"

namespace nereid::cpu {

// Outputs that are computed together for all rows: ranges best start at multiples of it.
inline constexpr int64_t kOutputsPerPanel = 32;

struct MatmulParams {
  const float* in = nullptr;
  const uint8_t* fixed_point = nullptr;  // instead of `in`, with integer weights: fixed_point.h
  int64_t num_rows = 0;
  WeightMatrix weights;
  const float* bias = nullptr;
  float* out = nullptr;
  int64_t out_stride = 0;
  bool accumulate = false;
  int64_t first_output = 0;
  int64_t last_output = 0;
  float* scratch = nullptr;  // MatmulScratchFloats(num_rows, columns) of a thread's own
};

// Grows with both sizes: that of the largest product serves all.
int64_t MatmulScratchFloats(int64_t num_rows, int64_t columns);

}  // namespace nereid::cpu
