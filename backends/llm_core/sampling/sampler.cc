// Sampling by the Gumbel-max method: the drawn token is argmax(logit + Gumbel noise) over the
// candidates. The noise is a function of (seed, position, token). No sum over probabilities is
// needed, so that rounding differences between batches or devices do not change the draw.
#include "backends/llm_core/sampling/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace nereid::llm {
namespace {

// No noise exceeds it.
constexpr float kMostNoise = 17.0f;

// The noise that a token with these random bits has at most. If they begin with k ones, the uniform
// number u is at most 1 - 2^-(k + 1), and -log(-log(u)) at most -log(1 - u).
float MostNoise(uint32_t bits) {
  constexpr float kLog2 = 0.69314718f, kRounding = 0.01f;
  return kLog2 * static_cast<float>(std::countl_one(bits) + 1) + kRounding;
}

// Divides the logits by the temperature. `max`: the greatest of them. Where its quotient overflows,
// the logits are first lowered by it, which changes no probability.
void DivideByTemperature(std::span<float> logits, float max, float temperature) {
  const bool overflows = std::isfinite(max) && !std::isfinite(max / temperature);
  const float lowered_by = overflows ? max : 0.0f;
  for (float& logit : logits) logit = (logit - lowered_by) / temperature;
}

}  // namespace

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
  const bool is_found = at != values.end();  // otherwise the first value is NaN
  return is_found ? static_cast<int32_t>(at - values.begin()) : 0;
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
  if (changes) rules_.Apply(logits, input);
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
  const SamplingParams& params = *input.params;
  scaled_.assign(logits.begin(), logits.end());
  DivideByTemperature(scaled_, logits[token.id], params.temperature);
  SelectCandidates(scaled_, params, DecayedTopP(params, input.token_ids.subspan(input.num_prompt)));
  const auto position = static_cast<uint32_t>(input.token_ids.size());
  const int32_t chosen = AcceptOrRedraw(candidates_, draft, params.seed, position);
  token.id = chosen != kNoToken ? chosen : Draw(logits, token.id, input);
  if (input.params->returns_log_probs) token.log_prob = LogProb(raw, token.id);
  return token;
}

std::vector<SampledToken> Sampler::Candidates(std::span<float> logits, const SamplingInput& input,
                                              int32_t count) {
  rules_.Apply(logits, input);
  const float temperature = input.params->temperature;
  if (temperature > 0.0f && temperature != 1.0f) {
    DivideByTemperature(logits, logits[ArgMax(logits)], temperature);
  }
  std::vector<SampledToken> candidates;
  FindTopTokens(logits, static_cast<size_t>(count), candidates);
  return candidates;
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
  if (!std::isfinite(logits[likeliest] * scale)) return likeliest;  // a temperature near 0
  if (params.top_k == 0 && top_p >= 1.0f && params.min_p == 0.0f) {
    return DrawFromAll(logits, likeliest, params, position);
  }
  scaled_.assign(logits.begin(), logits.end());
  for (float& logit : scaled_) logit *= scale;
  SelectCandidates(scaled_, params, top_p);
  float best = kBanned;
  int32_t drawn = likeliest;
  for (const auto& [logit, id] : candidates_) {
    const float value = logit + GumbelNoise(params.seed, position, id);
    if (value > best || (value == best && id < drawn)) {
      best = value;
      drawn = id;
    }
  }
  return drawn;
}

// Few tokens can win: only their noise is computed, whose logarithms would take most of the time.
int32_t Sampler::DrawFromAll(std::span<const float> logits, int32_t likeliest,
                             const SamplingParams& params, uint32_t position) {
  constexpr size_t kBlock = 4;  // tokens that share their random bits
  const float scale = 1.0f / params.temperature;
  float best = logits[likeliest] * scale + GumbelNoise(params.seed, position, likeliest);
  int32_t drawn = likeliest;
  for (size_t first = 0; first < logits.size(); first += kBlock) {
    const std::span<const float> block =
        logits.subspan(first, std::min(kBlock, logits.size() - first));
    const float greatest = *std::max_element(block.begin(), block.end());
    if (!(greatest * scale + kMostNoise >= best)) continue;
    const PhiloxBlock bits =
        TokenBits(params.seed, position, static_cast<uint32_t>(first / kBlock));
    for (size_t i = 0; i < block.size(); ++i) {
      const float logit = block[i] * scale;
      if (!(logit + MostNoise(bits.words[i]) >= best)) continue;
      const float value = logit + GumbelNoiseOf(UniformOf(bits.words[i]));
      const auto id = static_cast<int32_t>(first + i);
      if (value > best || (value == best && id < drawn)) {
        best = value;
        drawn = id;
      }
    }
  }
  return drawn;
}

}  // namespace nereid::llm
