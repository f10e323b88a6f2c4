// The cache as a draft of a tree sees it. The keys and values of a step's drafts have consecutive
// places in the cache, which are those of a chain. A draft of a tree sees only some of them, and
// others at the places behind the newest token. It therefore gets blocks of its own for the end of
// its sequence, in which the drafts on the way to it follow each other: its attention is then, bit
// for bit, that of the same tokens without a tree.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/cpu_reference/ops/kv_cache_view.h"
#include "backends/cpu_reference/ops/op_table.h"
#include "backends/llm_core/engine/batch.h"
#include "backends/llm_core/speculation/drafter.h"

namespace nereid::cpu {

// The most blocks that the tokens behind the last whole block of cached ones fill.
inline constexpr int32_t kMaxTailBlocks =
    (kBlockSize - 1 + llm::kMaxTreeDrafts + kBlockSize - 1) / kBlockSize;

// The place in the cache of the entry's first draft.
inline int32_t FirstDraftPlace(const llm::BatchEntry& entry) {
  return entry.num_cached + entry.num_tokens - entry.num_draft_tokens;
}

// Sets the positions of the entry's drafts, which are those of their depths. `positions`: of all
// tokens of the step.
void PlaceDrafts(const llm::BatchEntry& entry, std::span<int32_t> positions);

// Copies key and value of one token of one head to another place.
void CopyToken(const KvCacheView& view, int32_t head, int32_t from_block, int32_t from_index,
               int32_t to_block, int32_t to_index);

// Makes the block tables of drafts, one at a time. Owns scratch memory, so that each thread has an
// object of its own. [one thread at a time]
class DraftBlockTable {
 public:
  // Copies the tokens from the block of the first draft's place to `draft` into the blocks
  // [first_tail_block, + kMaxTailBlocks) of `view`, for one head. `block_table`: of the entry.
  // Returns the table of the draft; valid until the next call.
  const int32_t* Make(const llm::BatchEntry& entry, const int32_t* block_table, int32_t draft,
                      const KvCacheView& view, int32_t head, int32_t first_tail_block);
  // Computes the attention of consecutive drafts, the first of which is token `first_token` of the
  // step. `params` has the rows of all of them, equally many for each.
  void Attend(const OpTable& ops, const llm::BatchEntry& entry, int32_t first_token,
              int32_t num_drafts, int32_t first_tail_block, PagedAttentionParams params);

 private:
  std::vector<int32_t> path_;
  std::vector<int32_t> table_;
};

}  // namespace nereid::cpu
