// One step's work for an executor, and its result. Built by the scheduler, on the engine thread;
// everything that it borrows stays valid until Collect() has returned, with
// ExecutorFeatures::overlap until Submit() has.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/llm_core/sampling/sampler.h"

namespace nereid::llm {

// A run of consecutive tokens of one sequence: a prompt chunk, or the newest token alone.
struct BatchSequence {
  int32_t slot = 0;         // in [0, max_num_sequences); a running sequence keeps its slot
  int32_t first_token = 0;  // index into Batch::token_ids
  int32_t num_tokens = 0;
  int32_t num_cached = 0;  // tokens before them, whose keys and values the cache holds
  // Covers num_cached + num_tokens tokens. With ExecutorLimits::attention_window, entries whose
  // tokens no layer can see any more name block 0: it may be read, but what it holds is another's.
  // Sequences may share blocks of which they write nothing.
  std::span<const int32_t> block_table;
  bool is_long = false;  // over ExecutorLimits::long_positions, and so is all that it has cached
  // Logits are computed for the last num_logits tokens of the run. 0: a prompt chunk that is not
  // the last; 1 with `samples`: the usual case.
  int32_t num_logits = 0;
  // Tokens of the whole prompt: with ExecutorLimits::dynamic_positions, each of them turns as in a
  // sequence of so many, each later one as in a sequence that ends with it.
  int32_t num_prompt = 0;
  bool samples = false;    // draw the next token from the logits of the last one
  SamplingInput sampling;  // when `samples`

  // --- what only an executor with the ExecutorFeatures of the same name sees ---
  // With `samples`, beam search: no draw, but the likeliest tokens, into StepResult::candidates.
  int32_t num_candidates = 0;
  // Copy the num_logits rows, before any rule, into StepResult::logits.
  bool returns_logits = false;
  // Not empty: [num_logits] or one less: the token that follows each of the last num_logits tokens;
  // its log probability goes to StepResult::prompt_log_probs.
  std::span<const int32_t> next_ids;
};

// The whole of a block, all layers, keys and values.
struct BlockCopy {
  int32_t from = 0;
  int32_t to = 0;
};

struct Batch {
  // Of all sequences, one run after the other; negative: ExecutorFeatures::overlap.
  std::vector<int32_t> token_ids;
  std::vector<BatchSequence> sequences;
  // Done before anything of the step is written, in any order: no block is read and written, none
  // is written twice. Empty for an executor without ExecutorFeatures::block_copies.
  std::vector<BlockCopy> block_copies;

  void Clear() {
    token_ids.clear();
    sequences.clear();
    block_copies.clear();
  }
};

// Parallel to Batch::sequences; meaningful where `samples`. The other vectors are parallel to it
// too, or empty when no sequence of the batch asked for what they hold.
struct StepResult {
  std::vector<SampledToken> tokens;
  // [num_candidates], likeliest first, equal ones by id: log_prob is that of the distribution after
  // bias, penalties and bans and temperature, over the whole vocabulary.
  std::vector<std::vector<SampledToken>> candidates;
  std::vector<std::vector<float>> logits;            // [num_logits * vocab_size]
  std::vector<std::vector<float>> prompt_log_probs;  // [next_ids.size()]
};

}  // namespace nereid::llm
