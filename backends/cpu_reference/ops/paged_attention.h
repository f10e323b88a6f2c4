// Attention of a few query rows of one sequence that share a key/value head: the heads of a group,
// for one or several consecutive tokens.
//   rows[i].query, rows[i].out  [head_dim]   float
//   rows[i].context             visible tokens: positions [context - window, context); with sinks,
//                               num_sinks fewer, and positions [0, num_sinks)
//   block_table                 covers the longest context
//   scratch                     [kMaxRowsAtOnce, blocks of the longest context * kBlockSize] float
// The sums of a row run over its positions in one fixed order and do not depend on the other rows.
#pragma once

#include "backends/cpu_reference/ops/kv_cache_view.h"

namespace nereid::cpu {

inline constexpr int32_t kMaxRowsAtOnce = 4;

struct AttentionRow {
  const float* query = nullptr;
  float* out = nullptr;
  int32_t context = 0;
};

struct PagedAttentionParams {
  const AttentionRow* rows = nullptr;
  int32_t num_rows = 0;
  int32_t kv_head = 0;
  int32_t window = 0;  // 0: no window
  // First tokens of the sequence that are always visible, as part of the window.
  int32_t num_sinks = 0;
  const int32_t* block_table = nullptr;
  KvCacheView cache;
  float scale = 1.0f;
  float soft_cap = 0.0f;  // 0: none
  float* scratch = nullptr;
};

}  // namespace nereid::cpu
