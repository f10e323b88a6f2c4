/// \file
/// The measured probability that a draft token is accepted after all drafts before it were.
/// [engine thread]
#pragma once

#include <array>
#include <cstdint>

namespace nereid::llm {

/// Rates for each class of proposals. Recent outcomes count more than old ones.
class AcceptanceRates {
 public:
  static constexpr int32_t kNumClasses = 4;
  /// How much the past counts after one more record: of one sequence, and of all sequences
  /// together.
  static constexpr float kMemoryOfSequence = 0.9f;
  static constexpr float kMemoryOfEngine = 0.98f;

  explicit AcceptanceRates(float memory = kMemoryOfSequence) : memory_(memory) {}

  /// `num_accepted` of `num_drafted` >= 1 tokens were accepted. Those after the first rejected one
  /// were not tried.
  void Record(int32_t match_class, int32_t num_drafted, int32_t num_accepted) {
    Rate& rate = rates_[match_class];
    rate.tried = memory_ * rate.tried + static_cast<float>(num_accepted);
    rate.accepted = memory_ * rate.accepted + static_cast<float>(num_accepted);
    if (num_accepted < num_drafted) rate.tried += 1.0f;
  }
  /// Makes what was recorded count less.
  void Fade(float part) {
    for (Rate& rate : rates_) {
      rate.tried *= part;
      rate.accepted *= part;
    }
  }
  /// `prior` weighs as much as `weight` outcomes.
  float Estimate(int32_t match_class, float prior, float weight = kPriorWeight) const {
    const Rate& rate = rates_[match_class];
    return (rate.accepted + prior * weight) / (rate.tried + weight);
  }
  /// Whether enough outcomes were recorded to rely on them.
  bool IsMeasured(int32_t match_class) const { return rates_[match_class].tried >= kFewOutcomes; }

 private:
  static constexpr float kPriorWeight = 2.0f;
  static constexpr float kFewOutcomes = 6.0f;

  struct Rate {
    float tried = 0.0f;
    float accepted = 0.0f;
  };
  float memory_;
  std::array<Rate, kNumClasses> rates_;
};

}  // namespace nereid::llm
