/// \file
/// The measured duration of steps by their number of tokens, which decides whether draft tokens
/// pay. [engine thread]
#pragma once

#include <array>
#include <cstdint>

namespace nereid::llm {

/// Durations in seconds of steps without prompts.
class StepCosts {
 public:
  /// Records a step of `num_sequences` decoding sequences and `num_drafts` draft tokens.
  void Record(int32_t num_sequences, int32_t num_drafts, double seconds);
  /// The expected duration of such a step in units of the same step without drafts. Where no step
  /// of about this size was measured, a low guess, so that one is tried.
  double Relative(int32_t num_sequences, int32_t num_drafts) const;

 private:
  static constexpr int32_t kNumSizes = 16;   // powers of two of sequences
  static constexpr int32_t kNumDrafts = 16;  // 0, then classes of drafts a sequence
  struct Cost {
    double seconds = 0.0;  // 0: not measured
    int64_t measured_at = 0;
  };
  static int32_t SizeClass(int32_t num_sequences);
  static int32_t DraftClass(int32_t num_sequences, int32_t num_drafts);

  std::array<std::array<Cost, kNumDrafts>, kNumSizes> costs_;
  int64_t num_steps_ = 0;
};

}  // namespace nereid::llm
