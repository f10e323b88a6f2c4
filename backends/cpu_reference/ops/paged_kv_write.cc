// Writes keys (transposed within a block) and values to their blocks.
#include "backends/cpu_reference/ops/kv_cache_view.h"

#include "backends/cpu_reference/ops/simd.h"

namespace nereid::cpu::NEREID_ISA {

void PagedKvWrite(const PagedKvWriteParams& p) {
  const int32_t head_dim = p.cache.head_dim;
  for (int32_t token = 0; token < p.num_tokens; ++token) {
    const int32_t position = p.first_position + token;
    const int32_t block = p.block_table[position / kBlockSize];
    const int32_t index = position % kBlockSize;
    for (int32_t head = p.first_head; head < p.last_head; ++head) {
      const int64_t from = (int64_t{token} * p.cache.num_kv_heads + head) * head_dim;
      float* key = p.cache.KeyBlock(block, head) + index;
      float* value = p.cache.ValueBlock(block, head) + int64_t{index} * p.cache.value_size;
      for (int32_t d = 0; d < head_dim; ++d) key[int64_t{d} * kBlockSize] = p.keys[from + d];
      for (int32_t d = 0; d < head_dim; ++d) value[d] = p.values[from + d];
    }
  }
}

}  // namespace nereid::cpu::NEREID_ISA
