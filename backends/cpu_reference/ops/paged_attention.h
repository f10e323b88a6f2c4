// Attention of one token's query heads that share a key/value head, over the paged cache.
//   queries     [num_queries, head_dim]   float
//   out         [num_queries, head_dim]   float
//   block_table covers context tokens; the token sees positions [context - window, context)
//   scratch     [num_queries, BlocksFor(context) * kBlockSize]   float
// The sums run over positions in one fixed order: the result depends on the context alone.
#pragma once

#include "cpu_reference/ops/kv_cache_view.h"

namespace nereid::cpu {

struct PagedAttentionParams {
  const float* queries = nullptr;
  int32_t num_queries = 0;
  int32_t kv_head = 0;
  int32_t context = 0;  // tokens in the cache, the query's own included
  int32_t window = 0;   // 0: all of them
  const int32_t* block_table = nullptr;
  KvCacheView cache;
  float scale = 1.0f;
  float soft_cap = 0.0f;  // 0: none
  float* scratch = nullptr;
  float* out = nullptr;
};

}  // namespace nereid::cpu
