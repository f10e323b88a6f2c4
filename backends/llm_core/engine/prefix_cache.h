// Knows which KV block holds which tokens: a chain of full blocks, each found by the one before it
// and its own token ids. A hash leads to the entry; the entry is compared, so that equal hashes of
// different tokens never mix. Knows neither reference counts nor sequences. [engine thread]
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/llm_core/engine/kv_block.h"

namespace nereid::llm {

// A place in a chain: what stands before the next block. Requests of different salts never share.
struct PrefixChain {
  int32_t num_blocks = 0;  // up to here
  uint64_t salt = 0;
  uint64_t hash = 0;
  uint64_t serial = 0;  // of the content up to here; 0: nothing yet

  static PrefixChain Start(uint64_t salt) { return {0, salt, salt * 0x9e3779b97f4a7c15u, 0}; }
};

class PrefixCache {
 public:
  // Of each of `blocks`, which outlive it, it keeps what it holds.
  PrefixCache(std::span<KvBlock> blocks, int32_t block_size);

  // The blocks that hold the longest known prefix of `token_ids`, at most `max_blocks` of them, to
  // the end of `blocks`; `chain` moves from its start to the end of that prefix.
  void Match(std::span<const int32_t> token_ids, int32_t max_blocks, PrefixChain& chain,
             std::vector<int32_t>& blocks);

  // The hash for Insert. Asks for the memory that Insert will touch: with many to insert, call it
  // for a few of them ahead.
  uint64_t Prepare(const int32_t* token_ids, int32_t block, const PrefixChain& chain) const;
  // `block` holds the next `block_size` tokens after `chain`; `hash` is what Prepare said. False
  // when another block is already known to: then `block` is not entered. `chain` moves on in either
  // case.
  bool Insert(const int32_t* token_ids, int32_t block, uint64_t hash, PrefixChain& chain);
  void Forget(int32_t block);
  // Asks for the memory that Forget will touch beside the block.
  void PrefetchSlot(int32_t block) const {
    __builtin_prefetch(&table_[blocks_[block].hash & mask_], 1);
  }
  bool Holds(int32_t block) const { return blocks_[block].serial != 0; }
  int32_t size() const { return size_; }

 private:
  struct Slot {
    uint32_t tag = 0;  // low half of the hash: its own place, and a little more
    int32_t block = -1;
  };

  uint64_t HashAfter(uint64_t parent, const int32_t* token_ids) const;
  int32_t Find(uint64_t hash, const PrefixChain& parent, const int32_t* token_ids) const;
  bool IsContent(int32_t block, uint64_t hash, const PrefixChain& parent,
                 const int32_t* token_ids) const;

  const std::span<KvBlock> blocks_;
  int32_t block_size_;
  uint64_t next_serial_ = 1;
  int32_t size_ = 0;
  uint64_t mask_;
  std::vector<Slot> table_;         // open addressing, linear probing, at most half full
  std::vector<int32_t> token_ids_;  // [num_blocks, block_size]
  std::vector<uint64_t> hashes_;    // scratch of Match
};

}  // namespace nereid::llm
