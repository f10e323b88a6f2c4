// Biases, penalties and bans.
#include "backends/llm_core/sampling/token_rules.h"

#include <utility>

namespace nereid::llm {
namespace {

void FindBadWords(std::span<const int32_t> ids, const std::vector<TokenIds>& bad_words,
                  std::vector<int32_t>& banned) {
  for (const TokenIds& word : bad_words) {
    if (word.empty() || word.size() - 1 > ids.size()) continue;
    const auto tail = ids.last(word.size() - 1);
    if (std::equal(tail.begin(), tail.end(), word.begin())) banned.push_back(word.back());
  }
}

// Bans the tokens that would complete an n-gram of `size` tokens that already occurs in `ids`.
void FindRepeatedNgrams(std::span<const int32_t> ids, int32_t size, std::vector<int32_t>& banned) {
  const auto length = static_cast<size_t>(size);
  if (size <= 0 || ids.size() < length) return;
  const auto tail = ids.last(length - 1);
  for (size_t i = 0; i + length <= ids.size(); ++i) {
    if (std::equal(tail.begin(), tail.end(), ids.begin() + static_cast<ptrdiff_t>(i))) {
      banned.push_back(ids[i + length - 1]);
    }
  }
}

// Bans the tokens whose bit is not set; none if the mask is empty.
void BanOutsideOf(std::span<const uint32_t> token_mask, std::span<float> logits) {
  for (size_t word = 0; word < token_mask.size(); ++word) {
    const uint32_t allowed = token_mask[word];
    if (allowed == ~0u) continue;
    const auto row = logits.subspan(word * 32, std::min<size_t>(32, logits.size() - word * 32));
    for (size_t i = 0; i < row.size(); ++i) {
      if ((allowed >> i & 1) == 0) row[i] = kBanned;
    }
  }
}

}  // namespace

void FindBannedIds(const SamplingInput& input, int32_t vocab_size, std::vector<int32_t>& banned) {
  banned.clear();
  FindBadWords(input.token_ids, input.params->bad_words, banned);
  FindRepeatedNgrams(input.token_ids, input.params->no_repeat_ngram_size, banned);
  // Virtual tokens of the prompt are never sampled.
  std::erase_if(banned, [vocab_size](int32_t id) { return id >= vocab_size; });
  for (const int32_t id : input.banned_ids) {
    if (id >= 0 && id < vocab_size) banned.push_back(id);
  }
}

void TokenRules::Apply(std::span<float> logits, const SamplingInput& input) {
  const SamplingParams& params = *input.params;
  for (size_t i = 0; i < params.embedding_bias.size(); ++i) logits[i] += params.embedding_bias[i];
  for (const LogitBias& bias : params.logit_bias) logits[bias.id] += bias.value;
  ApplyPenalties(logits, input);
  BanOtherThan(params.allowed_ids, logits);
  FindBannedIds(input, static_cast<int32_t>(logits.size()), banned_);
  for (const int32_t id : banned_) logits[id] = kBanned;
  BanOutsideOf(input.token_mask, logits);
}

void TokenRules::BanOtherThan(const TokenIds& allowed_ids, std::span<float> logits) {
  if (allowed_ids.empty()) return;
  allowed_.clear();
  for (const int32_t id : allowed_ids) allowed_.push_back(logits[id]);
  std::fill(logits.begin(), logits.end(), kBanned);
  for (size_t i = 0; i < allowed_ids.size(); ++i) logits[allowed_ids[i]] = allowed_[i];
}

void TokenRules::ApplyPenalties(std::span<float> logits, const SamplingInput& input) {
  const SamplingParams& params = *input.params;
  if (params.repetition_penalty == 1.0f && params.presence_penalty == 0.0f &&
      params.frequency_penalty == 0.0f) {
    return;
  }
  counts_.resize(logits.size(), 0);
  const std::span<const int32_t> counted = CountedTokens(input);
  const auto is_virtual = [&](int32_t id) { return static_cast<size_t>(id) >= logits.size(); };
  for (const int32_t id : counted) {
    if (!is_virtual(id)) ++counts_[id];
  }
  for (const int32_t id : counted) {
    if (is_virtual(id)) continue;
    const int32_t count = std::exchange(counts_[id], 0);
    if (count == 0) continue;  // counted at its first occurrence
    float logit = logits[id];
    logit = logit < 0.0f ? logit * params.repetition_penalty : logit / params.repetition_penalty;
    logits[id] =
        logit - params.presence_penalty - params.frequency_penalty * static_cast<float>(count);
  }
}

}  // namespace nereid::llm
