// Converts to float the KV blocks that at least one row attends to, by its window or its sinks.
#include "backends/cpu_reference/model/decoded_blocks.h"

#include <algorithm>

namespace nereid::cpu {

int32_t DecodedBlocks::Decode(const KvCache& cache, int32_t layer, int32_t num_tokens,
                              int32_t num_tail_blocks, PagedAttentionParams& params) {
  int32_t shortest = params.rows[0].context;  // its window begins first
  for (int32_t row = 0; row < params.num_rows; ++row) {
    shortest = std::min(shortest, params.rows[row].context);
  }
  const int32_t num_blocks = (num_tokens + kBlockSize - 1) / kBlockSize;
  const bool is_cut = params.window > 0 && shortest > params.window;
  const int32_t first = is_cut ? (shortest - params.window) / kBlockSize : 0;
  const int64_t num_in_view = num_blocks + num_tail_blocks;
  const auto num_floats = static_cast<size_t>(num_in_view * cache.decoded_block_floats());
  if (floats_.size() < num_floats) floats_.resize(num_floats);
  const KvCacheView view = cache.DecodedView(floats_.data(), num_in_view);
  const int32_t num_sink_blocks = (params.num_sinks + kBlockSize - 1) / kBlockSize;
  for (int32_t block = 0; block < num_blocks; ++block) {
    if (block < first && block >= num_sink_blocks) continue;
    cache.Decode(layer, params.block_table[block], params.kv_head, view, block);
  }
  for (auto block = static_cast<int32_t>(table_.size()); block < num_blocks; ++block) {
    table_.push_back(block);
  }
  params.cache = view;
  params.block_table = table_.data();
  params.kv_head = 0;
  return num_blocks;
}

}  // namespace nereid::cpu
