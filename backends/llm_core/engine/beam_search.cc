// Ranks candidates and ends the search.
#include "backends/llm_core/engine/beam_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/llm_core/engine/stop_criteria.h"

namespace nereid::llm {

int32_t BeamSearch::NumCandidates(const BeamParams& params, const StopCriteria& stop) {
  const auto num_ends = static_cast<int32_t>(std::max<size_t>(1, stop.end_ids.size()));
  return params.width * (1 + num_ends);
}

std::vector<BeamContinuation> BeamSearch::Advance(std::span<const BeamView> beams) {
  const auto width = static_cast<size_t>(params_.width);
  std::vector<BeamContinuation> next;
  size_t rank = 0;
  const std::vector<Scored> ranked = Rank(beams);
  for (const Scored& scored : ranked) {
    if (next.size() == width) break;
    const BeamContinuation& continuation = scored.continuation;
    TokenIds ids(beams[continuation.parent].output_ids.begin(),
                 beams[continuation.parent].output_ids.end());
    ids.push_back(continuation.token.id);
    const bool ends = CheckStop(*stop_, ids).finish != FinishReason::kNone;
    // A candidate that ends counts only if its rank would have made it a beam.
    if (!ends) {
      next.push_back(continuation);
    } else if (rank < width) {
      AddFinished(beams[continuation.parent], continuation);
    }
    ++rank;
  }
  float best = -std::numeric_limits<float>::infinity();
  for (const Scored& scored : ranked) best = std::max(best, scored.continuation.cum_log_prob);
  const auto num_output = static_cast<int32_t>(beams[0].output_ids.size()) + 1;
  if (IsOver(!next.empty(), best, num_output)) next.clear();
  return next;
}

std::vector<BeamSearch::Scored> BeamSearch::Rank(std::span<const BeamView> beams) const {
  std::vector<Scored> ranked;
  for (size_t beam = 0; beam < beams.size(); ++beam) {
    for (size_t i = 0; i < beams[beam].candidates.size(); ++i) {
      const SampledToken& token = beams[beam].candidates[i];
      if (!std::isfinite(token.log_prob)) continue;  // banned
      const float cum = beams[beam].cum_log_prob + token.log_prob;
      ranked.push_back({cum - params_.diversity_rate * static_cast<float>(i),
                        {static_cast<int32_t>(beam), token, cum}});
    }
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const Scored& a, const Scored& b) { return a.score > b.score; });
  return ranked;
}

void BeamSearch::AddFinished(const BeamView& parent, const BeamContinuation& last) {
  BeamHypothesis made;
  made.ids.assign(parent.output_ids.begin(), parent.output_ids.end());
  made.ids.push_back(last.token.id);
  made.log_probs.assign(parent.log_probs.begin(), parent.log_probs.end());
  made.log_probs.push_back(last.token.log_prob);
  if (parent.step_logits != nullptr) {
    made.logits.assign(parent.logits.begin(), parent.logits.end());
    made.logits.push_back(parent.step_logits);
  }
  made.cum_log_prob = last.cum_log_prob;
  made.score = Score(last.cum_log_prob, made.ids.size());
  const StopResult stop = CheckStop(*stop_, made.ids);
  made.finish = stop.finish;
  made.ids.resize(stop.num_visible);
  made.log_probs.resize(stop.num_visible);
  if (!made.logits.empty()) made.logits.resize(stop.num_visible);
  const auto place = std::find_if(finished_.begin(), finished_.end(),
                                  [&](const auto& other) { return other.score < made.score; });
  finished_.insert(place, std::move(made));
  if (finished_.size() > static_cast<size_t>(params_.width)) finished_.pop_back();
}

bool BeamSearch::IsOver(bool goes_on, float best, int32_t num_output) const {
  if (!goes_on) return true;
  if (finished_.size() < static_cast<size_t>(params_.width)) return false;
  if (params_.early_stopping) return true;
  return finished_.back().score >= Score(best, static_cast<size_t>(num_output));
}

float BeamSearch::Score(float cum_log_prob, size_t length) const {
  return cum_log_prob / std::pow(static_cast<float>(length), params_.length_penalty);
}

}  // namespace nereid::llm
