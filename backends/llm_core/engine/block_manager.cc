// Reference-counted KV blocks.
#include "llm_core/engine/block_manager.h"

#include <cassert>

namespace nereid::llm {

BlockManager::BlockManager(int32_t num_blocks, int32_t block_size)
    : block_size_(block_size), reference_counts_(num_blocks, 0) {
  free_blocks_.reserve(num_blocks);
  for (int32_t block = num_blocks - 1; block >= 0; --block) free_blocks_.push_back(block);
}

int32_t BlockManager::Allocate() {
  assert(!free_blocks_.empty());
  const int32_t block = free_blocks_.back();
  free_blocks_.pop_back();
  reference_counts_[block] = 1;
  return block;
}

void BlockManager::AddReference(int32_t block) {
  assert(reference_counts_[block] > 0);
  ++reference_counts_[block];
}

void BlockManager::Release(int32_t block) {
  assert(reference_counts_[block] > 0);
  if (--reference_counts_[block] == 0) free_blocks_.push_back(block);
}

void BlockManager::ReleaseAll(std::vector<int32_t>& block_table) {
  for (size_t i = block_table.size(); i-- > 0;) Release(block_table[i]);
  block_table.clear();
}

Status BlockManager::CheckInvariants(std::span<const std::span<const int32_t>> block_tables) const {
  std::vector<int32_t> counted(reference_counts_.size(), 0);
  for (const std::span<const int32_t> table : block_tables) {
    for (const int32_t block : table) {
      if (block < 0 || block >= num_blocks()) {
        return InternalError("KV block ", block, " in a table, expected 0 to ", num_blocks() - 1);
      }
      ++counted[block];
    }
  }
  std::vector<bool> is_free(reference_counts_.size(), false);
  for (const int32_t block : free_blocks_) {
    if (is_free[block]) return InternalError("KV block ", block, " is twice in the free list");
    is_free[block] = true;
  }
  for (int32_t block = 0; block < num_blocks(); ++block) {
    if (counted[block] != reference_counts_[block]) {
      return InternalError("KV block ", block, ": ", reference_counts_[block],
                           " references counted, ", counted[block], " held");
    }
    if (is_free[block] != (reference_counts_[block] == 0)) {
      return InternalError("KV block ", block, " has ", reference_counts_[block],
                           " references and is ", is_free[block] ? "free" : "not free");
    }
  }
  return Status::Ok();
}

}  // namespace nereid::llm
