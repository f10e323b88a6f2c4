// Hands out the fixed-size blocks of the KV cache and counts who refers to each. Knows neither
// sequences nor memory. [engine thread]
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nereid/status.h"

namespace nereid::llm {

class BlockManager {
 public:
  BlockManager(int32_t num_blocks, int32_t block_size);

  int32_t block_size() const { return block_size_; }
  int32_t num_blocks() const { return static_cast<int32_t>(reference_counts_.size()); }
  int32_t num_free() const { return static_cast<int32_t>(free_blocks_.size()); }
  int32_t num_used() const { return num_blocks() - num_free(); }
  int32_t BlocksFor(int64_t num_tokens) const {
    return static_cast<int32_t>((num_tokens + block_size_ - 1) / block_size_);
  }

  // A block with one reference. Requires num_free() > 0. The block given back last comes first: it
  // is the one whose memory is warm.
  int32_t Allocate();
  void AddReference(int32_t block);
  // The last reference frees the block.
  void Release(int32_t block);
  // Releases every block of a table and empties it.
  void ReleaseAll(std::vector<int32_t>& block_table);

  // Checks that free list and counts agree, and that the tables hold exactly the references that
  // are counted. INTERNAL names the block.
  Status CheckInvariants(std::span<const std::span<const int32_t>> block_tables) const;

 private:
  int32_t block_size_;
  std::vector<int32_t> reference_counts_;  // [num_blocks], 0: free
  std::vector<int32_t> free_blocks_;       // a stack
};

}  // namespace nereid::llm
