// Writes the keys and values of consecutive tokens of one sequence into its cache blocks.
//   keys, values [num_tokens, num_kv_heads, head_dim]   float
//   block_table  covers first_position + num_tokens tokens
#pragma once

#include "backends/cpu_reference/ops/kv_cache_view.h"

namespace nereid::cpu {

struct PagedKvWriteParams {
  const float* keys = nullptr;
  const float* values = nullptr;
  int32_t num_tokens = 0;
  int32_t first_position = 0;
  const int32_t* block_table = nullptr;
  KvCacheView cache;
  int32_t first_head = 0;  // threads share the work by heads: [first_head, last_head)
  int32_t last_head = 0;
};

}  // namespace nereid::cpu
