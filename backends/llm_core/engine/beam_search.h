// The rules of beam search: which candidates continue, which are finished, and when the search
// ends. Handles tokens only; knows neither blocks nor slots. Value type. [engine thread]
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
  std::vector<LogitsRow> logits;  // parallel to ids, if logits are requested
  float cum_log_prob = 0.0f;      // of all tokens, the end id included
  float score = 0.0f;             // cum_log_prob / length ^ length_penalty
  FinishReason finish = FinishReason::kNone;
};

// A beam before this step, and the candidates for its next token.
struct BeamView {
  std::span<const int32_t> output_ids;
  std::span<const float> log_probs;
  float cum_log_prob = 0.0f;
  std::span<const SampledToken> candidates;  // most likely first
  // If logits are requested: those of output_ids, and those from which the candidates were taken.
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
  BeamSearch(const BeamParams& params, const StopCriteria& stop) : params_(params), stop_(&stop) {}

  // Number of candidates that each beam must provide, so that `width` remain even if every most
  // likely one ends.
  static int32_t NumCandidates(const BeamParams& params, const StopCriteria& stop);

  // Chooses the beams of the next step. All beams must have the same number of output ids. An empty
  // result means that the search is over. The StopCriteria of the constructor are borrowed.
  std::vector<BeamContinuation> Advance(std::span<const BeamView> beams);
  // Valid after the last step: at most `width` outputs, best first, ties in the order in which they
  // finished.
  const std::vector<BeamHypothesis>& finished() const { return finished_; }

 private:
  struct Scored {
    float score;  // cum_log_prob less the diversity penalty; used for ranking only
    BeamContinuation continuation;
  };

  std::vector<Scored> Rank(std::span<const BeamView> beams) const;
  void AddFinished(const BeamView& parent, const BeamContinuation& last);
  // `best`: cum_log_prob of the most likely candidate of this step, whether it ends or continues.
  bool IsOver(bool goes_on, float best, int32_t num_output) const;
  float Score(float cum_log_prob, size_t length) const;

  BeamParams params_;
  const StopCriteria* stop_;
  std::vector<BeamHypothesis> finished_;  // best first
};

}  // namespace nereid::llm
