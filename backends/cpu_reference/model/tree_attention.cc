// Places and positions of drafts, and copies of the end of a sequence for one draft.
#include "backends/cpu_reference/model/tree_attention.h"

#include <algorithm>

#include "backends/llm_core/speculation/draft_tree.h"

namespace nereid::cpu {

void PlaceDrafts(const llm::BatchEntry& entry, std::span<int32_t> positions) {
  std::vector<int32_t> depths;
  llm::FindDepths(entry.draft_parents, depths);
  const int32_t num_in_row = entry.num_tokens - entry.num_draft_tokens;
  for (size_t draft = 0; draft < depths.size(); ++draft) {
    positions[entry.first_token + num_in_row + static_cast<int32_t>(draft)] =
        entry.num_cached + num_in_row - 1 + depths[draft];
  }
}

void CopyToken(const KvCacheView& view, int32_t head, int32_t from_block, int32_t from_index,
               int32_t to_block, int32_t to_index) {
  const float* key = view.KeyBlock(from_block, head) + from_index;
  float* to_key = view.KeyBlock(to_block, head) + to_index;
  for (int64_t d = 0; d < view.head_dim; ++d) to_key[d * kBlockSize] = key[d * kBlockSize];
  std::copy_n(view.ValueBlock(from_block, head) + int64_t{from_index} * view.value_size,
              view.value_size,
              view.ValueBlock(to_block, head) + int64_t{to_index} * view.value_size);
}

const int32_t* DraftBlockTable::Make(const llm::BatchEntry& entry, const int32_t* block_table,
                                     int32_t draft, const KvCacheView& view, int32_t head,
                                     int32_t first_tail_block) {
  llm::FindPath(entry.draft_parents, draft, path_);
  const int32_t first_place = FirstDraftPlace(entry);
  const int32_t num_whole = first_place / kBlockSize;
  table_.assign(block_table, block_table + num_whole);
  const auto end = first_place + static_cast<int32_t>(path_.size());
  for (int32_t to = num_whole * kBlockSize; to < end; ++to) {
    const int32_t tail_block = first_tail_block + to / kBlockSize - num_whole;
    if (to % kBlockSize == 0) table_.push_back(tail_block);
    const int32_t from = to < first_place ? to : first_place + path_[to - first_place];
    CopyToken(view, head, block_table[from / kBlockSize], from % kBlockSize, tail_block,
              to % kBlockSize);
  }
  return table_.data();
}

void DraftBlockTable::Attend(const OpTable& ops, const llm::BatchEntry& entry, int32_t first_token,
                             int32_t num_drafts, int32_t first_tail_block,
                             PagedAttentionParams params) {
  const int32_t* const table = params.block_table;
  const int32_t first_draft = entry.first_token + entry.num_tokens - entry.num_draft_tokens;
  params.num_rows /= num_drafts;
  for (int32_t i = 0; i < num_drafts; ++i) {
    params.block_table = Make(entry, table, first_token + i - first_draft, params.cache,
                              params.kv_head, first_tail_block);
    ops.paged_attention(params);
    params.rows += params.num_rows;
  }
}

}  // namespace nereid::cpu
