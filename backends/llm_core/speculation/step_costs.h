/// \file
/// The measured duration of steps by their number of tokens, which decides whether draft tokens
/// pay. [engine thread]
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

namespace nereid::llm {

/// An average of durations after one more of them; 0: there was none before. Steps are delayed more
/// often than hastened, and the first ones are slow, so that a shorter duration weighs more. A
/// longer one counts for at most twice the average, since it may be a delay by the operating
/// system.
inline double NextAverage(double average, double seconds) {
  constexpr double kWeightOfLonger = 0.125, kWeightOfShorter = 0.5, kMostGrowth = 2.0;
  if (average == 0.0) return seconds;
  const double weight = seconds < average ? kWeightOfShorter : kWeightOfLonger;
  return average + weight * (std::min(seconds, kMostGrowth * average) - average);
}

/// The typical duration of a step of so many tokens, in any unit.
struct StepCostPoint {
  int32_t num_tokens = 0;
  float cost = 0.0f;
};

/// Points in increasing order, between which costs are linear; borrowed. Empty: unknown.
struct TypicalCosts {
  std::span<const StepCostPoint> points;
  bool are_measured = false;  ///< on this device with this model, not on a similar one
  /// Of these steps with short contexts: the seconds that each token of a sequence's context adds,
  /// whatever the number of its drafts; 0: unknown.
  double context_token_seconds = 0.0;
};

/// An expected duration, in units of the same step without drafts.
struct StepCost {
  double relative = 1.0;
  bool is_measured = false;  ///< otherwise a guess, on which little should be risked
};

/// Durations in seconds of steps without prompts, without the time of drafting.
class StepCosts {
 public:
  /// `typical` costs serve where no step of an engine was measured lately. Without them, a guess is
  /// that every draft token costs little.
  explicit StepCosts(const TypicalCosts& typical = {}) : typical_(typical) {}

  /// Sets the tokens of the contexts of all sequences in the steps that follow.
  void SetContext(int64_t num_tokens) {
    context_seconds_ = typical_.context_token_seconds * static_cast<double>(num_tokens);
  }
  /// Records a step of `num_sequences` decoding sequences and `num_drafts` draft tokens.
  void Record(int32_t num_sequences, int32_t num_drafts, double seconds);
  /// Records how long the executor was idle before a step because speculation keeps steps from
  /// overlapping. A plain step is recorded without that time, and one with drafts with it.
  void RecordIdle(int32_t num_sequences, double seconds) {
    double& idle = idle_[SizeClass(num_sequences)];
    idle = NextAverage(idle, seconds);
  }
  double IdleSeconds(int32_t num_sequences) const { return idle_[SizeClass(num_sequences)]; }
  /// The expected duration of such a step. A guess continues what was measured with fewer drafts.
  StepCost Of(int32_t num_sequences, int32_t num_drafts) const;
  /// The seconds of a step without drafts; 0 if none was measured.
  double PlainSeconds(int32_t num_sequences) const {
    const Cost& plain = costs_[SizeClass(num_sequences)][0];
    return plain.num_measured > 0 ? plain.seconds + context_seconds_ : 0.0;
  }
  /// The most drafts, of all sequences together, that a step may have. With typical costs any
  /// number: a few drafts may cost a whole step of other kernels, and only many of them pay.
  /// Otherwise twice as many as in the longest measured step, or few where none was measured, so
  /// that a step whose cost is guessed is never much longer than expected.
  int32_t MostDrafts(int32_t num_sequences) const;
  /// Whether such steps without drafts were not measured lately: one is due, since all costs are
  /// compared with them.
  bool NeedsPlainStep(int32_t num_sequences) const;

 private:
  static constexpr int32_t kNumSizes = 64;   // each sequence up to 8, then quarters of an octave
  static constexpr int32_t kNumDrafts = 16;  // 0, then classes of drafts a sequence
  // Averages of measurements.
  struct Cost {
    double seconds = 0.0;     // without the time of the contexts
    double num_drafts = 0.0;  // of the sequences together
    int64_t measured_at = 0;
    int64_t num_measured = 0;
  };
  static int32_t SizeClass(int32_t num_sequences);
  static int32_t DraftClass(int32_t num_sequences, int32_t num_drafts);

  bool IsRecent(const Cost& cost) const;
  double Guess(int32_t num_sequences, double num_drafts) const;
  // Returns what a step with `num_drafts` drafts would take, in units of a step without drafts, by
  // a measurement of steps of its class, which may have had other numbers of drafts.
  double Scaled(const Cost& cost, int32_t num_sequences, int32_t num_drafts) const;
  double TypicalCost(double num_tokens) const;

  const TypicalCosts typical_;
  std::array<std::array<Cost, kNumDrafts>, kNumSizes> costs_;
  std::array<double, kNumSizes> idle_ = {};
  double context_seconds_ = 0.0;
  int64_t num_steps_ = 0;
};

}  // namespace nereid::llm
