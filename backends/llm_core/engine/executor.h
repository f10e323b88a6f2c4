// The seam between the engine, which knows sequences, and what runs the model, which knows tensors.
// [engine thread]
#pragma once

#include <cstdint>

#include "backends/llm_core/engine/batch.h"
#include "nereid/status.h"

namespace nereid::llm {

// What the executor has room for; fixed for its life.
struct ExecutorLimits {
  int32_t vocab_size = 0;
  int32_t max_positions = 0;      // tokens of one sequence, prompt and output
  int32_t max_num_sequences = 0;  // in one batch
  int32_t max_num_tokens = 0;     // in one batch
  int32_t block_size = 0;         // tokens of a KV block
  int32_t num_blocks = 0;
  // What the layer that looks back furthest sees, when none sees everything: the last
  // attention_window tokens, of which the first num_sink_tokens of the sequence are part. The
  // blocks of other tokens are given back. 0: a layer sees everything.
  int32_t attention_window = 0;
  int32_t num_sink_tokens = 0;
  // Where keys depend on how long their sequence is (longrope): one of more tokens than this is
  // BatchSequence::is_long, and what it has in the cache from before is computed anew. 0: they do
  // not.
  int32_t long_positions = 0;
  // Where keys of a longer prompt than this depend on how long it is (a dynamic rope): they are
  // shared with prompts of the same length alone. 0: they do not.
  int32_t dynamic_positions = 0;
};

// What of a Batch an executor understands beyond the plain step. The engine refuses requests that
// need what is missing, by name; without block_copies it has such tokens computed again.
struct ExecutorFeatures {
  bool block_copies = false;      // Batch::block_copies
  bool candidates = false;        // BatchSequence::num_candidates: beam search
  bool logits = false;            // BatchSequence::returns_logits
  bool prompt_log_probs = false;  // BatchSequence::next_ids
  // A step may be submitted while the one before it runs: Submit, Submit, Collect, Submit, Collect
  // ... Steps run in the order of submission, each on what the one before left in the cache. What a
  // Batch borrows then lives no longer than its Submit, and a token id of PendingTokenId(slot)
  // stands for the token that the step before draws for that slot.
  bool overlap = false;
  // A sequence's logits have the same bits alone and in any batch.
  bool batch_invariant = false;
};

constexpr int32_t PendingTokenId(int32_t slot) {
  return -1 - slot;
}

// What an executor holds, in bytes.
struct ExecutorMemory {
  int64_t cpu_bytes = 0;
  int64_t gpu_bytes = 0;
  int64_t pinned_bytes = 0;
};

// What an executor has done since it was made.
struct ExecutorCounts {
  int64_t num_recorded_steps = 0;  // that replayed what an earlier step had recorded: CUDA graphs
  int64_t num_failed_recordings = 0;  // sizes of steps that run without, since theirs failed
};

class Executor {
 public:
  virtual ~Executor() = default;

  virtual const ExecutorLimits& limits() const = 0;
  virtual ExecutorFeatures features() const { return {}; }
  virtual ExecutorMemory memory() const { return {}; }
  virtual ExecutorCounts counts() const { return {}; }
  // Starts a step. Every Submit that returned Ok is followed by one Collect, before the next Submit
  // unless ExecutorFeatures::overlap allows one more.
  virtual Status Submit(const Batch& batch) = 0;
  // Waits for the oldest step that was not collected. An error means that the executor can not go
  // on: the engine fails.
  virtual Result<StepResult> Collect() = 0;
};

}  // namespace nereid::llm
