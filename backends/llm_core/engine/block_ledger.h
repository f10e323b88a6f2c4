// What each sequence holds of the KV cache, and what is promised to it: prefixes that the cache
// knows, blocks shared by the sequences of one request, blocks that the attention window has
// passed. Knows neither steps nor queues. [engine thread]
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backends/llm_core/engine/batch.h"
#include "backends/llm_core/engine/block_manager.h"
#include "backends/llm_core/engine/executor.h"
#include "backends/llm_core/engine/sequence.h"
#include "nereid/status.h"

namespace nereid::llm {

struct BlockLedgerOptions {
  bool promises_all = true;   // whoever starts is promised all blocks that it can ever need; else
                              // those of requests of several sequences alone
  bool prefix_cache = false;  // keep the blocks of finished sequences for prompts that begin alike
  bool block_copies = false;  // the executor makes them
};

class BlockLedger {
 public:
  // What a sequence, with its companions, gets when it starts.
  struct Grant {
    std::vector<int32_t> prefix;  // blocks that the cache has
    PrefixChain chain;
    int32_t num_promised = 0;
  };

  BlockLedger(const BlockLedgerOptions& options, const ExecutorLimits& limits);

  const BlockManager& blocks() const { return blocks_; }
  int64_t num_new_blocks() const { return num_new_blocks_; }  // allocated so far
  int32_t num_unpromised() const { return blocks_.num_free() - num_promised_; }
  // Blocks that such a request needs at most at a time.
  int64_t NumNeeded(int64_t num_prompt, int64_t num_tokens, int32_t num_sequences) const;

  // False: there is not enough room for it yet.
  bool Plan(const Sequence& sequence, Grant& grant);
  // Hands out what Plan found, with nothing in between; the companions come with Promise.
  void Take(Grant& grant, Sequence& sequence);
  // What a companion needs besides the blocks of the prompt that it will share.
  void Promise(Sequence& companion);
  // Makes the block table cover the next `num_tokens` tokens. False: there are not enough blocks;
  // those that there were are the sequence's.
  bool Cover(Sequence& sequence, int32_t num_tokens) {
    const int32_t end = sequence.num_cached + num_tokens;
    while (static_cast<int32_t>(sequence.block_table.size()) * block_size_ < end) {
      if (num_unpromised() + sequence.num_promised <= 0) return false;
      sequence.block_table.push_back(Allocate(sequence));
    }
    return true;
  }
  // Takes everything back, the promise too.
  void Release(Sequence& sequence);
  // Takes the blocks back; they stay promised as far as nobody else holds them.
  void Rest(Sequence& sequence);
  // Gives `to`, which has no blocks, those of `from` that hold the beginning of its tokens.
  void Share(const Sequence& from, Sequence& to);
  // Takes back what the window has passed. Requires a window.
  void ReleasePassed(Sequence& sequence);

  bool keeps_prefixes() const { return blocks_.keeps_prefixes(); }
  // Whether it has a full block that the prefix cache does not know yet.
  bool has_new_prefix(const Sequence& sequence) const {
    return keeps_prefixes() && (sequence.chain.num_blocks + 1) * block_size_ <= sequence.num_cached;
  }
  // What NotePrefix will read of it.
  void PrefetchNewPrefix(const Sequence& sequence) const {
    const auto block = static_cast<size_t>(sequence.chain.num_blocks);
    __builtin_prefetch(sequence.block_table.data() + block);
    __builtin_prefetch(sequence.token_ids.data() + block * block_size_);
  }
  // Full blocks are entered in the prefix cache: first all of them are noted, so that memory is
  // asked for ahead.
  void NotePrefix(Sequence& sequence);
  void KeepNotedPrefixes();

  // Copies that the next step has to make; it is under way from here on.
  std::span<const BlockCopy> SubmitCopies() {
    copies_are_submitted_ = true;
    return copies_;
  }
  void FinishSubmittedCopies() {
    if (copies_are_submitted_) FinishCopies();
  }
  // They are done, or there is no step to make them.
  void FinishCopies();

  // INTERNAL names what does not agree. No other sequence may hold blocks.
  Status CheckInvariants(std::span<const Sequence* const> sequences) const;

 private:
  bool is_promised_all(const Sequence& sequence) const {
    return options_.promises_all || sequence.is_one_of_several();
  }
  // What tells its keys from those of other sequences with the same tokens.
  uint64_t KeyKind(const Sequence& sequence) const;
  // Blocks that a sequence may still allocate when it has `held` of the first `covered`.
  int32_t Outstanding(const Sequence& sequence, int32_t covered, int32_t held) const;
  int32_t Allocate(Sequence& sequence);
  void SetPromise(Sequence& sequence, int32_t num_blocks);
  int32_t NumHeld(const Sequence& sequence) const {
    const int32_t passed = std::max(0, sequence.end_released - num_sink_blocks_);
    return static_cast<int32_t>(sequence.block_table.size()) - passed;
  }

  BlockLedgerOptions options_;
  BlockManager blocks_;
  int32_t block_size_;
  int32_t window_;             // tokens; 0: none
  int32_t dynamic_positions_;  // as ExecutorLimits has it
  int32_t num_sink_tokens_;
  int32_t num_sink_blocks_;
  int32_t peak_blocks_;  // that one sequence can hold at a time, thanks to the window
  bool bounds_by_window_;
  int32_t num_promised_ = 0;
  int64_t num_new_blocks_ = 0;
  struct NewPrefix {
    Sequence* sequence;
    uint64_t hash;  // of its next block
  };
  std::vector<NewPrefix> new_prefixes_;  // noted
  // Copies for the next step, then of the step under way. Both blocks of each are referred to, so
  // that neither gets another use before the copy is done.
  std::vector<BlockCopy> copies_;
  bool copies_are_submitted_ = false;
};

}  // namespace nereid::llm
