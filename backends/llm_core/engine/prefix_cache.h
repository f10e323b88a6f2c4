// Maps token prefixes to KV blocks: a chain of full blocks, each identified by the preceding block
// and its own token ids. Entries found by hash are compared in full, so that a hash collision never
// mixes different tokens. Knows neither reference counts nor sequences. [engine thread]
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "backends/llm_core/engine/kv_retention.h"

namespace nereid::llm {

// The metadata of a KV block, in one cache line. There are many blocks, and each step touches a few
// that have left the CPU caches.
struct alignas(64) KvBlock {
  // Used by BlockPool.
  int32_t references = 0;  // 0: free or evictable
  // Used by EvictionOrder. Links to blocks of the same priority that are cached, not referenced.
  int32_t before = -1;
  int32_t after = -1;
  int32_t duration_ms = 0;  // see BlockRetention
  uint64_t last_use = 0;
  uint8_t priority = kDefaultRetentionPriority;
  bool is_expired = false;  // evictable, and its duration has ended
  // Used by PrefixCache: the cached content.
  uint64_t hash = 0;
  uint64_t salt = 0;
  uint64_t parent = 0;  // serial of the preceding block's content
  uint64_t serial = 0;  // 0: not in the prefix cache
};

// Salts with this bit are of content that means nothing in another process.
inline constexpr uint64_t kSaltOfThisProcess = 1;
constexpr bool IsOfThisProcess(uint64_t salt) {
  return (salt & kSaltOfThisProcess) != 0;
}

// A position in a chain: the content before the next block. Requests with different salts never
// share blocks.
struct PrefixChain {
  int32_t num_blocks = 0;  // before this position
  int32_t block = -1;      // the cached block before this position, while it has that content
  uint64_t salt = 0;
  uint64_t hash = 0;
  uint64_t serial = 0;  // of the content before this position; 0: empty

  static PrefixChain Start(uint64_t salt) { return {0, -1, salt, salt * 0x9e3779b97f4a7c15u, 0}; }
};

class PrefixCache {
 public:
  // Stores the content of each block in `blocks`, which must outlive the cache.
  PrefixCache(std::span<KvBlock> blocks, int32_t block_size);

  // Appends to `blocks` the blocks of the longest cached prefix of `token_ids`, at most
  // `max_blocks`. Moves `chain` from its start to the end of that prefix.
  void Match(std::span<const int32_t> token_ids, int32_t max_blocks, PrefixChain& chain,
             std::vector<int32_t>& blocks);

  // Computes the hash for Insert and prefetches the memory that Insert will touch. With many
  // insertions, call it a few ahead.
  uint64_t Prepare(const int32_t* token_ids, int32_t block, const PrefixChain& chain) const;
  // `block` holds the next `block_size` tokens after `chain`; `hash` is the result of Prepare.
  // Returns false if another block already has this content, or if the content before it is not
  // cached any more; `block` is then not inserted. `chain` advances in either case.
  bool Insert(const int32_t* token_ids, int32_t block, uint64_t hash, PrefixChain& chain);
  void Erase(int32_t block);
  // `to`, which is not in the cache, takes the content of `from` in the cache, with its retention.
  void Move(int32_t from, int32_t to);
  // Enters content that was kept from an earlier process. Its parent must be in the cache, unless
  // it is the first of its prompts. Returns false if the content is there already, or the parent is
  // not.
  bool Restore(int32_t block, uint64_t salt, uint64_t serial, uint64_t parent,
               const int32_t* token_ids);
  // Ends the restoring. Serials of new content begin here.
  void FinishRestoring(uint64_t first_serial) {
    next_serial_ = first_serial;
    restored_.clear();
  }
  // The block before it in its prompts; -1: it is the first.
  int32_t ParentOf(int32_t block) const { return families_[block].parent; }
  std::span<const int32_t> TokensOf(int32_t block) const {
    return std::span(token_ids_)
        .subspan(static_cast<size_t>(block) * block_size_, static_cast<size_t>(block_size_));
  }
  // Erases the block and all that follow it in its chains, which no prompt could find without it.
  // Appends their numbers to `erased`.
  void EraseTree(int32_t block, std::vector<int32_t>& erased);
  // Prefetches the table slot and the links that Erase will touch.
  void PrefetchSlot(int32_t block) const {
    __builtin_prefetch(&table_[blocks_[block].hash & mask_], 1);
    __builtin_prefetch(&families_[block], 1);
  }
  bool Contains(int32_t block) const { return blocks_[block].serial != 0; }
  int32_t size() const { return size_; }

 private:
  struct Slot {
    uint32_t tag = 0;  // low half of the hash: gives the home slot and filters comparisons
    int32_t block = -1;
  };

  // The place of a block among the cached blocks. The blocks that follow the same one form a list.
  struct Family {
    int32_t parent = -1;  // the block before it in its chain; -1: none
    int32_t first_child = -1;
    int32_t next = -1;
    int32_t previous = -1;
  };

  void Enter(const int32_t* token_ids, int32_t block, uint64_t hash, const PrefixChain& chain,
             uint64_t serial);
  // The block with this content; -1: none.
  int32_t FindSerial(uint64_t hash, uint64_t serial) const;
  void Adopt(int32_t parent, int32_t child);
  void Leave(int32_t child);
  uint64_t HashAfter(uint64_t parent, const int32_t* token_ids) const;
  int32_t Find(uint64_t hash, const PrefixChain& parent, const int32_t* token_ids) const;
  bool IsContent(int32_t block, uint64_t hash, const PrefixChain& parent,
                 const int32_t* token_ids) const;

  const std::span<KvBlock> blocks_;
  int32_t block_size_;
  std::unordered_map<uint64_t, int32_t> restored_;  // by serial, until FinishRestoring
  uint64_t next_serial_ = 1;
  int32_t size_ = 0;
  uint64_t mask_;
  std::vector<Slot> table_;         // open addressing, linear probing, at most half full
  std::vector<int32_t> token_ids_;  // [num_blocks, block_size]
  std::vector<Family> families_;    // [num_blocks]
  std::vector<uint64_t> hashes_;    // scratch memory of Match
};

}  // namespace nereid::llm
