// The expected output of a request with the model of fake_executor.h when nothing else runs: token
// by token, and a beam search over whole sequences, without cache, steps or blocks.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "backends/llm_core/engine/beam_search.h"
#include "backends/llm_core/sampling/philox.h"
#include "tests/backends/llm_core/fake_executor.h"

namespace nereid::llm::testing {

// The `count` tokens that follow `tokens`; `seed` 0: greedy.
inline TokenIds ContinueAlone(TokenIds tokens, int32_t count, const ExecutorLimits& limits,
                              uint64_t seed) {
  const auto num_prompt = static_cast<ptrdiff_t>(tokens.size());
  for (int32_t i = 0; i < count; ++i) tokens.push_back(NextToken(tokens, limits, seed));
  return TokenIds(tokens.begin() + num_prompt, tokens.end());
}

// The seed of sequence `index` of the request.
inline uint64_t SeedAlone(const GenerationRequest& request, int32_t index) {
  if (request.sampling.is_greedy()) return 0;
  return SequenceSeed(request.sampling.seed, static_cast<uint32_t>(index));
}

inline std::vector<BeamHypothesis> SearchAlone(const GenerationRequest& request,
                                               const ExecutorLimits& limits) {
  struct Beam {
    TokenIds tokens;
    std::vector<float> log_probs;
    float sum = 0.0f;
  };
  BeamSearch search(request.beams, request.stop);
  std::vector<Beam> beams = {{request.prompt, {}, 0.0f}};
  while (true) {
    std::vector<std::vector<SampledToken>> candidates;
    std::vector<BeamView> views;
    for (const Beam& beam : beams) {
      std::vector<float> logits = LogitsAfter(beam.tokens, limits);
      candidates.push_back(
          Sampler().Candidates(logits, {&request.sampling, beam.tokens, 0, {}},
                               BeamSearch::NumCandidates(request.beams, request.stop)));
    }
    for (size_t i = 0; i < beams.size(); ++i) {
      const auto output = std::span<const int32_t>(beams[i].tokens).subspan(request.prompt.size());
      views.push_back({output, beams[i].log_probs, beams[i].sum, candidates[i]});
    }
    const auto next = search.Advance(views);
    if (next.empty()) return search.finished();
    std::vector<Beam> moved;
    for (const BeamContinuation& continuation : next) {
      Beam beam = beams[continuation.parent];
      beam.tokens.push_back(continuation.token.id);
      beam.log_probs.push_back(continuation.token.log_prob);
      beam.sum = continuation.cum_log_prob;
      moved.push_back(std::move(beam));
    }
    beams = std::move(moved);
  }
}

}  // namespace nereid::llm::testing
