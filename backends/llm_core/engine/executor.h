/// \file
/// The interface between the engine, which handles sequences, and an executor, which runs the model
/// on a device. The engine calls every method on its own thread. [engine thread]
#pragma once

#include <cstdint>
#include <span>

#include "backends/llm_core/engine/batch.h"
#include "backends/llm_core/engine/block_storage.h"
#include "backends/llm_core/speculation/hidden_rows.h"
#include "backends/llm_core/speculation/step_costs.h"
#include "nereid/status.h"

namespace nereid::llm {

/// Capacity of an executor; constant for its lifetime.
struct ExecutorLimits {
  int32_t vocab_size = 0;         ///< logits per token
  int32_t max_positions = 0;      ///< tokens of one sequence, prompt and output together
  int32_t max_num_sequences = 0;  ///< in one step
  int32_t max_num_tokens = 0;     ///< in one step
  /// Positions that one step samples: an entry with draft tokens has 1 + num_draft_tokens. At least
  /// max_num_sequences. 0: max_num_tokens.
  int32_t max_num_sampled = 0;
  int32_t block_size = 0;  ///< tokens in a KV block
  int32_t num_blocks = 0;  ///< KV blocks; their ids are 0 to num_blocks - 1
  /// Number of tokens that the layer with the largest window sees, or 0 if a layer has full
  /// attention. The first num_sink_tokens tokens of a sequence are part of the window. The engine
  /// releases the blocks of all other tokens.
  int32_t attention_window = 0;
  int32_t num_sink_tokens = 0;
  /// For ropes whose keys depend on the sequence length (longrope): a sequence with more tokens
  /// than this has BatchEntry::uses_long_rope, and its cached tokens are recomputed when it crosses
  /// the limit. 0: keys do not depend on it.
  int32_t long_rope_positions = 0;
  /// For ropes whose keys depend on the prompt length (dynamic): prompts longer than this share
  /// cached blocks only with prompts of the same length. 0: keys do not depend on it.
  int32_t dynamic_rope_positions = 0;
  /// Memory for the LoRA adapters of the running sequences, in the bytes of
  /// Executor::AdapterBytes(). The adapters of a step never need more. 0: no limit.
  int64_t adapter_bytes = 0;
};

/// What an executor supports beyond the plain step. The engine rejects requests that need a missing
/// feature and names it. Without block_copies, the engine recomputes the tokens of a partly shared
/// block.
struct ExecutorFeatures {
  bool block_copies = false;       ///< StepBatch::block_copies
  bool candidates = false;         ///< BatchEntry::num_candidates: beam search
  bool logits = false;             ///< BatchEntry::returns_logits
  bool prompt_log_probs = false;   ///< BatchEntry::next_ids
  bool top_tokens = false;         ///< BatchEntry::num_top_tokens
  bool token_masks = false;        ///< BatchEntry::token_masks: grammars
  bool adapters = false;           ///< BatchEntry::adapter: LoRA adapters
  bool draft_tokens = false;       ///< BatchEntry::num_draft_tokens: speculative decoding
  bool draft_masks = false;        ///< token masks of entries with draft tokens
  bool draft_trees = false;        ///< BatchEntry::draft_parents and returns_row_tokens
  bool prompt_embeddings = false;  ///< BatchEntry::prompt_embeddings: prompt tables
  bool draft_logits = false;       ///< BatchEntry::draft_logits
  bool hidden_states = false;      ///< CaptureHiddenStates
  /// The most running sequences with which drafts from hidden states pay. 0: any number.
  int32_t max_hidden_state_sequences = 0;
  /// A step may be submitted while the previous one runs: Submit, Submit, Collect, Submit, Collect,
  /// ... Steps run in the order of submission, each on the cache content that the previous one
  /// left. A StepBatch and what it borrows are then valid only until Submit returns. A token id of
  /// PendingTokenId(slot) means the token that the previous step samples for that slot.
  bool overlap = false;
  /// A sequence's logits are bit-identical alone and in any batch.
  bool batch_invariant = false;
};

/// The negative token id that stands for the token which the previous step samples for `slot`.
constexpr int32_t PendingTokenId(int32_t slot) {
  return -1 - slot;
}

/// Memory that an executor has allocated, in bytes.
struct ExecutorMemory {
  int64_t cpu_bytes = 0;
  int64_t gpu_bytes = 0;
  int64_t pinned_bytes = 0;
};

/// Counters of an executor since its creation.
struct ExecutorCounts {
  int64_t num_recorded_steps = 0;  ///< steps that replayed a recorded CUDA graph
  /// Step sizes that run without a CUDA graph, because the recording failed.
  int64_t num_failed_recordings = 0;
};

/// What steps with draft tokens will have.
struct DraftStepForm {
  int32_t max_drafts = 0;  ///< of a sequence
  bool are_trees = false;  ///< BatchEntry::draft_parents
  bool returns_hidden_states = false;
};

/// An adapter that an executor could not make ready; the error names it.
struct FailedAdapter {
  std::shared_ptr<const LoraAdapter> adapter;
  Status error;
};

/// Runs steps of a model. It owns the weights and the memory of the KV cache; the engine assigns
/// the blocks. The engine owns the executor. At shutdown it may destroy it without collecting the
/// submitted steps.
class Executor {
 public:
  virtual ~Executor() = default;

  /// Constant for the lifetime of the executor. The engine reads limits, features and memory before
  /// the first step; features() also on threads that enqueue requests.
  virtual const ExecutorLimits& limits() const = 0;
  virtual ExecutorFeatures features() const { return {}; }
  /// Bytes that an adapter takes of ExecutorLimits::adapter_bytes. An error says why the executor
  /// cannot use it. [any thread]
  virtual Result<int64_t> AdapterBytes(const LoraAdapter&) const { return int64_t{0}; }
  /// Announces that a step will need the adapter soon. False: the executor is making it ready, and
  /// a step that had it now would wait. [engine thread]
  virtual bool PrepareAdapter(const std::shared_ptr<const LoraAdapter>&) { return true; }
  /// Makes the adapters of the next step ready; called before its Submit. Returns those that
  /// failed: the engine answers their running requests with the error and takes them out of the
  /// step. An error of the call itself means that the executor cannot continue. [engine thread]
  virtual Result<std::vector<FailedAdapter>> LoadAdapters(
      std::span<const std::shared_ptr<const LoraAdapter>> /*adapters*/) {
    return std::vector<FailedAdapter>();
  }
  /// Memory outside the KV cache for copies of its blocks; null: none. The executor owns it.
  virtual BlockStorage* block_storage() { return nullptr; }
  virtual ExecutorMemory memory() const { return {}; }
  /// The typical duration of a decode step by its tokens, draft tokens included: what draft tokens
  /// cost until the engine has measured it. Read before the first step, after PrepareDraftSteps.
  virtual TypicalCosts typical_step_costs() const { return {}; }
  /// Called once, before the first step of a request: entries with returns_hidden_states get the
  /// inputs of these layers, each 0 to the number of layers; the last one means the output of the
  /// last layer, before the final norm. They are left in `place`. INVALID_ARG names a layer that
  /// the model does not have, UNSUPPORTED a place that the executor does not have.
  virtual Status CaptureHiddenStates(std::span<const int32_t> /*layers*/,
                                     HiddenStatePlace /*place*/) {
    return UnsupportedError("this executor has no hidden states of layers");
  }
  /// Called before the first step of a request: an executor whose first steps of a size take longer
  /// runs some now, with prompts and with sequences that decode.
  virtual Status PrepareSteps() { return {}; }
  /// The same for steps with draft tokens, if sequences will have them. Called after
  /// CaptureHiddenStates.
  virtual Status PrepareDraftSteps(const DraftStepForm&) { return {}; }
  /// Called after each step.
  virtual ExecutorCounts counts() const { return {}; }
  /// Starts a step; `batch` has at least one entry and respects the limits. Each Submit that
  /// returned Ok is followed by one Collect. That Collect comes before the next Submit, unless
  /// ExecutorFeatures::overlap allows a second step in flight. After an error there is no step to
  /// collect, and the engine fails.
  virtual Status Submit(const StepBatch& batch) = 0;
  /// Waits for the oldest submitted step and returns its result. An error means that the executor
  /// cannot continue: the engine fails and answers every request with the error.
  virtual Result<StepResult> Collect() = 0;
};

}  // namespace nereid::llm
