// The rules of sampling on the CPU: the definition that every executor's own implementation is
// tested against. One Sampler a thread: it keeps scratch memory. [executor thread]
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/llm_core/sampling/sampling_params.h"

namespace nereid::llm {

// The sequence whose next token is drawn; all borrowed for the call.
struct SamplingInput {
  const SamplingParams* params = nullptr;
  std::span<const int32_t> token_ids;  // prompt and output so far
  int32_t num_prompt = 0;
  std::span<const int32_t> banned_ids;  // may not come at this step (end ids before min_tokens)
};

struct SampledToken {
  int32_t id = 0;
  float log_prob = 0.0f;  // of the model's own distribution, before any rule; 0 when not wanted
};

class Sampler {
 public:
  // `logits` [vocab_size] are changed. Equal logits: the lowest id wins.
  SampledToken Sample(std::span<float> logits, const SamplingInput& input);
  // The `count` likeliest tokens after all rules but the draw, the likeliest first, equal ones by
  // id; log_prob is that of the distribution after these rules and the temperature. `logits` are
  // changed.
  std::vector<SampledToken> Candidates(std::span<float> logits, const SamplingInput& input,
                                       int32_t count);

 private:
  struct Candidate {
    float logit;
    int32_t id;
  };

  void ApplyRules(std::span<float> logits, const SamplingInput& input);
  void ApplyPenalties(std::span<float> logits, const SamplingInput& input);
  int32_t Draw(std::span<const float> logits, const SamplingInput& input);
  // The candidates that top-k, top-p and min-p leave, likeliest first, into candidates_.
  void SelectCandidates(std::span<const float> logits, const SamplingParams& params, float top_p);

  std::vector<float> raw_logits_;
  std::vector<float> scaled_;
  std::vector<int32_t> counts_;  // [vocab_size], all zero between calls
  std::vector<int32_t> banned_;
  std::vector<Candidate> heap_;
  std::vector<Candidate> candidates_;
};

// What may not come next by bad words, repeated n-grams and banned_ids, into `banned`; an id may
// come more than once.
void FindBannedIds(const SamplingInput& input, int32_t vocab_size, std::vector<int32_t>& banned);

// top_p as decayed by the tokens put out so far.
float DecayedTopP(const SamplingParams& params, std::span<const int32_t> output_ids);

// log_softmax(logits)[token]
float LogProb(std::span<const float> logits, int32_t token);

// Lowest index of the greatest value.
int32_t ArgMax(std::span<const float> values);

}  // namespace nereid::llm
