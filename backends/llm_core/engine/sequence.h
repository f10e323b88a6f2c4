// A running or waiting generation in the engine: its tokens, KV blocks and output. Owned by the
// scheduler. [engine thread]
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backends/llm_core/engine/beam_search.h"
#include "backends/llm_core/engine/prefix_cache.h"
#include "backends/llm_core/engine/reasoning_budget.h"
#include "backends/llm_core/engine/request.h"
#include "backends/llm_core/engine/sequence_grammar.h"
#include "backends/llm_core/sampling/sampler.h"
#include "backends/llm_core/speculation/drafter.h"

namespace nereid::llm {

// Order of waiting sequences, and of running ones for preemption: smaller ranks first.
struct SequenceRank {
  int64_t due = 0;      // step of arrival, plus a fixed number of steps per priority level
  uint64_t number = 0;  // arrival number
  auto operator<=>(const SequenceRank&) const = default;
};

class BeamGroup;

// Logits and log probabilities kept for rarely requested outputs.
struct SequenceLogits {
  std::vector<float> prompt_log_probs;
  std::vector<SampledToken> prompt_top_tokens;
  std::vector<float> context_logits;
  std::vector<float> generation_logits;
  std::vector<SampledToken> top_tokens;  // of each sampled token
  // Only for beams: the logits of the present step, and those of each sampled token. Forks share
  // them.
  LogitsRow step_logits;
  std::vector<LogitsRow> beam_logits;
  int32_t num_prompt_done = 0;  // prompt tokens whose outputs are kept
};

// The draft tokens of a sequence that speculates.
struct SequenceDrafts {
  std::vector<int32_t> ids;      // proposed behind the newest token
  std::vector<int32_t> parents;  // of `ids`, as BatchEntry::draft_parents
  // What the drafter keeps for the sequence; null: nothing yet.
  std::unique_ptr<DrafterState> state;
  // The logits of the client's `ids`, [ids.size(), vocab_size]; empty for a drafter's.
  std::span<const float> logits;
  int32_t num_seen = 0;  // tokens of the sequence that a costly drafter had at its last proposal
  int32_t num_observed = 0;          // tokens since then, whose hidden states the drafter got
  bool are_of_client = false;        // `ids` are the client's
  bool are_of_drafter = false;       // `ids` are the drafter's
  bool returns_row_tokens = false;   // `ids` are of a drafter that reads row tokens
  bool reads_hidden_states = false;  // the drafter reads those of the next step
  AcceptanceRates acceptance;
  // Recent sums over the trees of the sequence: the accepted drafts that the yields of all
  // sequences promise, and those that were accepted.
  float sum_promised = 0.0f, sum_accepted = 0.0f;
  int32_t match_class = 0;              // of `ids`, as AcceptanceRates counts them
  int32_t num_direct = kMaxTreeDrafts;  // of `ids`, as DraftQuery::num_direct
  int64_t num_drafted = 0;              // verified so far
  int64_t num_accepted = 0;
  uint8_t num_idle_steps = 0;  // the last steps in a row without a draft worth verifying, up to 255

  static constexpr uint8_t kStepsUntilIdle = 8;
  // Whether steps with the sequence may overlap: a draft behind a pending token cannot be proposed.
  bool is_idle() const { return num_idle_steps >= kStepsUntilIdle; }
  // Removes the drafts. What the drafter keeps for the sequence remains.
  void ClearProposal() {
    ids.clear();
    parents.clear();
    logits = {};
    are_of_client = are_of_drafter = returns_row_tokens = false;
  }
};

struct alignas(128) Sequence {
  // The fields up to chain.num_blocks fit in two cache lines: every step touches them.

  // Prompt, then every sampled token. The last num_pending ids are PendingTokenId(slot): running
  // steps will sample them.
  std::vector<int32_t> token_ids;
  std::vector<int32_t> block_table;  // BlockPool::kReleased for blocks outside the window
  int32_t num_prompt = 0;
  int32_t num_min_tokens = 0;  // prompt and output; end ids are banned before this length
  int32_t num_max_tokens = 0;  // prompt and output; both limits are set when the sequence is queued
  // Tokens whose keys and values are in the cache, or will be after the step in flight.
  int32_t num_cached = 0;
  uint32_t scheduled_at = 0;         // low bits of the last step that contained the sequence
  int32_t slot = -1;                 // -1 unless running
  int32_t end_released = 0;          // blocks before this index, except sinks, were released
  int32_t num_reserved = 0;          // blocks reserved for later allocation
  int32_t num_pending = 0;           // see token_ids
  int32_t num_in_flight = 0;         // steps in flight that contain the sequence
  bool is_suspended = false;         // no step computes it: it waits for the prompt, or for a beam
  bool has_beams_or_logits = false;  // belongs to a beam search or has kept_logits
  // Its keys use the long frequencies; see ExecutorLimits::long_rope_positions.
  bool uses_long_rope = false;
  bool caches_prefix = true;          // inserts its full blocks into the prefix cache
  bool has_grammar = false;           // `grammar` is set
  bool has_reasoning_budget = false;  // `reasoning` is set
  FinishReason finish = FinishReason::kNone;
  // Tokens of drafts->ids that the next step verifies; of the step in flight, once it is planned.
  uint8_t num_drafts = 0;
  std::shared_ptr<GenerationRequest> request;
  std::unique_ptr<SamplingParams> own_sampling;  // null: same as the request's
  PrefixChain chain;                             // of its blocks that are in the prefix cache

  std::unique_ptr<SequenceDrafts> drafts;  // null: it does not speculate

  int32_t index = 0;                     // index among the sequences of its request
  std::shared_ptr<BeamGroup> beams;      // with beam search
  std::vector<SampledToken> candidates;  // of this step, until all beams have theirs
  // If logits, likely tokens or prompt log probabilities are requested.
  std::unique_ptr<SequenceLogits> kept_logits;
  std::unique_ptr<SequenceGrammar> grammar;  // if the request has one
  // If the request bounds its reasoning, until that has ended.
  std::unique_ptr<ReasoningBudget> reasoning;
  // The other sequences of its request, until all are admitted together.
  std::vector<std::unique_ptr<Sequence>> siblings;
  SequenceRank rank;
  int32_t num_reused_blocks = 0;  // found in the prefix cache at the last admission
  int32_t num_new_blocks = 0;     // allocated, recomputation included
  int32_t num_preemptions = 0;
  uint64_t fetch = 0;       // the ticket of PrefixFetches for which it waits; 0: none
  uint8_t num_fetches = 0;  // since it waits to be admitted
  bool was_scheduled = false;
  bool was_emitted = false;  // the sink has received output

  std::vector<float> log_probs;  // of the sampled tokens, if requested
  int32_t num_emitted = 0;       // sampled tokens that the sink has received
  float cum_log_prob = 0.0f;     // sum over the emitted tokens

  int32_t num_tokens() const { return static_cast<int32_t>(token_ids.size()); }
  int32_t num_output() const { return num_tokens() - num_prompt; }  // pending tokens included
  int32_t num_known() const { return num_tokens() - num_pending; }
  // Output tokens whose ids are known.
  std::span<const int32_t> output_ids() const {
    return std::span<const int32_t>(token_ids).first(num_known()).subspan(num_prompt);
  }
  // Whether its next step computes the newest token alone.
  bool decodes_next() const { return num_tokens() - num_cached == 1 && !is_suspended; }
  // Drafts that its next step may verify: the step also yields the token behind them.
  int32_t max_drafts() const { return num_max_tokens - num_tokens() - 1; }
  // The ids that may not come next, as SamplingInput has them: before min_tokens, the end ids.
  std::span<const int32_t> banned_ids() const {
    if (num_tokens() >= num_min_tokens) return {};
    return request->stop.end_ids;
  }
  // Prefetch distance of loops over sequences. Thousands of sequences do not stay in the CPU's
  // first-level cache between steps.
  static constexpr size_t kPrefetchDistance = 6;
  void Prefetch() const {
    const auto* lines = reinterpret_cast<const char*>(this);
    __builtin_prefetch(lines, 1);
    __builtin_prefetch(lines + 64, 1);
  }
  // Prefetches the newest token. The sequence itself must be in the cache.
  void PrefetchTokens() const { __builtin_prefetch(token_ids.data() + token_ids.size(), 1); }

  const SamplingParams& sampling() const {
    return own_sampling != nullptr ? *own_sampling : request->sampling;
  }
  // Sequences with siblings are never preempted, because their blocks are reserved.
  bool has_siblings() const { return request->num_running() > 1; }
  // Metrics count the beams of a request as one.
  bool is_further_beam() const { return has_beams_or_logits && beams != nullptr && index > 0; }
};

// Returns a request's first sequence, which owns its siblings.
std::unique_ptr<Sequence> MakeSequences(std::unique_ptr<GenerationRequest> request);

}  // namespace nereid::llm
