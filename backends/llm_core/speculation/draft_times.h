/// \file
/// The measured time that a costly drafter takes for one more draft token of some sequences.
/// [engine thread]
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>

namespace nereid::llm {

class DraftTimes {
 public:
  /// Records a proposal of `length` >= 1 tokens for each of `num_sequences` >= 1 sequences.
  void Record(int32_t num_sequences, int32_t length, double seconds) {
    double& average = seconds_[Class(num_sequences)];
    const double one = seconds / length;
    if (average == 0.0) {
      // A first call may take long, and may be the last one if it seems to.
      const double near = Of(num_sequences, 1, 0.0);
      average = near > 0.0 ? std::min(one, 2.0 * near) : one;
    } else {  // as in StepCosts: delays say little
      average += (one < average ? 0.5 : 0.125) * (std::min(one, 2.0 * average) - average);
    }
  }
  bool IsMeasured(int32_t num_sequences) const { return seconds_[Class(num_sequences)] > 0.0; }
  /// The expected seconds of `length` tokens for each of the sequences; `guess` for one token if
  /// nothing was measured.
  double Of(int32_t num_sequences, int32_t length, double guess) const {
    const int32_t wanted = Class(num_sequences);
    for (int32_t distance = 0; distance < kNumClasses; ++distance) {
      for (const int32_t near : {wanted - distance, wanted + distance}) {
        if (near >= 0 && near < kNumClasses && seconds_[near] > 0.0) return length * seconds_[near];
      }
    }
    return length * guess;
  }

 private:
  static constexpr int32_t kNumClasses = 16;  // powers of two
  static int32_t Class(int32_t num_sequences) {
    return std::min<int32_t>(kNumClasses - 1,
                             std::bit_width(static_cast<uint32_t>(num_sequences)) - 1);
  }

  std::array<double, kNumClasses> seconds_ = {};  // 0: not measured
};

}  // namespace nereid::llm
