/// \file
/// The measured duration of steps by their number of tokens, which decides whether draft tokens
/// pay. [engine thread]
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace nereid::llm {

/// The typical duration of a step of so many tokens, in any unit.
struct StepCostPoint {
  int32_t num_tokens = 0;
  float cost = 0.0f;
};

/// Durations in seconds of steps without prompts.
class StepCosts {
 public:
  /// `typical`: points in increasing order, between which costs are linear; borrowed. They serve as
  /// a guess where nothing was measured. Empty: every draft token costs little.
  explicit StepCosts(std::span<const StepCostPoint> typical = {}) : typical_(typical) {}

  /// Records a step of `num_sequences` decoding sequences and `num_drafts` draft tokens.
  void Record(int32_t num_sequences, int32_t num_drafts, double seconds);
  /// The expected duration of such a step in units of the same step without drafts. Where no step
  /// of about this size was measured, a guess, so that one is tried.
  double Relative(int32_t num_sequences, int32_t num_drafts) const;
  /// Whether such steps without drafts were not measured lately: one is due, since Relative()
  /// compares with them.
  bool NeedsPlainStep(int32_t num_sequences) const;

 private:
  static constexpr int32_t kNumSizes = 16;   // powers of two of sequences
  static constexpr int32_t kNumDrafts = 16;  // 0, then classes of drafts a sequence
  struct Cost {
    double seconds = 0.0;  // 0: not measured
    int64_t measured_at = 0;
    int64_t num_measured = 0;
  };
  static int32_t SizeClass(int32_t num_sequences);
  static int32_t DraftClass(int32_t num_sequences, int32_t num_drafts);

  double Guess(int32_t num_sequences, int32_t num_drafts) const;
  double TypicalCost(int32_t num_tokens) const;

  std::span<const StepCostPoint> typical_;
  std::array<std::array<Cost, kNumDrafts>, kNumSizes> costs_;
  int64_t num_steps_ = 0;
};

}  // namespace nereid::llm
