// out[i] = table[ids[i]] * scale (+ positions_table[positions[i]]).
//   table           [vocab, size]   float, bf16 or fp16
//   positions_table [*, size] or null data
//   out             [num_tokens, size]  float
#pragma once

#include "backends/cpu_reference/ops/weight_format.h"

namespace nereid::cpu {

struct EmbeddingParams {
  const int32_t* ids = nullptr;
  const int32_t* positions = nullptr;
  int64_t num_tokens = 0;
  WeightMatrix table;
  WeightMatrix positions_table;
  float scale = 1.0f;
  float* out = nullptr;
};

}  // namespace nereid::cpu
