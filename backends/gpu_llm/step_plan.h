// What the kernels must know of a step, as one array of 32-bit words: built by the host from a
// Batch, uploaded in one copy. Counts are padded so that a recorded graph finds everything at the
// same place in every step of its size. No CUDA here. [engine thread]
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/llm_core/engine/batch.h"

namespace nereid::gpu {

// A share of one decoding sequence's context, which one block of threads reads for one key/value
// head.
struct DecodeItem {
  int32_t row;           // of the step's tokens
  int32_t length;        // of the context, the new token included
  int32_t table_offset;  // of its block table, in words
  int32_t first_tile;    // KV blocks [first_tile, last_tile)
  int32_t last_tile;     // first_tile == last_tile: nothing to do
  int32_t first_item;    // of the same sequence
  int32_t num_items;     // of the same sequence
  int32_t sequence;      // index among the decoding ones: whose ticket counts the items done
};

// kQueryRows rows of queries (token, query head of a group) of a prompt chunk.
struct PrefillTile {
  int32_t first_row;     // of the chunk, among the step's tokens
  int32_t num_tokens;    // of the chunk
  int32_t num_cached;    // tokens before the chunk
  int32_t table_offset;  // as above
  int32_t tile;          // of the chunk
};

inline constexpr int kQueryRows = 128;

// Sizes of the arrays. Equal sizes, equal places.
struct StepShape {
  int32_t num_tokens = 0;   // rows computed, padding included
  int32_t num_logits = 0;   // rows of logits, padding included
  int32_t num_sampled = 0;  // of those: the first ones, from which tokens are drawn
  int32_t num_decode = 0;   // DecodeItems, padding included
  int32_t num_prefill = 0;  // PrefillTiles
  bool operator==(const StepShape&) const = default;
};

// Word offsets into the array.
struct StepLayout {
  explicit StepLayout(const StepShape& shape);
  int32_t half;  // one word: which of the two results is written
  int32_t token_ids, positions, cache_slots, logit_rows, logit_slots, next_ids, decode_items,
      prefill_tiles, block_tables;
};

struct StepPlannerOptions {
  int32_t num_heads = 1;
  int32_t num_kv_heads = 1;
  int32_t num_processors = 132;  // of the device
  // Added to the positions of sequences that are not long (BatchSequence::is_long): where rope's
  // tables have those of short ones.
  int32_t short_positions_offset = 0;
  // What is planned for a sequence depends on it alone, not on those beside it: its context is cut
  // by its own length, and tokens of prompts are never taken for decoding ones.
  bool is_invariant = false;
  // Decode steps of so many rows or fewer are one launch, in which a processor has attention of one
  // item at a time: contexts are cut into fewer items.
  int32_t fused_rows = 0;
};

class StepPlanner {
 public:
  explicit StepPlanner(const StepPlannerOptions& options) : options_(options) {}

  // Plans `batch`. A batch of single tokens alone, all of which sample, is a decode step: its rows
  // are padded to PaddedBatch(), and padding rows write no cache and read none.
  void Plan(const llm::Batch& batch, int32_t half = 0);

  const StepShape& shape() const { return shape_; }
  bool is_decode() const { return is_decode_; }
  // Valid until the next call.
  std::span<const int32_t> words() const { return words_; }
  // Whose each row of logits is: index into Batch::sequences, and which of its num_logits. Rows of
  // padding are not among them.
  struct LogitRow {
    int32_t sequence, index;
  };
  std::span<const LogitRow> logit_rows() const { return logit_rows_; }

  // Row counts that graphs are recorded for.
  static int32_t PaddedBatch(int32_t num_sequences);
  // DecodeItems that a step of so many decoding sequences has room for.
  int32_t MaxDecodeItems(int32_t num_sequences) const;

 private:
  void AddDecodeItems(const llm::Batch& batch, const StepLayout& layout);
  void AddPrefillTiles(const llm::Batch& batch, const StepLayout& layout);

  bool IsDecoding(const llm::BatchSequence& sequence) const;

  StepPlannerOptions options_;
  StepShape shape_;
  bool is_decode_ = false;
  std::vector<int32_t> words_;
  std::vector<LogitRow> logit_rows_;
  std::vector<int32_t> table_offsets_;  // parallel to Batch::sequences
};

}  // namespace nereid::gpu
