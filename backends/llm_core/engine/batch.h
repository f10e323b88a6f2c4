// One step's work for an executor, and its result. Built by the scheduler, on the engine thread;
// everything that it borrows stays valid until Collect() has returned.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "llm_core/sampling/sampler.h"

namespace nereid::llm {

// A run of consecutive tokens of one sequence: a prompt chunk, or the newest token alone.
struct BatchSequence {
  int32_t slot = 0;         // in [0, max_num_sequences); a running sequence keeps its slot
  int32_t first_token = 0;  // index into Batch::token_ids
  int32_t num_tokens = 0;
  int32_t num_cached = 0;  // tokens before them, whose keys and values the cache holds
  std::span<const int32_t> block_table;  // covers num_cached + num_tokens tokens
  // Logits are computed for the last num_logits tokens of the run. 0: a prompt chunk that is not
  // the last; 1 with `samples`: the usual case.
  int32_t num_logits = 0;
  bool samples = false;    // draw the next token from the logits of the last one
  SamplingInput sampling;  // when `samples`
};

struct Batch {
  std::vector<int32_t> token_ids;  // of all sequences, one run after the other
  std::vector<BatchSequence> sequences;

  void Clear() {
    token_ids.clear();
    sequences.clear();
  }
};

// Parallel to Batch::sequences; meaningful where `samples`.
struct StepResult {
  std::vector<SampledToken> tokens;
};

}  // namespace nereid::llm
