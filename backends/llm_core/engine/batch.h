/// \file
/// The work of one engine step for an executor, and its result. The scheduler builds a StepBatch on
/// the engine thread. Everything that it borrows stays valid until Collect() has returned; with
/// ExecutorFeatures::overlap only until Submit() has returned.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backends/llm_core/sampling/sampler.h"

namespace nereid::llm {

class LoraAdapter;
struct PromptEmbeddings;

/// BatchEntry::adapter of a sequence that uses the model's own weights.
inline constexpr int32_t kNoAdapter = -1;

/// One sequence's part of a step: a run of its consecutive tokens, which is a prompt chunk or the
/// newest token alone. Draft tokens may follow the newest token.
struct BatchEntry {
  int32_t slot = 0;         ///< in [0, max_num_sequences); a running sequence keeps its slot
  int32_t first_token = 0;  ///< index into StepBatch::token_ids
  int32_t num_tokens = 0;
  int32_t num_cached = 0;  ///< tokens before the run whose keys and values are in the cache
  /// Covers num_cached + num_tokens tokens. With ExecutorLimits::attention_window, entries whose
  /// tokens are outside the window of every layer are block 0. An executor may read block 0 there,
  /// but must not use the content, which belongs to another sequence. Sequences may share blocks
  /// that none of them writes.
  std::span<const int32_t> block_table;
  /// True if the sequence exceeds ExecutorLimits::long_rope_positions. All of its cached keys then
  /// use the long frequencies as well.
  bool uses_long_rope = false;
  /// Logits are computed for the last num_logits tokens of the run. 0 for a prompt chunk that is
  /// not the last one; usually 1 with `samples`.
  int32_t num_logits = 0;
  /// Tokens of the whole prompt. With ExecutorLimits::dynamic_rope_positions, each prompt token is
  /// rotated with the frequencies of a sequence of this length. Each later token is rotated with
  /// those of the sequence that ends with it.
  int32_t num_prompt = 0;
  bool samples = false;    ///< sample the next token from the logits of the last token
  SamplingInput sampling;  ///< set if `samples`

  /// --- set only if the executor has the ExecutorFeatures of the same name ---
  /// Beam search, with `samples`: no token is drawn. The executor returns this many most likely
  /// tokens in StepResult::candidates.
  int32_t num_candidates = 0;
  /// Copy the num_logits rows into StepResult::logits, before any sampling rule changes them.
  bool returns_logits = false;
  /// Index into StepBatch::adapters of the LoRA adapter that changes the weights for this entry.
  int32_t adapter = kNoAdapter;
  /// Embeddings of the sequence's virtual tokens; null: it has none. The token at place i of the
  /// sequence is virtual if PromptEmbeddings::RowAt(i) is a row. Its id means nothing else.
  const PromptEmbeddings* prompt_embeddings = nullptr;
  /// With `samples`: the executor returns this many most likely tokens in StepResult::top_tokens.
  uint8_t num_top_tokens = 0;
  /// [num_logits] or [num_logits - 1], or empty. The token that follows each of the last num_logits
  /// tokens. Its log probability goes to StepResult::prompt_log_probs.
  std::span<const int32_t> next_ids;
  /// With `samples`: the tokens that the request's grammar allows, one row for each position that
  /// is sampled. A row has TokenMaskWords(vocab_size) words; bit id % 32 of word id / 32 is set if
  /// token `id` is allowed. Empty: all tokens. Not computed before StepBatch::wait_for_masks has
  /// returned.
  std::span<const uint32_t> token_masks;
  /// With `samples`, without num_candidates and next_ids: the run's last num_draft_tokens tokens
  /// are drafts, a chain that a drafter proposes behind the sequence's newest token. num_logits is
  /// 1 + num_draft_tokens: the target samples at every position, with `sampling`, whose token_ids
  /// do not contain the drafts, followed by the drafts before that position. A draft is accepted
  /// while it equals the sampled token. The tokens are therefore those of a step for each of them.
  /// StepResult::accepted has the accepted tokens, and StepResult::tokens the one that follows. The
  /// keys and values of rejected drafts stay in the cache and are overwritten by later steps.
  int32_t num_draft_tokens = 0;
  /// [num_draft_tokens], or empty: the drafts are a chain. Drafts that are a tree
  /// (ExecutorFeatures::draft_trees): the draft that each one follows, or -1 for the newest token.
  /// A parent is before its children, and the children of a token differ. A draft has the position
  /// behind that of its parent, and sees the tokens before the drafts, the drafts on the way from
  /// the newest token to it, and itself. The first sampled token is compared with the children of
  /// the newest token, and so on. The executor moves the keys and values of the accepted drafts to
  /// the places behind the newest token, as if they had been a chain, before the next step.
  std::span<const int32_t> draft_parents;
  /// With num_draft_tokens: return what the target samples behind each of the run's last
  /// 1 + num_draft_tokens tokens in StepResult::row_tokens, accepted or not.
  bool returns_row_tokens = false;
  /// Return the hidden states of the run's tokens, where Executor::CaptureHiddenStates was told to.
  bool returns_hidden_states = false;
  /// With num_draft_tokens and ExecutorFeatures::draft_logits: [num_draft_tokens, vocab_size], or
  /// empty. The drafts were drawn from these logits, and are verified by Sampler::Verify with this
  /// threshold.
  std::span<const float> draft_logits;
  float draft_threshold = 0.0f;
};

/// Words of one row of BatchEntry::token_masks.
constexpr int64_t TokenMaskWords(int64_t vocab_size) {
  return (vocab_size + 31) / 32;
}

/// The draft tokens of an entry of a batch that has these tokens.
inline std::span<const int32_t> DraftTokens(std::span<const int32_t> token_ids,
                                            const BatchEntry& entry) {
  return token_ids.subspan(
      static_cast<size_t>(entry.first_token + entry.num_tokens - entry.num_draft_tokens),
      static_cast<size_t>(entry.num_draft_tokens));
}

/// A copy of one whole KV block: the keys and values of all layers.
struct BlockCopy {
  int32_t from = 0;
  int32_t to = 0;
};

struct StepBatch {
  /// Tokens of all entries, one run after the other. A negative id is a pending token; see
  /// PendingTokenId.
  std::vector<int32_t> token_ids;
  std::vector<BatchEntry> entries;
  /// Copies that the executor makes before the step writes anything. Their order does not matter:
  /// no block is both source and target, and none is the target of two copies. Empty without
  /// ExecutorFeatures::block_copies.
  std::vector<BlockCopy> block_copies;
  /// Whether an entry has token_masks. They are computed while the executor runs the model.
  bool has_token_masks = false;
  /// Set with has_token_masks. Returns when all token_masks are computed. The executor calls it in
  /// Submit, as late as it can, before it reads them; from any one of its threads.
  std::function<void()> wait_for_masks;

  /// The LoRA adapters of the entries, each once. Empty if no entry has one.
  std::vector<std::shared_ptr<const LoraAdapter>> adapters;

  void Clear() {
    has_token_masks = false;
    wait_for_masks = nullptr;
    adapters.clear();
    token_ids.clear();
    entries.clear();
    block_copies.clear();
  }
};

/// `tokens` is parallel to StepBatch::entries and meaningful where an entry has `samples`; an id is
/// kNoToken if the entry's rules ban every token. The next step may then contain any valid id in
/// its place, because the engine ends the sequence. Each other vector is parallel to it as well, or
/// empty if no entry of the batch requested its content.
struct StepResult {
  std::vector<SampledToken> tokens;
  /// [num_candidates], most likely first, ties by id. log_prob belongs to the distribution over the
  /// whole vocabulary after bias, penalties, bans and temperature.
  std::vector<std::vector<SampledToken>> candidates;
  /// [num_top_tokens], most likely first, ties by id, from the logits before any rule. With draft
  /// tokens: [(accepted + 1) * num_top_tokens].
  std::vector<std::vector<SampledToken>> top_tokens;
  /// [0 to num_draft_tokens], in the order of the sequence. The tokens themselves rather than their
  /// number, so that the drafts need not be a chain.
  std::vector<std::vector<SampledToken>> accepted;
  /// [accepted]: with draft_parents, the indices of the accepted drafts among the entry's drafts.
  std::vector<std::vector<int32_t>> accepted_drafts;
  /// [1 + num_draft_tokens], for entries with returns_row_tokens. kNoToken where rules ban all.
  std::vector<std::vector<int32_t>> row_tokens;
  std::vector<std::vector<float>> logits;            ///< [num_logits * vocab_size]
  std::vector<std::vector<float>> prompt_log_probs;  ///< [next_ids.size()]
  /// [num_tokens, captured layers * hidden size], the layers side by side.
  std::vector<std::vector<float>> hidden_states;
  /// The executor keeps those of the step's tokens on its device.
  bool keeps_hidden_states = false;
  bool has_hidden_states() const { return keeps_hidden_states || !hidden_states.empty(); }
  /// False if the step took time that later steps of its size do not take, for example to choose
  /// algorithms.
  bool is_typical = true;
};

/// The index among the drafts of entry `i` of its accepted draft number `n`.
inline int32_t AcceptedDraft(const StepResult& result, size_t i, size_t n) {
  const bool is_chain = i >= result.accepted_drafts.size() || result.accepted_drafts[i].empty();
  return is_chain ? static_cast<int32_t>(n) : result.accepted_drafts[i][n];
}

}  // namespace nereid::llm
