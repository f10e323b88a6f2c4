// A generation request as the engine takes it, and what the engine calls back with its output.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backends/llm_core/sampling/sampling_params.h"
#include "nereid/status.h"

namespace nereid::llm {

enum class FinishReason : uint8_t { kNone, kStop, kLength, kCancelled };

// "", "stop", "length", "cancelled".
std::string_view FinishReasonText(FinishReason reason);

struct StopVerdict {
  FinishReason finish = FinishReason::kNone;
  // Output tokens that may be put out now: an end id and a completed stop word are cut off; tokens
  // that may be the beginning of a stop word are held back until the sequence goes on or ends.
  int32_t num_visible = 0;
};

// When a sequence ends.
struct StopRules {
  int32_t max_tokens = 0;            // of output, at least 1
  int32_t min_tokens = 0;            // end ids and stop words do not count before so many
  TokenIds end_ids;                  // any of them ends the sequence and is not put out
  std::vector<TokenIds> stop_words;  // completing one ends the sequence; its tokens are not put out
};

// Beam search: instead of drawing, the `width` likeliest continuations are kept at each step.
struct BeamParams {
  int32_t width = 1;            // 1: none
  float length_penalty = 0.0f;  // outputs are compared by log probability / length ^ this
  bool early_stopping = true;   // over once `width` outputs are finished; else when not even the
                                // likeliest candidate of a step could be better than they are
  float diversity_rate = 0.0f;  // a candidate loses this times its rank within its beam
};

// The state of a request's output at the end of a step. Borrowed for the call.
struct Output {
  std::span<const int32_t> ids;      // all that is put out so far
  std::span<const float> log_probs;  // parallel to ids; empty when not wanted
  size_t first_new = 0;              // ids before it were in an earlier call
  float cum_log_prob = 0.0f;         // of ids
  FinishReason finish = FinishReason::kNone;
  int32_t sequence_index = 0;  // which of the request's sequences; of beams, 0 is the best
  // Where wanted, of sequence 0 and with its first call:
  std::span<const float> prompt_log_probs;  // of each prompt token but the first
  std::span<const float> context_logits;    // [num_prompt, vocab_size], before any rule
  // Parallel to ids: [ids.size(), vocab_size], before any rule.
  std::span<const float> generation_logits;
  int32_t num_reused_blocks = 0;  // KV blocks that the prefix cache had
  int32_t num_new_blocks = 0;     // allocated
};

// Where a request's output goes. The engine calls it from its own thread alone, must not be kept
// waiting, and destroys it after the last call: OnOutput with a finish reason, for each sequence of
// the request, or OnError.
class OutputSink {
 public:
  virtual ~OutputSink() = default;
  // EngineOptions::asks_sinks says when it is asked; while the request waits, too.
  virtual bool IsCancelled() const = 0;
  // The request leaves the waiting queue for the first time.
  virtual void OnScheduled() {}
  // A sequence drew a token; `ids` is all of its output. What the sink finds in it beside the
  // request's StopRules ends the sequence or holds tokens back. Not called for beams.
  virtual StopVerdict OnToken(int32_t /*sequence_index*/, std::span<const int32_t> ids) {
    return {FinishReason::kNone, static_cast<int32_t>(ids.size())};
  }
  // There are new ids, or a finish reason, or both.
  virtual void OnOutput(const Output& output) = 0;
  virtual void OnError(const Status& status) = 0;
};

struct GenerationRequest {
  TokenIds prompt;
  SamplingParams sampling;
  StopRules stop;
  // Drawn independently from the same prompt; with beams: how many of the best are put out, once,
  // when the search is over.
  int32_t num_sequences = 1;
  BeamParams beams;
  // Smaller goes first. A request overtakes those of the next level that came up to
  // SchedulerOptions::steps_per_priority steps before it, and no others: nobody starves.
  int32_t priority = 0;
  // Requests share cached prefixes only with others of the same salt.
  uint64_t cache_salt = 0;
  std::unique_ptr<OutputSink> sink;

  bool want_prompt_log_probs = false;
  bool want_context_logits = false;
  bool want_generation_logits = false;

  // The engine's own: what the sink answered when it was last asked.
  int64_t last_look = 0;
  bool is_cancelled = false;

  bool uses_beams() const { return beams.width > 1; }
  // That run at the same time.
  int32_t num_running() const { return uses_beams() ? beams.width : num_sequences; }
  // Something is put out for each prompt token: none may come from the prefix cache uncomputed.
  bool needs_whole_prompt() const { return want_prompt_log_probs || want_context_logits; }
};

}  // namespace nereid::llm
