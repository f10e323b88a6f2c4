// Rotary embedding, in place on the heads of q or k: pairs (i, i + dim / 2).
//   heads    [num_tokens, num_heads, head_dim]   float, in/out
//   cos, sin [num_tokens, dim / 2]               float
#pragma once

#include <cstdint>

namespace nereid::cpu {

struct RopeParams {
  float* heads = nullptr;
  const float* cos = nullptr;
  const float* sin = nullptr;
  int64_t num_tokens = 0;
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  int64_t dim = 0;
};

}  // namespace nereid::cpu
