// The KV blocks of each sequence and the blocks reserved for it. Handles cached prefixes, blocks
// shared by the sequences of one request, and blocks that left the attention window. Knows neither
// steps nor queues. [engine thread]
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backends/llm_core/engine/block_copies.h"
#include "backends/llm_core/engine/block_pool.h"
#include "backends/llm_core/engine/executor.h"
#include "backends/llm_core/engine/prefix_fetches.h"
#include "backends/llm_core/engine/sequence.h"
#include "nereid/status.h"

namespace nereid::llm {

struct KvCacheManagerOptions {
  // True: a sequence starts only when all blocks that it can ever need are reserved. False: only
  // requests of several sequences reserve them.
  bool reserves_all = true;
  bool prefix_cache = false;  // keep blocks of finished sequences for prompts with the same prefix
  bool block_copies = false;  // the executor supports block copies
  BlockStorage* storage = nullptr;  // see SchedulerOptions
};

class KvCacheManager {
 public:
  // The blocks of a sequence that is about to start with its siblings.
  struct Admission {
    std::vector<int32_t> prefix;   // blocks found in the prefix cache
    std::vector<int32_t> outside;  // places outside the KV cache and blocks that follow them
    PrefixChain chain;
    int32_t num_reserved = 0;
  };

  KvCacheManager(const KvCacheManagerOptions& options, const ExecutorLimits& limits);

  const BlockPool& blocks() const { return blocks_; }
  void SetTime(int64_t now_ms) { blocks_.SetTime(now_ms); }   // see BlockPool
  int64_t num_new_blocks() const { return num_new_blocks_; }  // allocated so far
  int32_t num_unreserved() const { return blocks_.num_free() - num_reserved_; }
  // The most blocks that such a request needs at one time.
  int64_t NumNeeded(int64_t num_prompt, int64_t num_tokens, int32_t num_sequences) const;

  // Finds cached blocks and computes the reservation. Returns false if too few blocks are free.
  bool PlanAdmission(const Sequence& sequence, Admission& admission);
  // After a successful PlanAdmission: begins to fetch what the prompt's prefix has outside the KV
  // cache. Returns false if there is nothing that pays. Otherwise the sequence waits while
  // is_fetching, and is then planned again.
  bool BeginFetch(Sequence& sequence, const Admission& admission);
  bool is_fetching(const Sequence& sequence) const { return fetches_.is_open(sequence.fetch); }
  PrefixFetches& fetches() { return fetches_; }
  const PrefixFetches& fetches() const { return fetches_; }
  void NoteEvents() { blocks_.NoteEvents(); }
  std::vector<KvEvent> TakeEvents() { return blocks_.TakeEvents(); }
  // Copies the cached content to the file, at the end of the engine.
  void SaveToFile() { blocks_.SaveToFile(); }

  // Applies the result of PlanAdmission. Nothing else may be called between the two. Siblings are
  // added by Reserve.
  void Admit(Admission& admission, Sequence& sequence);
  // Reserves the blocks of a sibling beyond the prompt blocks that it will share.
  void Reserve(Sequence& sibling);
  // Makes the block table cover the next `num_tokens` tokens. Returns false if blocks run out; the
  // sequence keeps those allocated so far.
  bool AllocateFor(Sequence& sequence, int32_t num_tokens) {
    const int32_t end = sequence.num_cached + num_tokens;
    while (static_cast<int32_t>(sequence.block_table.size()) * block_size_ < end) {
      if (num_unreserved() + sequence.num_reserved <= 0) return false;
      sequence.block_table.push_back(Allocate(sequence));
    }
    return true;
  }
  // Releases all blocks and the reservation.
  void Release(Sequence& sequence);
  // Releases the blocks. Those that no other sequence references stay reserved for the sequence.
  void Suspend(Sequence& sequence);
  // Gives `to`, which has no blocks, those blocks of `from` that hold the beginning of its tokens.
  void ShareBlocks(const Sequence& from, Sequence& to);
  // Releases the blocks that left the attention window. Requires a window.
  void ReleaseOutOfWindow(Sequence& sequence);

  bool has_prefix_cache() const { return blocks_.has_prefix_cache(); }
  // Whether the sequence has a full block that the prefix cache does not contain yet.
  bool has_new_prefix(const Sequence& sequence) const {
    return has_prefix_cache() &&
           (sequence.chain.num_blocks + 1) * block_size_ <= sequence.num_cached;
  }
  // Prefetches the memory that QueuePrefixInsert will read.
  void PrefetchNewPrefix(const Sequence& sequence) const {
    const auto block = static_cast<size_t>(sequence.chain.num_blocks);
    __builtin_prefetch(sequence.block_table.data() + block);
    __builtin_prefetch(sequence.token_ids.data() + block * block_size_);
  }
  // Full blocks are inserted into the prefix cache in two passes. The first pass queues them and
  // prefetches, the second inserts.
  void QueuePrefixInsert(Sequence& sequence);
  void InsertQueuedPrefixes();

  BlockCopies& copies() { return copies_; }

  // `sequences` must be all sequences with blocks. The INTERNAL error names the mismatch.
  Status CheckInvariants(std::span<const Sequence* const> sequences) const;

 private:
  bool is_fully_reserved(const Sequence& sequence) const {
    return options_.reserves_all || sequence.has_siblings();
  }
  // Leaves in admission.prefix the blocks before the first place outside the KV cache.
  void SplitPrefix(const Sequence& sequence, Admission& admission);
  // The most blocks that a sequence may still allocate, if it holds `held` blocks of the first
  // `covered`.
  int32_t MaxRemainingBlocks(const Sequence& sequence, int32_t covered, int32_t held) const;
  int32_t Allocate(Sequence& sequence);
  void SetReservation(Sequence& sequence, int32_t num_blocks);
  int32_t NumHeld(const Sequence& sequence) const {
    const int32_t passed = std::max(0, sequence.end_released - num_sink_blocks_);
    return static_cast<int32_t>(sequence.block_table.size()) - passed;
  }

  // Fetches of one sequence before it starts. What was evicted again after so many is computed.
  static constexpr uint8_t kMaxFetches = 3;

  KvCacheManagerOptions options_;
  BlockPool blocks_;
  PrefixFetches fetches_;
  int32_t block_size_;
  int32_t window_;                  // in tokens; 0: none
  int32_t dynamic_rope_positions_;  // see ExecutorLimits
  int32_t num_sink_tokens_;
  int32_t num_sink_blocks_;
  // The most blocks that one sequence holds at a time, due to the window.
  int32_t max_sequence_blocks_;
  bool window_bounds_blocks_;
  int32_t num_reserved_ = 0;
  int64_t num_new_blocks_ = 0;
  struct QueuedPrefix {
    Sequence* sequence;
    uint64_t hash;  // of its next block
  };
  std::vector<QueuedPrefix> queued_prefixes_;
  BlockCopies copies_{blocks_};
};

}  // namespace nereid::llm
