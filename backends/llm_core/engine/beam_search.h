// The rules of beam search: which candidates go on, which are finished, when the search is over.
// Knows tokens, never blocks or slots. Value type. [engine thread]
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backends/llm_core/engine/request.h"
#include "backends/llm_core/sampling/sampler.h"

namespace nereid::llm {

using LogitsRow = std::shared_ptr<const std::vector<float>>;  // [vocab_size]

// A finished output.
struct BeamHypothesis {
  TokenIds ids;                   // without end id or stop word
  std::vector<float> log_probs;   // parallel to ids
  std::vector<LogitsRow> logits;  // parallel to ids, where they are kept
  float cum_log_prob = 0.0f;      // of all its tokens, the end id too
  float score = 0.0f;             // cum_log_prob / length ^ length_penalty
  FinishReason finish = FinishReason::kNone;
};

// What a beam was before this step, and what could follow.
struct BeamView {
  std::span<const int32_t> output_ids;
  std::span<const float> log_probs;
  float cum_log_prob = 0.0f;
  std::span<const SampledToken> candidates;  // likeliest first
  // Where logits are kept: parallel to output_ids, and those that the candidates come from.
  std::span<const LogitsRow> logits = {};
  LogitsRow step_logits = nullptr;
};

// A beam of the next step.
struct BeamContinuation {
  int32_t parent = 0;  // index into the beams of this step
  SampledToken token;
  float cum_log_prob = 0.0f;
};

class BeamSearch {
 public:
  BeamSearch(const BeamParams& params, const StopRules& stop) : params_(params), stop_(&stop) {}

  // Candidates that each beam has to bring, so that `width` are left when every one of the
  // likeliest ends.
  static int32_t NumCandidates(const BeamParams& params, const StopRules& stop);

  // All beams have as many output ids. Empty: the search is over. `stop` is borrowed for the
  // search's life.
  std::vector<BeamContinuation> Advance(std::span<const BeamView> beams);
  // After the last step: at most `width`, the best first; equal ones in the order of their finding.
  const std::vector<BeamHypothesis>& finished() const { return finished_; }

 private:
  struct Scored {
    float score;  // of the choice: with the penalty for diversity
    BeamContinuation continuation;
  };

  std::vector<Scored> Rank(std::span<const BeamView> beams) const;
  void AddFinished(const BeamView& parent, const BeamContinuation& last);
  // `best`: cum_log_prob of the likeliest candidate of this step, whether it ends or goes on.
  bool IsOver(bool goes_on, float best, int32_t num_output) const;
  float Score(float cum_log_prob, size_t length) const;

  BeamParams params_;
  const StopRules* stop_;
  std::vector<BeamHypothesis> finished_;  // the best first
};

}  // namespace nereid::llm
