// Moving averages of step durations.
#include "backends/llm_core/speculation/step_costs.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace nereid::llm {
namespace {

// What a draft token costs in the guess, in units of a sequence's share of the step.
constexpr double kGuessedCost = 0.02;
// A measurement of a step with drafts holds for this many steps. One trial among so many costs less
// than a hundredth even if it takes twice the time.
constexpr int64_t kStepsBetweenTrials = 512;
// A single measurement may be that of a delayed step. So only half of what it adds to a plain step
// is believed, which makes another one likely.
constexpr double kPartOfFirst = 0.5;
// How much steps of the same kind differ, in their own unit.
constexpr double kNoise = 0.03;
// The least part of a step that is not the time of its contexts.
constexpr double kLeastPart = 0.25;
// Steps between two measurements of a step without drafts: so many for each one before, and at most
// this number.
constexpr int64_t kStepsForEachPlain = 16;
constexpr int64_t kMostStepsBetweenPlain = 256;

}  // namespace

int32_t StepCosts::SizeClass(int32_t num_sequences) {
  constexpr uint32_t kExact = 8;
  const auto size = static_cast<uint32_t>(std::max(1, num_sequences));
  if (size < kExact) return static_cast<int32_t>(size) - 1;
  const int32_t power = std::bit_width(size) - 1;  // from 3
  const auto quarter = static_cast<int32_t>((size >> (power - 2)) & 3u);
  return std::min<int32_t>(kNumSizes - 1, 7 + 4 * (power - 3) + quarter);
}

// Drafts a sequence, in quarters up to one and then on a scale of powers of two with halves.
int32_t StepCosts::DraftClass(int32_t num_sequences, int32_t num_drafts) {
  if (num_drafts == 0) return 0;
  const auto quarters =
      static_cast<uint32_t>(std::max(1, 4 * num_drafts / std::max(1, num_sequences)));
  const int32_t power = std::bit_width(quarters) - 1;
  const int32_t half = power > 0 ? static_cast<int32_t>((quarters >> (power - 1)) & 1u) : 0;
  return std::min(kNumDrafts - 1, 1 + 2 * power + half);
}

void StepCosts::Record(int32_t num_sequences, int32_t num_drafts, double seconds) {
  ++num_steps_;
  Cost& cost = costs_[SizeClass(num_sequences)][DraftClass(num_sequences, num_drafts)];
  cost.measured_at = num_steps_;
  ++cost.num_measured;
  const double before = cost.seconds;
  const double alone = std::max(seconds - context_seconds_, kLeastPart * seconds);
  cost.seconds = NextAverage(before, alone);
  // The number of drafts that such a duration belongs to.
  const double weight = alone == before ? 1.0 : (cost.seconds - before) / (alone - before);
  cost.num_drafts += weight * (num_drafts - cost.num_drafts);
}

bool StepCosts::NeedsPlainStep(int32_t num_sequences) const {
  const Cost& plain = costs_[SizeClass(num_sequences)][0];
  if (plain.num_measured == 0) return true;
  return num_steps_ - plain.measured_at >
         std::min(kMostStepsBetweenPlain, kStepsForEachPlain * plain.num_measured);
}

double StepCosts::TypicalCost(double num_tokens) const {
  size_t next = 0;
  while (next < typical_.points.size() && typical_.points[next].num_tokens < num_tokens) ++next;
  if (next == 0) return typical_.points.front().cost;
  // Behind the last point, the last line goes on.
  next = std::min(next, typical_.points.size() - 1);
  const StepCostPoint &low = typical_.points[next - 1], &high = typical_.points[next];
  const double part =
      (num_tokens - low.num_tokens) / static_cast<double>(high.num_tokens - low.num_tokens);
  return low.cost + part * (high.cost - low.cost);
}

double StepCosts::Guess(int32_t num_sequences, double num_drafts) const {
  const int32_t count = std::max(1, num_sequences);
  const double plain = PlainSeconds(num_sequences);
  const double idle = plain > 0.0 ? IdleSeconds(num_sequences) / plain : 0.0;
  if (typical_.points.size() < 2) return 1.0 + idle + kGuessedCost * num_drafts / count;
  const double without_context = plain > 0.0 ? 1.0 - context_seconds_ / plain : 1.0;
  const double added = TypicalCost(count + num_drafts) / TypicalCost(count) - 1.0;
  return 1.0 + idle + added * without_context;
}

double StepCosts::Scaled(const Cost& cost, int32_t num_sequences, int32_t num_drafts) const {
  const double measured = (cost.seconds + context_seconds_) / PlainSeconds(num_sequences);
  const double guessed = Guess(num_sequences, cost.num_drafts) - 1.0;
  const double wanted = Guess(num_sequences, num_drafts) - 1.0;
  // kNoise in both keeps the proportion near 1 where the guess is about the same for both numbers:
  // the measured time is then returned nearly as it is.
  const double proportion = (wanted + kNoise) / (guessed + kNoise);
  return std::max(1.0, 1.0 + (measured - 1.0) * proportion);
}

bool StepCosts::IsRecent(const Cost& cost) const {
  return cost.num_measured > 0 && num_steps_ - cost.measured_at <= kStepsBetweenTrials;
}

StepCost StepCosts::Of(int32_t num_sequences, int32_t num_drafts) const {
  const auto& of_size = costs_[SizeClass(num_sequences)];
  const double base = PlainSeconds(num_sequences);
  const double guess = Guess(num_sequences, num_drafts);
  if (base == 0.0) return {guess, false};
  const int32_t draft_class = DraftClass(num_sequences, num_drafts);
  if (const Cost& cost = of_size[draft_class]; IsRecent(cost)) {
    const double measured = Scaled(cost, num_sequences, num_drafts);
    if (cost.num_measured > 1) return {measured, true};
    if (typical_.are_measured) return {0.5 * (guess + measured), true};
    return {1.0 + kPartOfFirst * (measured - 1.0), false};
  }
  for (int32_t below = draft_class - 1; below > 0; --below) {
    if (!IsRecent(of_size[below])) continue;
    // The guess, in the proportion in which it was wrong for fewer drafts: the likeliest one if it
    // is about one and what these drafts added was measured with noise.
    const double measured = std::max(0.0, (of_size[below].seconds + context_seconds_) / base - 1.0);
    const double guessed = Guess(num_sequences, of_size[below].num_drafts) - 1.0;
    const double proportion =
        (guessed * measured + kNoise * kNoise) / (guessed * guessed + kNoise * kNoise);
    return {1.0 + (guess - 1.0) * proportion, typical_.are_measured};
  }
  return {guess, typical_.are_measured};
}

int32_t StepCosts::MostDrafts(int32_t num_sequences) const {
  if (typical_.points.size() >= 2) return std::numeric_limits<int32_t>::max();
  int32_t longest = 0;
  for (const Cost& cost : std::span(costs_[SizeClass(num_sequences)]).subspan(1)) {
    if (cost.num_measured > 0) longest = std::max(longest, static_cast<int32_t>(cost.num_drafts));
  }
  return std::max({1, num_sequences / 8, 2 * longest});
}

}  // namespace nereid::llm
