// The blocks of one head of an encoded KV cache as floats, for one call of the attention. Owns
// scratch memory, so that each thread has an object of its own. [one thread at a time]
#pragma once

#include <cstdint>
#include <vector>

#include "backends/cpu_reference/model/kv_cache.h"
#include "backends/cpu_reference/ops/paged_attention.h"

namespace nereid::cpu {

class DecodedBlocks {
 public:
  // Decodes the blocks of the first `num_tokens` tokens that the rows of `params` see. `params`
  // then refers to the decoded blocks, which are valid until the next call, and to
  // `num_tail_blocks` further ones behind them. Returns the number of the first of those.
  int32_t Decode(const KvCache& cache, int32_t layer, int32_t num_tokens, int32_t num_tail_blocks,
                 PagedAttentionParams& params);

 private:
  std::vector<float> floats_;
  std::vector<int32_t> table_;  // 0, 1, 2, ...
};

}  // namespace nereid::cpu
