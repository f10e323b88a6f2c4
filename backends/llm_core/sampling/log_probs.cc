// Sums of exponentials, and the most likely tokens.
#include "backends/llm_core/sampling/log_probs.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "backends/llm_core/sampling/sampler.h"

namespace nereid::llm {

namespace {

// e^x for x <= 0, with a relative error below 2e-7: 2^n times a polynomial of the rest. Without
// calls and branches, so that the compiler computes several at once. Below e^-87: that number.
inline float ExpOfNegative(float x) {
  constexpr float kLog2e = 1.44269504f, kLog2High = 0.693145752f, kLog2Low = 1.42860677e-6f;
  constexpr float kLeast = -87.0f;
  constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: what is added to it is rounded
  x = x < kLeast ? kLeast : x;
  const float rounded = x * kLog2e + kRounder;
  const float n = rounded - kRounder;
  const float rest = x - n * kLog2High - n * kLog2Low;
  float power = 1.0f / 720;
  for (const float factor : {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) {
    power = power * rest + factor;
  }
  // The low bits of `rounded` are n, which is added to the exponent.
  return std::bit_cast<float>(std::bit_cast<uint32_t>(power) +
                              (std::bit_cast<uint32_t>(rounded) << 23));
}

}  // namespace

float LogSumExp(std::span<const float> logits, float max) {
  constexpr size_t kLanes = 16;
  double sums[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    float terms[kLanes];
    for (size_t lane = 0; lane < kLanes; ++lane) {
      terms[lane] = ExpOfNegative(logits[i + lane] - max);
    }
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += terms[lane];
  }
  for (; i < logits.size(); ++i) sums[0] += ExpOfNegative(logits[i] - max);
  double sum = 0.0;
  for (const double part : sums) sum += part;
  return max + static_cast<float>(std::log(sum));
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
  if (count == 0 || logits.empty()) return;
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

}  // namespace nereid::llm
