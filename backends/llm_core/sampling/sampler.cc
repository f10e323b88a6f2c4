// Sampling by the Gumbel-max method: the drawn token is argmax(logit + Gumbel noise) over the
// candidates. The noise is a function of (seed, position, token). No sum over probabilities is
// needed, so that rounding differences between batches or devices do not change the draw.
#include "backends/llm_core/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "backends/llm_core/sampling/philox.h"

namespace nereid::llm {
namespace {

constexpr float kBanned = -std::numeric_limits<float>::infinity();

// The noise is in [-2.9, 16.7] for 23-bit uniforms. A token further than this below the most likely
// one cannot win, so that its noise need not be computed.
constexpr float kNoiseSpan = 21.0f;

float LogSumExp(std::span<const float> logits, float max) {
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(logit - max);
  return max + static_cast<float>(std::log(sum));
}

float GumbelNoise(uint64_t seed, uint32_t position, int32_t token) {
  return -std::log(-std::log(TokenUniform(seed, position, static_cast<uint32_t>(token))));
}

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

float LogProb(std::span<const float> logits, int32_t token) {
  return logits[token] - LogSumExp(logits, logits[ArgMax(logits)]);
}

void FindTopTokens(std::span<const float> logits, size_t count, std::vector<SampledToken>& top) {
  // A heap whose first element is the least likely one; ids arrive in rising order.
  const auto is_likelier = [](const SampledToken& a, const SampledToken& b) {
    return a.log_prob > b.log_prob || (a.log_prob == b.log_prob && a.id < b.id);
  };
  top.clear();
  if (count == 0) return;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (top.size() == count) {
      if (!(logits[i] > top.front().log_prob)) continue;
      std::pop_heap(top.begin(), top.end(), is_likelier);
      top.pop_back();
    }
    top.push_back({static_cast<int32_t>(i), logits[i]});
    std::push_heap(top.begin(), top.end(), is_likelier);
  }
  std::sort_heap(top.begin(), top.end(), is_likelier);
  const float sum = LogSumExp(logits, top.front().log_prob);
  for (SampledToken& token : top) token.log_prob -= sum;
}

// Searches in blocks of 64 values. Within a block only the maximum is computed, and its index is
// searched afterwards.
int32_t ArgMax(std::span<const float> values) {
  constexpr size_t kStretch = 64, kLanes = 16;
  float best = values[0];
  size_t first = 0;  // start of the block that contains `best`
  size_t begin = 0;
  for (; begin + kStretch <= values.size(); begin += kStretch) {
    float greatest[kLanes];
    std::fill_n(greatest, kLanes, kBanned);
    for (size_t i = begin; i < begin + kStretch; i += kLanes) {
      for (size_t lane = 0; lane < kLanes; ++lane) {
        const float value = values[i + lane];
        greatest[lane] = value > greatest[lane] ? value : greatest[lane];
      }
    }
    const float most = *std::max_element(greatest, greatest + kLanes);
    if (most > best) {
      best = most;
      first = begin;
    }
  }
  for (; begin < values.size(); ++begin) {
    if (values[begin] > best) {
      best = values[begin];
      first = begin;
    }
  }
  const auto at = std::find(values.begin() + static_cast<ptrdiff_t>(first), values.end(), best);
  return at == values.end() ? 0
                            : static_cast<int32_t>(at - values.begin());  // the first value is NaN
}

float DecayedTopP(const SamplingParams& params, std::span<const int32_t> output_ids) {
  float top_p = params.top_p == 0.0f ? 1.0f : params.top_p;
  if (params.top_p_decay == 1.0f) return top_p;
  const float initial = top_p;
  for (const int32_t id : output_ids) {
    top_p = id == params.top_p_reset_id ? initial
                                        : std::max(top_p * params.top_p_decay, params.top_p_min);
  }
  return top_p;
}

int32_t Sampler::Prepare(std::span<float> logits, const SamplingInput& input,
                         std::span<const float>& raw) {
  const SamplingParams& params = *input.params;
  const bool changes =
      params.changes_logits() || !input.banned_ids.empty() || !input.token_mask.empty();
  raw = logits;
  if (params.returns_log_probs && changes) {
    raw_logits_.assign(logits.begin(), logits.end());
    raw = raw_logits_;
  }
  if (changes) ApplyRules(logits, input);
  const int32_t likeliest = ArgMax(logits);
  return logits[likeliest] == kBanned ? kNoToken : likeliest;
}

SampledToken Sampler::Sample(std::span<float> logits, const SamplingInput& input) {
  std::span<const float> raw;
  SampledToken token;
  token.id = Prepare(logits, input, raw);
  if (token.id == kNoToken) return token;
  if (!input.params->is_greedy()) token.id = Draw(logits, token.id, input);
  if (input.params->returns_log_probs) token.log_prob = LogProb(raw, token.id);
  return token;
}

SampledToken Sampler::Verify(std::span<float> logits, const SamplingInput& input,
                             const DrawnDraft& draft) {
  if (input.params->is_greedy()) return Sample(logits, input);
  std::span<const float> raw;
  SampledToken token;
  token.id = Prepare(logits, input, raw);
  if (token.id == kNoToken) return token;
  token.id = AcceptOrRedraw(logits, token.id, input, draft);
  if (input.params->returns_log_probs) token.log_prob = LogProb(raw, token.id);
  return token;
}

// With p for the target and q for the drafter: the draft is accepted with the probability min(1, p
// / q), otherwise a token is drawn in proportion to max(0, p - q). Source: Leviathan et al., "Fast
// inference from transformers via speculative decoding", 2023.
int32_t Sampler::AcceptOrRedraw(std::span<const float> logits, int32_t likeliest,
                                const SamplingInput& input, const DrawnDraft& draft) {
  const SamplingParams& params = *input.params;
  const auto position = static_cast<uint32_t>(input.token_ids.size());
  scaled_.assign(logits.begin(), logits.end());
  for (float& logit : scaled_) logit /= params.temperature;
  SelectCandidates(scaled_, params, DecayedTopP(params, input.token_ids.subspan(input.num_prompt)));
  const float max = scaled_[likeliest];
  double total = 0.0;
  double of_draft = 0.0;
  for (const Candidate& candidate : candidates_) {
    const double weight = std::exp(candidate.logit - max);
    total += weight;
    if (candidate.id == draft.id) of_draft = weight;
  }
  const float draft_sum = LogSumExp(draft.logits, draft.logits[ArgMax(draft.logits)]);
  const auto drafted = [&](int32_t id) { return double{std::exp(draft.logits[id] - draft_sum)}; };
  const double part =
      draft.threshold > 0.0f ? draft.threshold : DraftUniform(params.seed, position);
  if (of_draft / total > part * drafted(draft.id)) return draft.id;
  float best = kBanned;
  int32_t drawn = kNoToken;
  for (const Candidate& candidate : candidates_) {
    const double excess = std::exp(candidate.logit - max) / total - drafted(candidate.id);
    if (!(excess > 0.0)) continue;
    const float value =
        static_cast<float>(std::log(excess)) + GumbelNoise(params.seed, position, candidate.id);
    if (value > best || (value == best && candidate.id < drawn)) {
      best = value;
      drawn = candidate.id;
    }
  }
  return drawn != kNoToken ? drawn : Draw(logits, likeliest, input);
}

std::vector<SampledToken> Sampler::Candidates(std::span<float> logits, const SamplingInput& input,
                                              int32_t count) {
  ApplyRules(logits, input);
  const float temperature = input.params->temperature;
  if (temperature > 0.0f && temperature != 1.0f) {
    for (float& logit : logits) logit /= temperature;
  }
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto kept = std::min(ids.size(), static_cast<size_t>(count));
  std::partial_sort(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(kept), ids.end(),
                    [&](int32_t a, int32_t b) {
                      return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
                    });
  const float sum = LogSumExp(logits, logits[ids[0]]);
  std::vector<SampledToken> candidates;
  for (size_t i = 0; i < kept; ++i) candidates.push_back({ids[i], logits[ids[i]] - sum});
  return candidates;
}

void Sampler::ApplyRules(std::span<float> logits, const SamplingInput& input) {
  const SamplingParams& params = *input.params;
  for (size_t i = 0; i < params.embedding_bias.size(); ++i) logits[i] += params.embedding_bias[i];
  for (const LogitBias& bias : params.logit_bias) logits[bias.id] += bias.value;
  ApplyPenalties(logits, input);
  BanOtherThan(params.allowed_ids, logits);
  FindBannedIds(input, static_cast<int32_t>(logits.size()), banned_);
  for (const int32_t id : banned_) logits[id] = kBanned;
  BanOutsideOf(input.token_mask, logits);
}

void Sampler::BanOutsideOf(std::span<const uint32_t> token_mask, std::span<float> logits) {
  for (size_t word = 0; word < token_mask.size(); ++word) {
    const uint32_t allowed = token_mask[word];
    if (allowed == ~0u) continue;
    const auto row = logits.subspan(word * 32, std::min<size_t>(32, logits.size() - word * 32));
    for (size_t i = 0; i < row.size(); ++i) {
      if ((allowed >> i & 1) == 0) row[i] = kBanned;
    }
  }
}

void Sampler::BanOtherThan(const TokenIds& allowed_ids, std::span<float> logits) {
  if (allowed_ids.empty()) return;
  allowed_.clear();
  for (const int32_t id : allowed_ids) allowed_.push_back(logits[id]);
  std::fill(logits.begin(), logits.end(), kBanned);
  for (size_t i = 0; i < allowed_ids.size(); ++i) logits[allowed_ids[i]] = allowed_[i];
}

void Sampler::ApplyPenalties(std::span<float> logits, const SamplingInput& input) {
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

void Sampler::SelectCandidates(std::span<const float> logits, const SamplingParams& params,
                               float top_p) {
  const auto less_likely = [](const Candidate& a, const Candidate& b) {
    return a.logit < b.logit || (a.logit == b.logit && a.id > b.id);
  };
  heap_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] != kBanned) heap_.push_back({logits[i], static_cast<int32_t>(i)});
  }
  std::make_heap(heap_.begin(), heap_.end(), less_likely);
  candidates_.clear();
  if (heap_.empty()) return;
  const float max = heap_.front().logit;
  const size_t top_k = params.top_k > 0 ? static_cast<size_t>(params.top_k) : heap_.size();
  double total = 0.0;  // of the exponentials to which top-p applies
  if (top_k >= heap_.size() && top_p < 1.0f) {
    for (const Candidate& candidate : heap_) total += std::exp(candidate.logit - max);
  } else if (top_p < 1.0f) {
    std::vector<Candidate>& kept = candidates_;
    while (kept.size() < top_k) {
      std::pop_heap(heap_.begin(), heap_.end(), less_likely);
      kept.push_back(heap_.back());
      heap_.pop_back();
      total += std::exp(kept.back().logit - max);
    }
    heap_ = kept;  // sorted in descending order, which is a valid heap
    kept.clear();
  }
  const float least = params.min_p > 0.0f ? max + std::log(params.min_p) : kBanned;
  double cumulative = 0.0;
  while (!heap_.empty() && candidates_.size() < top_k) {
    const Candidate next = heap_.front();
    if (!candidates_.empty() && next.logit < least) break;
    candidates_.push_back(next);
    if (top_p < 1.0f) {
      cumulative += std::exp(next.logit - max) / total;
      if (cumulative >= top_p) break;
    }
    std::pop_heap(heap_.begin(), heap_.end(), less_likely);
    heap_.pop_back();
  }
}

int32_t Sampler::Draw(std::span<const float> logits, int32_t likeliest,
                      const SamplingInput& input) {
  const SamplingParams& params = *input.params;
  const auto position = static_cast<uint32_t>(input.token_ids.size());
  const float top_p = DecayedTopP(params, input.token_ids.subspan(input.num_prompt));
  const float scale = 1.0f / params.temperature;
  const float max = logits[likeliest] * scale;
  float best = kBanned;
  int32_t drawn = likeliest;
  const auto consider = [&](float logit, int32_t id) {
    if (!(logit * scale > max - kNoiseSpan)) return;
    const float value = logit * scale + GumbelNoise(params.seed, position, id);
    if (value > best || (value == best && id < drawn)) {
      best = value;
      drawn = id;
    }
  };
  if (params.top_k == 0 && top_p >= 1.0f && params.min_p == 0.0f) {
    for (size_t i = 0; i < logits.size(); ++i) consider(logits[i], static_cast<int32_t>(i));
    return drawn;
  }
  scaled_.assign(logits.begin(), logits.end());
  for (float& logit : scaled_) logit *= scale;
  SelectCandidates(scaled_, params, top_p);
  for (const Candidate& candidate : candidates_) consider(logits[candidate.id], candidate.id);
  return drawn;
}

}  // namespace nereid::llm
