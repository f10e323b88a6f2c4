// StepPlanner: packs a batch into words, decode items and prefill tiles. [engine thread]
#include "backends/gpu_llm/step_plan.h"

#include <algorithm>
#include <cstring>

#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/llm_core/prompt/prompt_embeddings.h"

namespace nereid::gpu {
namespace {

constexpr int32_t kBatchInvariantItems = 32;  // maximum for a sequence
constexpr int32_t kBatchInvariantTiles = 8;   // minimum for an item
constexpr int32_t kWholeTiles = 4;            // contexts of so few are one item
constexpr int32_t kAlignWords = 4;            // arrays start at multiples of 16 bytes

int32_t Blocks(int32_t tokens) {
  return (tokens + kBlockTokens - 1) / kBlockTokens;
}
int32_t Aligned(int32_t words) {
  return (words + kAlignWords - 1) / kAlignWords * kAlignWords;
}

// Calls `take` with each virtual token of the entry: its place in the run, and its row.
template <typename Take>
void ForEachPromptRow(const llm::BatchEntry& sequence, const Take& take) {
  if (sequence.prompt_embeddings == nullptr) return;
  for (int32_t i = 0; i < sequence.num_tokens; ++i) {
    const int32_t row = sequence.prompt_embeddings->RowAt(sequence.num_cached + i);
    if (row != llm::PromptEmbeddings::kNoRow) take(i, row);
  }
}

}  // namespace

StepLayout::StepLayout(const StepShape& shape) {
  int32_t next = 0;
  const auto reserve = [&](size_t words) {
    const int32_t at = next;
    next = Aligned(next + static_cast<int32_t>(words));
    return at;
  };
  buffer_index = reserve(1);
  token_ids = reserve(shape.num_tokens);
  positions = reserve(shape.num_tokens);
  cache_slots = reserve(shape.num_tokens);
  logit_rows = reserve(shape.num_logits);
  logit_slots = reserve(shape.num_logits);
  next_ids = reserve(shape.num_logits);
  decode_items = reserve(shape.num_decode * sizeof(DecodeItem) / 4);
  prefill_tiles = reserve(shape.num_prefill * sizeof(PrefillTile) / 4);
  adapter_slots = reserve(shape.has_adapters ? shape.num_tokens : 0);
  adapter_tiles = reserve(shape.num_adapter_tiles * sizeof(AdapterTile) / 4);
  prompt_rows = reserve(shape.has_prompt_rows ? shape.num_tokens : 0);
  tree_roots = reserve(shape.has_trees ? shape.num_decode : 0);
  tree_masks = reserve(shape.has_trees ? shape.num_tokens * kTreeMaskWords : 0);
  block_tables = next;
}

int32_t StepPlanner::PaddedBatch(int32_t n) {
  if (n <= 4) return n;
  if (n <= 256) return (n + 7) / 8 * 8;
  return (n + 31) / 32 * 32;
}

int32_t StepPlanner::PaddedDrafts(int32_t num_rows, int32_t max_rows) {
  constexpr int32_t kFew = 64, kSome = 256;  // the kernels of few rows need less for fewer
  const int32_t unit = num_rows <= kSome ? 32 : 64;
  const int32_t padded = (num_rows + unit - 1) / unit * unit;
  return num_rows <= kFew || padded > max_rows ? PaddedBatch(num_rows) : padded;
}

int32_t StepPlanner::MaxDecodeItems(int32_t num_rows) const {
  if (options_.is_batch_invariant) return num_rows * kBatchInvariantItems;
  // Each group of queries has one item. The splits fill the blocks of threads that fit on the
  // multiprocessors.
  return num_rows + options_.attention_blocks * options_.num_processors / options_.num_kv_heads + 1;
}

int32_t StepPlanner::item_tokens() const {
  // With batch invariance each token is computed as in a step of its own.
  return options_.is_batch_invariant ? 1 : ItemTokens(options_.num_heads / options_.num_kv_heads);
}

int64_t StepPlanner::PartialBytes(int32_t num_items, int32_t head_dim) const {
  return int64_t{num_items} * item_tokens() * options_.num_heads * PartialFloats(head_dim) *
         static_cast<int64_t>(sizeof(float));
}

// Batch-invariant items are as many as the contexts are long: few of their maximum. The number is a
// multiple of the rows, so that few sizes of steps are recorded.
int32_t StepPlanner::NumDecodeItems(const llm::StepBatch& batch, int32_t num_rows) const {
  int64_t num_items = 0;
  for (const llm::BatchEntry& sequence : batch.entries) {
    const int32_t tiles = Blocks(sequence.num_cached + sequence.num_tokens);
    const int32_t most = std::min(kBatchInvariantItems, (tiles - 1) / kBatchInvariantTiles + 1);
    num_items += int64_t{NumDecoding(sequence)} * most;
  }
  if (num_items == 0) return 0;
  if (!options_.is_batch_invariant) return MaxDecodeItems(num_rows);
  int32_t items_a_row = 1;
  while (int64_t{items_a_row} * num_rows < num_items) items_a_row *= 2;
  return items_a_row * num_rows;
}

int32_t StepPlanner::NumDecoding(const llm::BatchEntry& sequence) const {
  const bool has_others = sequence.num_tokens != 1 + sequence.num_draft_tokens;
  const bool has_tree = !sequence.draft_parents.empty();
  if (has_others && !has_tree) return 0;
  if (!options_.is_batch_invariant) return 1 + sequence.num_draft_tokens;
  if (!sequence.samples) return 0;
  if (has_others) return sequence.num_draft_tokens;
  // A token of the prompt is computed as such, also if it is the only one of its chunk.
  const auto length =
      static_cast<int32_t>(sequence.sampling.token_ids.size()) + sequence.num_draft_tokens;
  return std::min(sequence.num_tokens, length - sequence.sampling.num_prompt);
}

void StepPlanner::Plan(const llm::StepBatch& batch, int32_t buffer_index,
                       std::span<const int32_t> adapter_slots) {
  const LogitCounts counts = FindShape(batch);
  const StepLayout layout(shape_);
  words_.assign(layout.block_tables, 0);
  words_[layout.buffer_index] = buffer_index;
  AddTokens(batch, layout);
  AddLogits(batch, layout, counts);
  AddDecodeItems(batch, layout);
  AddPrefillTiles(batch, layout);
  if (shape_.has_adapters) AddAdapters(batch, layout, adapter_slots);
  AddPromptRows(batch, layout);
}

StepPlanner::LogitCounts StepPlanner::FindShape(const llm::StepBatch& batch) {
  is_decode_ = true;
  shape_ = {};
  LogitCounts counts;
  int32_t num_decoding = 0, num_adapter_tiles = 0, num_drafts = 0;
  const int32_t group = options_.num_heads / options_.num_kv_heads;
  for (const llm::BatchEntry& sequence : batch.entries) {
    const int32_t decoding = NumDecoding(sequence), others = sequence.num_tokens - decoding;
    is_decode_ &= others == 0 && sequence.num_logits == sequence.num_tokens && sequence.samples;
    counts.all += sequence.num_logits;
    counts.sampled += sequence.samples ? 1 + sequence.num_draft_tokens : 0;
    num_decoding += decoding;
    num_drafts += sequence.num_draft_tokens;
    shape_.num_prefill += (others * group + kQueryRows - 1) / kQueryRows;
    shape_.has_chains |= decoding > 1 && !options_.is_batch_invariant;
    shape_.has_trees |= !sequence.draft_parents.empty();
    shape_.gathers_trees = shape_.has_trees && options_.is_batch_invariant;
    shape_.returns_hidden_states |= sequence.returns_hidden_states;
    shape_.has_adapters |= sequence.adapter != llm::kNoAdapter;
    num_adapter_tiles += (sequence.num_tokens + kAdapterTileRows - 1) / kAdapterTileRows;
    ForEachPromptRow(sequence, [&](int32_t, int32_t) { shape_.has_prompt_rows = true; });
  }
  is_decode_ &= !shape_.has_prompt_rows;  // recorded steps have no such rows
  const auto num_tokens = static_cast<int32_t>(batch.token_ids.size());
  shape_.num_tokens = !is_decode_       ? num_tokens
                      : num_drafts == 0 ? PaddedBatch(num_tokens)
                                        : PaddedDrafts(num_tokens, options_.max_decode_rows);
  shape_.num_logits = is_decode_ ? shape_.num_tokens : counts.all;
  shape_.num_sampled = is_decode_ ? shape_.num_tokens : counts.sampled;
  shape_.num_decode = NumDecodeItems(batch, is_decode_ ? shape_.num_tokens : num_decoding);
  shape_.num_adapter_tiles = shape_.has_adapters && !is_decode_ ? num_adapter_tiles : 0;
  return counts;
}

void StepPlanner::AddTokens(const llm::StepBatch& batch, const StepLayout& layout) {
  const auto num_tokens = static_cast<int32_t>(batch.token_ids.size());
  std::copy(batch.token_ids.begin(), batch.token_ids.end(), words_.begin() + layout.token_ids);
  std::fill_n(words_.begin() + layout.cache_slots + num_tokens, shape_.num_tokens - num_tokens, -1);
  table_offsets_.clear();
  for (const llm::BatchEntry& sequence : batch.entries) {
    table_offsets_.push_back(static_cast<int32_t>(words_.size()));
    const int32_t length = sequence.num_cached + sequence.num_tokens;
    const auto used = sequence.block_table.first(Blocks(length));
    words_.insert(words_.end(), used.begin(), used.end());
    const int32_t offset = sequence.uses_long_rope ? 0 : options_.short_positions_offset;
    for (int32_t i = 0; i < sequence.num_tokens; ++i) {
      const int32_t position = sequence.num_cached + i;
      words_[layout.positions + sequence.first_token + i] = position + offset;
      words_[layout.cache_slots + sequence.first_token + i] =
          used[position / kBlockTokens] * kBlockTokens + position % kBlockTokens;
    }
    if (!sequence.draft_parents.empty()) AddTree(sequence, layout);
  }
}

void StepPlanner::AddLogits(const llm::StepBatch& batch, const StepLayout& layout,
                            const LogitCounts& counts) {
  std::fill_n(words_.begin() + layout.logit_slots, shape_.num_logits, -1);
  std::fill_n(words_.begin() + layout.next_ids, shape_.num_logits, -1);
  logit_rows_.assign(counts.all, {});
  int32_t next_sampled = 0, next_other = counts.sampled;
  for (size_t s = 0; s < batch.entries.size(); ++s) {
    const llm::BatchEntry& sequence = batch.entries[s];
    const int32_t first_sampled = sequence.num_logits - 1 - sequence.num_draft_tokens;
    for (int32_t i = 0; i < sequence.num_logits; ++i) {
      const bool is_sampled = sequence.samples && i >= first_sampled;
      const int32_t row = is_sampled ? next_sampled++ : next_other++;
      logit_rows_[row] = {static_cast<int32_t>(s), i};
      words_[layout.logit_rows + row] =
          sequence.first_token + sequence.num_tokens - sequence.num_logits + i;
      // With drafts, the host finds out which row has the sequence's last token.
      if (is_sampled && sequence.num_draft_tokens == 0)
        words_[layout.logit_slots + row] = sequence.slot;
      if (i < static_cast<int32_t>(sequence.next_ids.size()))
        words_[layout.next_ids + row] = sequence.next_ids[i];
    }
  }
}

void StepPlanner::AddPromptRows(const llm::StepBatch& batch, const StepLayout& layout) {
  prompt_rows_.clear();
  if (!shape_.has_prompt_rows) return;
  std::fill_n(words_.begin() + layout.prompt_rows, shape_.num_tokens, -1);
  for (const llm::BatchEntry& sequence : batch.entries) {
    ForEachPromptRow(sequence, [&](int32_t i, int32_t row) {
      const llm::PromptEmbeddings& embeddings = *sequence.prompt_embeddings;
      const bool is_scaled = embeddings.is_table || options_.scales_input_embeddings;
      words_[layout.prompt_rows + sequence.first_token + i] =
          2 * static_cast<int32_t>(prompt_rows_.size()) + (is_scaled ? 0 : 1);
      prompt_rows_.push_back(embeddings.Row(row));
    });
  }
}

void StepPlanner::AddAdapters(const llm::StepBatch& batch, const StepLayout& layout,
                              std::span<const int32_t> adapter_slots) {
  std::fill_n(words_.begin() + layout.adapter_slots, shape_.num_tokens, -1);
  int32_t next = 0;
  for (const llm::BatchEntry& sequence : batch.entries) {
    const int32_t slot = sequence.adapter == llm::kNoAdapter ? -1 : adapter_slots[sequence.adapter];
    std::fill_n(words_.begin() + layout.adapter_slots + sequence.first_token, sequence.num_tokens,
                slot);
    if (shape_.num_adapter_tiles == 0) continue;
    for (int32_t first = 0; first < sequence.num_tokens; first += kAdapterTileRows) {
      const AdapterTile tile = {sequence.first_token + first,
                                std::min(kAdapterTileRows, sequence.num_tokens - first), slot};
      std::memcpy(&words_[layout.adapter_tiles + next++ * (sizeof(AdapterTile) / 4)], &tile,
                  sizeof(tile));
    }
  }
}

void StepPlanner::AddTree(const llm::BatchEntry& sequence, const StepLayout& layout) {
  const int32_t root = sequence.first_token + sequence.num_tokens - 1 - sequence.num_draft_tokens;
  const auto mask_at = [&](int32_t index) {
    return words_.begin() + layout.tree_masks + (root + index) * kTreeMaskWords;
  };
  *mask_at(0) = 1;
  for (int32_t i = 0; i < sequence.num_draft_tokens; ++i) {
    const int32_t parent = sequence.draft_parents[i] + 1, own = i + 1;
    std::copy_n(mask_at(parent), kTreeMaskWords, mask_at(own));
    mask_at(own)[own / 32] |= static_cast<int32_t>(1u << (own % 32));
    words_[layout.positions + root + own] = words_[layout.positions + root + parent] + 1;
  }
}

void StepPlanner::FindQueryGroups(const llm::StepBatch& batch, const StepLayout& layout) {
  const int32_t most = item_tokens();
  const int32_t num_unsettled =
      is_decode_ && IsFused(shape_, options_.fused) ? 0 : options_.num_unsettled;
  query_groups_.clear();
  group_roots_.clear();
  for (size_t i = 0; i < batch.entries.size(); ++i) {
    const llm::BatchEntry& sequence = batch.entries[i];
    const int32_t decoding = NumDecoding(sequence), others = sequence.num_tokens - decoding;
    const int32_t count = (decoding + most - 1) / most;
    const int32_t root = sequence.num_tokens - 1 - sequence.num_draft_tokens;  // in the run
    const bool has_tree = !sequence.draft_parents.empty();
    for (int32_t part = 0; part < count; ++part) {
      const int32_t first = others + decoding * part / count;
      const int32_t last = others + decoding * (part + 1) / count;
      DecodeItem item = {};
      item.row = sequence.first_token + first;
      item.num_tokens = last - first;
      item.length = sequence.num_cached + last;
      if (has_tree && shape_.gathers_trees) {
        const auto position = words_.begin() + layout.positions + sequence.first_token;
        item.length = sequence.num_cached + root + 1 + position[first] - position[root];
      }
      item.first_new = std::max(0, sequence.num_cached - num_unsettled);
      item.table_offset = table_offsets_[i];
      item.sequence = static_cast<int32_t>(query_groups_.size());
      query_groups_.push_back(item);
      group_roots_.push_back(has_tree ? sequence.num_cached + root : -1);
    }
  }
}

// Long contexts are split at KV blocks, so that all multiprocessors have work.
void StepPlanner::AddDecodeItems(const llm::StepBatch& batch, const StepLayout& layout) {
  if (shape_.num_decode == 0) return;
  FindQueryGroups(batch, layout);
  int64_t total_tiles = 0;
  for (const DecodeItem& item : query_groups_) total_tiles += Blocks(item.length);
  const bool is_fused = is_decode_ && IsFused(shape_, options_.fused);
  const int32_t units = is_fused ? options_.fused_item_units : options_.num_kv_heads;
  const bool has_one_block = is_fused || options_.attention_blocks == 1;
  const int64_t target_items = has_one_block ? std::max(1, options_.num_processors / units)
                                             : 2 * options_.num_processors / units + 1;
  const auto tiles_per_item = static_cast<int32_t>(std::max<int64_t>(
      is_fused ? options_.fused_item_blocks : 2, (total_tiles + target_items - 1) / target_items));
  const int32_t whole_tiles =
      is_fused ? std::min(kWholeTiles, options_.fused_item_blocks) : kWholeTiles;
  int32_t next = 0;
  for (DecodeItem& item : query_groups_) {
    item.first_item = next;
    const int32_t tiles = Blocks(item.length);
    const int32_t item_tiles =
        options_.is_batch_invariant
            ? std::max(kBatchInvariantTiles,
                       (tiles + kBatchInvariantItems - 1) / kBatchInvariantItems)
            : tiles_per_item;
    // Adding the parts of a short context would take longer than reading it at once.
    const bool is_whole = !options_.is_batch_invariant && tiles <= whole_tiles;
    item.num_items = is_whole ? 1 : (tiles + item_tiles - 1) / item_tiles;
    for (int32_t part = 0; part < item.num_items; ++part, ++next) {
      item.first_tile = static_cast<int32_t>(int64_t{tiles} * part / item.num_items);
      item.last_tile = static_cast<int32_t>(int64_t{tiles} * (part + 1) / item.num_items);
      std::memcpy(&words_[layout.decode_items + next * (sizeof(DecodeItem) / 4)], &item,
                  sizeof(item));
      if (shape_.has_trees) words_[layout.tree_roots + next] = group_roots_[item.sequence];
    }
  }
}

// Tiles are sorted by decreasing work.
void StepPlanner::AddPrefillTiles(const llm::StepBatch& batch, const StepLayout& layout) {
  if (shape_.num_prefill == 0) return;
  const int32_t group = options_.num_heads / options_.num_kv_heads;
  std::vector<std::pair<int32_t, PrefillTile>> tiles;
  for (size_t i = 0; i < batch.entries.size(); ++i) {
    const llm::BatchEntry& sequence = batch.entries[i];
    const int32_t num_tokens = sequence.num_tokens - NumDecoding(sequence);
    const int32_t rows = num_tokens * group;
    if (rows > 0) {
      const int32_t first = table_offsets_[i] - layout.block_tables;
      if (tiles.empty()) shape_.first_prompt_block = first;
      shape_.num_prompt_blocks =
          first + Blocks(sequence.num_cached + sequence.num_tokens) - shape_.first_prompt_block;
    }
    for (int32_t tile = 0; tile * kQueryRows < rows; ++tile) {
      const int32_t last_token = (std::min(rows, (tile + 1) * kQueryRows) - 1) / group;
      tiles.push_back(
          {sequence.num_cached + last_token,
           {sequence.first_token, num_tokens, sequence.num_cached, table_offsets_[i], tile}});
    }
  }
  std::stable_sort(tiles.begin(), tiles.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  for (size_t i = 0; i < tiles.size(); ++i) {
    std::memcpy(&words_[layout.prefill_tiles + i * (sizeof(PrefillTile) / 4)], &tiles[i].second,
                sizeof(PrefillTile));
  }
}

}  // namespace nereid::gpu
