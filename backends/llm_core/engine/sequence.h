// A request in the engine: its tokens, its place in the cache, its output. Owned by the scheduler.
// [engine thread]
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backends/llm_core/engine/beam_search.h"
#include "backends/llm_core/engine/prefix_cache.h"
#include "backends/llm_core/engine/request.h"
#include "backends/llm_core/sampling/sampler.h"

namespace nereid::llm {

// What orders waiting sequences, and running ones when blocks are short: the smaller first.
struct SequenceRank {
  int64_t due = 0;      // step of arrival, later by a fixed number of steps for each priority level
  uint64_t number = 0;  // of arrival
  auto operator<=>(const SequenceRank&) const = default;
};

class BeamGroup;

// What is kept of a sequence for outputs that few ask for.
struct SequenceRows {
  std::vector<float> prompt_log_probs;
  std::vector<float> context_logits;
  std::vector<float> generation_logits;
  // Of a beam: what its present step brought, and of each token drawn; forks share them.
  LogitsRow step_logits;
  std::vector<LogitsRow> beam_logits;
  int32_t num_prompt_rows = 0;  // prompt tokens that are done
};

struct alignas(128) Sequence {
  // What every step touches: two cache lines, to the chain's number of blocks.
  // Prompt, then every token drawn; the last num_pending ones are PendingTokenId(slot): they are
  // drawn by steps that run.
  std::vector<int32_t> token_ids;
  std::vector<int32_t> block_table;  // BlockManager::kReleased where the window has passed
  int32_t num_prompt = 0;
  int32_t num_min_tokens = 0;  // prompt and output: no end id before so many
  int32_t num_max_tokens = 0;  // prompt and output; both set when it is queued
  // Tokens whose keys and values are in the cache, or will be after the step under way.
  int32_t num_cached = 0;
  int32_t scheduled_at = 0;   // the last step that it was part of
  int32_t slot = -1;          // while running
  int32_t end_released = 0;   // blocks before it that are not sinks were given back
  int32_t num_promised = 0;   // blocks that it may still allocate for sure
  int32_t num_pending = 0;    // see token_ids
  int32_t num_in_flight = 0;  // steps that run and hold it
  bool is_dormant = false;    // waits for the first sequence of its request to compute the prompt
  bool is_special = false;    // has beams or rows
  bool is_long = false;       // its keys are those of a long one: ExecutorLimits::long_positions
  bool keeps_prefix = true;   // enters its full blocks in the prefix cache
  FinishReason finish = FinishReason::kNone;
  std::shared_ptr<GenerationRequest> request;
  std::unique_ptr<SamplingParams> own_sampling;  // where it differs from the request's
  PrefixChain chain;                             // of its blocks that the prefix cache knows

  int32_t index = 0;                     // among the sequences of its request
  std::shared_ptr<BeamGroup> beams;      // of a beam search
  std::vector<SampledToken> candidates;  // of the present step, while others have none yet
  std::unique_ptr<SequenceRows> rows;    // where logits or prompt log probabilities are wanted
  // The other sequences of its request, until they are admitted together.
  std::vector<std::unique_ptr<Sequence>> companions;
  SequenceRank rank;
  int32_t num_reused_blocks = 0;  // that the prefix cache had, at its last admission
  int32_t num_new_blocks = 0;     // allocated, recomputation included
  int32_t num_preemptions = 0;
  bool was_scheduled = false;
  bool was_put_out = false;  // the sink has seen something

  std::vector<float> log_probs;  // of the tokens drawn, when wanted
  int32_t num_released = 0;      // tokens drawn that the sink has seen
  float cum_log_prob = 0.0f;     // of them

  int32_t num_tokens() const { return static_cast<int32_t>(token_ids.size()); }
  int32_t num_output() const { return num_tokens() - num_prompt; }  // pending ones included
  int32_t num_known() const { return num_tokens() - num_pending; }
  // Those that are known.
  std::span<const int32_t> output_ids() const {
    return std::span<const int32_t>(token_ids).first(num_known()).subspan(num_prompt);
  }
  // Thousands of sequences do not stay in the nearest cache from one step to the next: each loop
  // over them asks for what it will touch, so many ahead.
  static constexpr size_t kAhead = 6;
  void Prefetch() const {
    const auto* lines = reinterpret_cast<const char*>(this);
    __builtin_prefetch(lines, 1);
    __builtin_prefetch(lines + 64, 1);
  }
  // Its newest token, once the sequence itself has arrived.
  void PrefetchTokens() const { __builtin_prefetch(token_ids.data() + token_ids.size(), 1); }

  const SamplingParams& sampling() const {
    return own_sampling != nullptr ? *own_sampling : request->sampling;
  }
  // Never preempted, since its blocks are promised.
  bool is_one_of_several() const { return request->num_running() > 1; }
};

// A request's first sequence, the others within it.
std::unique_ptr<Sequence> MakeSequences(std::unique_ptr<GenerationRequest> request);

}  // namespace nereid::llm
