// A generation request to the engine, and the sink that receives its output.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "backends/llm_core/engine/kv_retention.h"
#include "backends/llm_core/engine/reasoning_budget.h"
#include "backends/llm_core/engine/stop_criteria.h"
#include "backends/llm_core/sampling/sampler.h"
#include "backends/llm_core/sampling/sampling_params.h"
#include "backends/llm_core/speculation/lookahead_sizes.h"
#include "nereid/status.h"

namespace nereid::llm {

namespace grammar {
class Grammar;
}
class LoraAdapter;
struct PromptEmbeddings;

// Beam search: instead of sampling, the `width` most likely continuations are kept in each step.
struct BeamParams {
  int32_t width = 1;            // 1: no beam search
  float length_penalty = 0.0f;  // outputs are compared by log probability / length ^ length_penalty
  // True: the search ends once `width` outputs are finished. False: it continues until
  // even the most likely candidate of a step could not beat them.
  bool early_stopping = true;
  float diversity_rate = 0.0f;  // a candidate's score loses this times its rank within its beam
};

// The output of one sequence at the end of a step. Borrowed for the call.
struct SequenceOutput {
  std::span<const int32_t> ids;      // all ids emitted so far
  std::span<const float> log_probs;  // parallel to ids; empty if not requested
  size_t first_new = 0;              // ids before this index were in an earlier call
  float cum_log_prob = 0.0f;         // sum over ids
  // [ids.size(), SamplingParams::num_top_log_probs], most likely first; empty if not requested
  std::span<const SampledToken> top_tokens;
  FinishReason finish = FinishReason::kNone;
  // Why it finished, as in StopResult. -1 also where the sink or a beam search ended the sequence.
  int32_t end_id = -1;
  int32_t stop_word = -1;
  // Index among the sequences of the request. With beam search, 0 is the best.
  int32_t sequence_index = 0;
  // If requested, for sequence 0 and in its first call:
  std::span<const float> prompt_log_probs;  // of each prompt token but the first
  // For each prompt token but the first: the num_prompt_top_log_probs likeliest tokens at its
  // place, most likely first.
  std::span<const SampledToken> prompt_top_tokens;
  std::span<const float> context_logits;  // [num_prompt, vocab_size], before any sampling rule
  // Parallel to ids: [ids.size(), vocab_size], before any sampling rule.
  std::span<const float> generation_logits;
  int32_t num_reused_blocks = 0;  // KV blocks found in the prefix cache
  int32_t num_new_blocks = 0;     // KV blocks allocated
  int32_t num_cached_tokens = 0;  // prompt tokens found in the prefix cache
  int64_t num_draft_tokens = 0;   // verified so far
  int64_t num_accepted_draft_tokens = 0;
};

// Receives the output of one request. The engine calls it on its own thread only, and a call must
// not block. The engine destroys the sink after its last call: OnError, or OnOutput with a finish
// reason for each sequence of the request.
class OutputSink {
 public:
  virtual ~OutputSink() = default;
  // Whether the client has cancelled the request. EngineOptions::polls_sinks defines when it is
  // called. Also called while the request waits.
  virtual bool IsCancelled() const = 0;
  // Called when the request leaves the waiting queue for the first time.
  virtual void OnScheduled() {}
  // Called for each sampled token; `ids` is the whole output of the sequence. The result can end
  // the sequence or hold tokens back, in addition to the request's StopCriteria. Not called with
  // beam search.
  virtual StopResult OnToken(int32_t /*sequence_index*/, std::span<const int32_t> ids) {
    return {FinishReason::kNone, static_cast<int32_t>(ids.size())};
  }
  // Called for new ids, a finish reason, or both.
  virtual void OnOutput(const SequenceOutput& output) = 0;
  virtual void OnError(const Status& status) = 0;
};

struct GenerationRequest {
  TokenIds prompt;
  SamplingParams sampling;
  StopCriteria stop;
  // Sequences sampled independently from the same prompt. With beam search: how many of the best
  // outputs are emitted, once, at the end of the search.
  int32_t num_sequences = 1;
  BeamParams beams;
  // StopCriteria::max_tokens is lowered to what the KV cache can hold, where it is larger.
  bool output_fills_cache = false;
  // Smaller values are scheduled first. A request overtakes only those requests of the next level
  // that arrived up to SchedulerOptions::steps_per_priority steps earlier. No request starves.
  int32_t priority = 0;
  // Requests share cached prefixes only with requests of the same salt.
  uint64_t cache_salt = 0;
  // How long its blocks stay in the prefix cache; null: as the default priority says.
  std::shared_ptr<const KvRetention> retention;
  // The output of each sequence is a text of it, or the beginning of one where another limit ends
  // it. Its vocabulary has ExecutorLimits::vocab_size tokens. An end id is allowed exactly where
  // the text may end. A text that cannot go on ends the sequence, also before min_tokens. Null: any
  // text.
  std::shared_ptr<const grammar::Grammar> grammar;
  // The LoRA adapter that all sequences of the request use; null: the model's own weights.
  std::shared_ptr<const LoraAdapter> adapter;
  // Embeddings in place of some tokens of the prompt, whose ids are then virtual tokens; null:
  // none.
  std::shared_ptr<const PromptEmbeddings> embeddings;
  std::unique_ptr<OutputSink> sink;

  bool speculates = true;  // false: no draft tokens, even if the engine has a drafter
  // A guess of the output by the client, verified in place of the drafter's proposals as long as
  // the output begins like it. Needs ExecutorFeatures::draft_tokens.
  TokenIds draft_ids;
  // [draft_ids.size(), vocab_size] or empty: the logits from which the client drew draft_ids, and
  // DrawnDraft::threshold. Needs ExecutorFeatures::draft_logits.
  std::vector<float> draft_logits;
  float draft_threshold = 0.0f;
  // Sizes of lookahead decoding, up to those of the drafter, which are the default.
  std::optional<LookaheadSizes> lookahead;

  // Bounds the reasoning of each sequence.
  std::optional<ReasoningLimit> reasoning;

  bool returns_prompt_log_probs = false;
  int32_t num_prompt_top_log_probs = 0;  // with returns_prompt_log_probs
  bool returns_context_logits = false;
  bool returns_generation_logits = false;

  // ---- Written by the engine.
  int64_t adapter_bytes = 0;  // Executor::AdapterBytes() of `adapter`
  // Tokens of the prompt that the prefix cache had when the request was first admitted.
  int32_t num_cached_tokens = 0;
  // The last round in which the engine asked the sink whether the request is cancelled, and the
  // sink's answer.
  int64_t last_cancel_check = 0;
  bool is_cancelled = false;

  bool uses_beams() const { return beams.width > 1; }
  // Number of sequences that run at the same time.
  int32_t num_running() const { return uses_beams() ? beams.width : num_sequences; }
  // An output exists for every prompt token, so that none may be skipped through the prefix cache.
  bool needs_whole_prompt() const { return returns_prompt_log_probs || returns_context_logits; }
};

struct ExecutorFeatures;
struct ExecutorLimits;

// Validates a request against an executor. INVALID_ARG names the field, its value and the allowed
// range; UNSUPPORTED names the missing executor feature. Whether the request fits the KV cache is
// checked by Scheduler::CheckFits. Pure function. [any thread]
Status CheckRequest(const GenerationRequest& request, const ExecutorLimits& limits,
                    const ExecutorFeatures& features);

}  // namespace nereid::llm
