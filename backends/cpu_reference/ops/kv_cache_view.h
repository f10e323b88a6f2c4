// The KV cache of one layer as the ops use it. Borrowed memory.
#pragma once

#include <cstdint>

namespace nereid::cpu {

// Tokens in a block: the width of the widest vector, so that the scores of a block are one vector.
inline constexpr int32_t kBlockSize = 16;

//   keys   [num_blocks, num_kv_heads, head_dim, kBlockSize]    float: a block's keys, transposed
//   values [num_blocks, num_kv_heads, kBlockSize, value_size]  float: rows padded with zeros
struct KvCacheView {
  float* keys = nullptr;
  float* values = nullptr;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t value_size = 0;  // head_dim rounded up to a multiple of 16

  int64_t key_block_size() const { return int64_t{head_dim} * kBlockSize; }
  int64_t value_block_size() const { return int64_t{value_size} * kBlockSize; }
  float* KeyBlock(int32_t block, int32_t head) const {
    return keys + (int64_t{block} * num_kv_heads + head) * key_block_size();
  }
  float* ValueBlock(int32_t block, int32_t head) const {
    return values + (int64_t{block} * num_kv_heads + head) * value_block_size();
  }
};

// Parameters of paged_kv_write: writes the keys and values of consecutive tokens of one sequence
// into its cache blocks.
//   keys, values [num_tokens, num_kv_heads, head_dim]   float
//   block_table  covers first_position + num_tokens tokens
struct PagedKvWriteParams {
  const float* keys = nullptr;
  const float* values = nullptr;
  int32_t num_tokens = 0;
  int32_t first_position = 0;
  const int32_t* block_table = nullptr;
  KvCacheView cache;
  int32_t first_head = 0;  // threads divide the work by heads: [first_head, last_head)
  int32_t last_head = 0;
};

}  // namespace nereid::cpu
