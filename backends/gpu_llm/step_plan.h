// Packs a step's metadata into one array of 32-bit words, so that a single copy uploads it. Counts
// are padded, so that a recorded graph finds all arrays at the same offsets in every step of its
// size. No CUDA here. [engine thread]
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/llm_core/engine/batch.h"

namespace nereid::gpu {

// A part of a context, which one block of threads reads for one key/value head and for all of the
// item's queries. These are consecutive tokens of a sequence that decodes: its newest token, or
// some of the newest token and its drafts.
struct DecodeItem {
  int32_t row;           // of the first query, among the step's tokens
  int32_t num_tokens;    // queries, up to ItemTokens()
  int32_t length;        // of the context, the last query included; each query before sees one less
  int32_t first_new;     // position from which on this step computes tokens, less num_unsettled
  int32_t table_offset;  // of its block table, in words
  int32_t first_tile;    // KV blocks [first_tile, last_tile)
  int32_t last_tile;     // first_tile == last_tile: no work
  int32_t first_item;    // first item with these queries
  int32_t num_items;     // number of items with these queries
  int32_t sequence;      // index among the groups of queries: selects the counter of finished items
};

// Words of a row's mask of a draft tree (StepLayout::tree_masks).
inline constexpr int kTreeMaskWords = 4;
// The newest token and its drafts.
inline constexpr int kMaxTreeTokens = 32 * kTreeMaskWords;

// Query rows of a DecodeItem: pairs of token and query head of a key/value head.
inline constexpr int kItemRows = 16;
// The most tokens of a DecodeItem for `group` query heads of each key/value head.
constexpr int ItemTokens(int group) {
  return group >= kItemRows ? 1 : kItemRows / group;
}

// Floats of the partial attention result of a query head of a token of a DecodeItem: its values,
// the maximum score and the sum of weights.
constexpr int PartialFloats(int head_dim) {
  return head_dim + 2;
}

// A tile of kQueryRows rows of queries (token, query head of a group) of a prompt chunk.
struct PrefillTile {
  int32_t first_row;     // of the chunk, among the step's tokens
  int32_t num_tokens;    // of the chunk
  int32_t num_cached;    // tokens before the chunk
  int32_t table_offset;  // of its block table, in words
  int32_t tile;          // number of the tile in the chunk
};

inline constexpr int kQueryRows = 128;

// Rows of one LoRA adapter that are computed together. `slot` -1: rows without an adapter.
struct AdapterTile {
  int32_t first_row;
  int32_t num_rows;  // at most kAdapterTileRows
  int32_t slot;
};

inline constexpr int kAdapterTileRows = 16;

// Sizes of the arrays. Equal shapes have equal layouts.
struct StepShape {
  int32_t num_tokens = 0;   // rows computed, padding included
  int32_t num_logits = 0;   // rows of logits, padding included
  int32_t num_sampled = 0;  // of those: the first ones, which are sampled
  int32_t num_decode = 0;   // DecodeItems, padding included
  int32_t num_prefill = 0;  // PrefillTiles
  bool has_chains = false;  // whether a DecodeItem may have more than one token
  bool has_trees = false;   // a sequence has a draft tree: the step is not fused
  // With has_trees: an item has one row of a tree, whose length is that of the row's own sequence.
  // The kernel copies keys and values from their places in the tree to those in the sequence.
  bool gathers_trees = false;
  bool has_adapters = false;           // a sequence has a LoRA adapter
  bool has_prompt_rows = false;        // a token's embedding comes from the client
  bool returns_hidden_states = false;  // of a sequence: the step is not fused
  // AdapterTiles of all rows, those without an adapter too; 0 with adapters: each row is a tile
  int32_t num_adapter_tiles = 0;
  // Entries of the block tables from the first to the last sequence that has PrefillTiles: the
  // first one, and how many.
  int32_t first_prompt_block = 0, num_prompt_blocks = 0;
  bool operator==(const StepShape&) const = default;
};

// Word offsets into the array.
struct StepLayout {
  explicit StepLayout(const StepShape& shape);
  int32_t buffer_index;  // one word: which of the two result buffers is written
  int32_t token_ids, positions, cache_slots, logit_rows, logit_slots, next_ids, decode_items,
      prefill_tiles, adapter_slots, adapter_tiles, prompt_rows, block_tables;
  // With has_trees. For each DecodeItem the place in the sequence of the newest token, which is the
  // root of its draft tree, or -1: no tree. For each row of the step kTreeMaskWords words: bit i is
  // set if the row sees the token at place root + i, which is itself or on the way from the root to
  // it. The row of a draft has the position of its depth, and the place of its number.
  int32_t tree_roots, tree_masks;
};

// Which decode steps one launch computes (kernels/step/decode_step.h).
struct FusedSteps {
  int32_t max_rows = 0;
  bool has_chains = true;  // also those where a DecodeItem may have more than one token
};
inline bool IsFused(const StepShape& shape, const FusedSteps& fused) {
  return !shape.has_adapters && !shape.has_trees && (!shape.has_chains || fused.has_chains) &&
         shape.num_tokens <= fused.max_rows;
}

struct StepPlannerOptions {
  int32_t num_heads = 1;
  int32_t num_kv_heads = 1;
  int32_t num_processors = 132;  // of the device
  // Added to the positions of sequences that are not long (BatchEntry::uses_long_rope): selects the
  // short factors in the rope tables.
  int32_t short_positions_offset = 0;
  // Batch invariance: the plan of a sequence does not depend on the others. Its context is split by
  // its own length, and prompt tokens never count as decoding tokens.
  bool is_batch_invariant = false;
  // In a fused decode step a multiprocessor handles one item at a time, so contexts are split into
  // fewer items.
  FusedSteps fused;
  int32_t fused_item_blocks = 6;  // FusedItemBlocks()
  int32_t fused_item_units = 1;   // StepItemUnits()
  int32_t attention_blocks = 2;   // DecodeAttentionBlocks()
  // So many of the newest tokens of each context before the step may still be computed when it
  // begins, by kernels behind the upload of its plan. Attention reads them only when these kernels
  // have ended. A fused step begins when all before it have ended.
  int32_t num_unsettled = 0;
  bool scales_input_embeddings = false;  // llm::DecoderSpec
  int32_t max_decode_rows = INT32_MAX;   // of a decode step, padding included
};

class StepPlanner {
 public:
  explicit StepPlanner(const StepPlannerOptions& options) : options_(options) {}

  // Plans `batch`. A batch of decoding sequences alone, with their draft tokens, is a decode step:
  // all of its rows are sampled, and they are padded to PaddedBatch(). Padding rows neither write
  // nor read the cache.
  // `adapter_slots`: the slot on the device of each of StepBatch::adapters.
  void Plan(const llm::StepBatch& batch, int32_t buffer_index = 0,
            std::span<const int32_t> adapter_slots = {});

  const StepShape& shape() const { return shape_; }
  bool is_decode() const { return is_decode_; }
  // Valid until the next call.
  std::span<const int32_t> words() const { return words_; }
  // The embeddings of the step's virtual tokens. StepLayout::prompt_rows has for each token of the
  // step twice its index here, plus one if it is not multiplied with the scale of embeddings; -1
  // for a token of the model.
  std::span<const std::span<const float>> prompt_rows() const { return prompt_rows_; }
  // The owner of each row of logits: index into StepBatch::entries, and which of its num_logits.
  // Without padding rows.
  struct LogitRow {
    int32_t sequence, index;
  };
  // The rows of an entry that samples are consecutive and in the order of its positions.
  std::span<const LogitRow> logit_rows() const { return logit_rows_; }

  // Row counts that graphs are recorded for.
  static int32_t PaddedBatch(int32_t num_rows);
  // The same for steps with draft tokens, whose numbers of rows differ from step to step: fewer
  // counts, because the first steps of each one choose algorithms and record.
  static int32_t PaddedDrafts(int32_t num_rows, int32_t max_rows);
  // Capacity of DecodeItems for a step of `num_rows` rows of decoding sequences.
  int32_t MaxDecodeItems(int32_t num_rows) const;
  // The most tokens of an item of a plan.
  int32_t item_tokens() const;
  // What the partial attention results of `num_items` items take.
  int64_t PartialBytes(int32_t num_items, int32_t head_dim) const;
  // DecodeItems of a step, padding included.
  int32_t NumDecodeItems(const llm::StepBatch& batch, int32_t num_rows) const;

 private:
  // The rows of logits, without padding.
  struct LogitCounts {
    int32_t all = 0;
    int32_t sampled = 0;  // come first
  };

  // Sets shape_ and is_decode_.
  LogitCounts FindShape(const llm::StepBatch& batch);
  // Ids, positions, cache slots and block tables of the tokens, and their draft trees.
  void AddTokens(const llm::StepBatch& batch, const StepLayout& layout);
  void AddLogits(const llm::StepBatch& batch, const StepLayout& layout, const LogitCounts& counts);
  // Divides the decoding tokens into groups of queries that read their context together.
  void FindQueryGroups(const llm::StepBatch& batch, const StepLayout& layout);
  void AddDecodeItems(const llm::StepBatch& batch, const StepLayout& layout);
  // Sets the masks of the rows of the entry's draft tree, and their positions.
  void AddTree(const llm::BatchEntry& sequence, const StepLayout& layout);
  void AddPrefillTiles(const llm::StepBatch& batch, const StepLayout& layout);
  void AddAdapters(const llm::StepBatch& batch, const StepLayout& layout,
                   std::span<const int32_t> adapter_slots);
  void AddPromptRows(const llm::StepBatch& batch, const StepLayout& layout);

  // The number of the entry's last tokens that the kernels of decoding sequences compute: always
  // those of a draft tree.
  int32_t NumDecoding(const llm::BatchEntry& sequence) const;

  StepPlannerOptions options_;
  StepShape shape_;
  bool is_decode_ = false;
  std::vector<int32_t> words_;
  std::vector<LogitRow> logit_rows_;
  std::vector<DecodeItem> query_groups_;  // scratch memory: without tiles
  std::vector<int32_t> group_roots_;      // parallel to query_groups_: StepLayout::tree_roots
  std::vector<int32_t> table_offsets_;    // parallel to StepBatch::entries
  std::vector<std::span<const float>> prompt_rows_;
};

}  // namespace nereid::gpu
