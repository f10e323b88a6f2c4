/// \file
/// The measured time that a costly drafter takes for one more draft token of some sequences, and
/// for a token of a sequence that it has not seen. [engine thread]
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <utility>

#include "backends/llm_core/speculation/step_costs.h"

namespace nereid::llm {

class DraftTimes {
 public:
  /// Records a proposal of `length` >= 1 tokens for each of `num_sequences` >= 1 sequences.
  void Record(int32_t num_sequences, int32_t length, double seconds) {
    double& average = seconds_[Class(num_sequences)];
    const double one = seconds / length;
    // A first call may take long, and stays the last one if its time is believed.
    const double near = average == 0.0 ? Of(num_sequences, 1, 0.0) : 0.0;
    average = NextAverage(average, near > 0.0 ? std::min(one, 2.0 * near) : one);
    if (first_.num_unseen > 0) seconds_of_unseen_ = UnseenSeconds(std::exchange(first_, {}));
  }
  /// Records such a proposal, of any length, before which the drafter caught up with `num_unseen`
  /// >= 1 tokens of the sequences.
  void RecordCatchUp(int32_t num_sequences, int32_t length, int32_t num_unseen, double seconds) {
    const CatchUp call = {num_sequences, length, num_unseen, seconds};
    if (Of(num_sequences, 1, 0.0) > 0.0) {
      seconds_of_unseen_ = NextAverage(seconds_of_unseen_, UnseenSeconds(call));
    } else {  // every token is taken to cost the same until a draft is measured
      first_ = call;
      seconds_of_unseen_ = seconds / (num_unseen + length * num_sequences);
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
  /// The expected seconds for each token that the drafter has not seen; 0: not measured.
  double OfUnseen() const { return seconds_of_unseen_; }

 private:
  struct CatchUp {
    int32_t num_sequences = 0, length = 0, num_unseen = 0;
    double seconds = 0.0;
  };
  double UnseenSeconds(const CatchUp& call) const {
    return std::max(0.0, call.seconds - Of(call.num_sequences, call.length, 0.0)) / call.num_unseen;
  }

  static constexpr int32_t kNumClasses = 16;  // powers of two
  static int32_t Class(int32_t num_sequences) {
    return std::min<int32_t>(kNumClasses - 1,
                             std::bit_width(static_cast<uint32_t>(num_sequences)) - 1);
  }

  std::array<double, kNumClasses> seconds_ = {};  // 0: not measured
  double seconds_of_unseen_ = 0.0;
  CatchUp first_;  // before any draft was measured
};

}  // namespace nereid::llm
