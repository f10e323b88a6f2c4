// Cosines and sines of the tokens of a step, for every rope of a decoder. The frequencies of a
// token depend on its position and on the length of its sequence. [engine thread]
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/llm_core/engine/batch.h"
#include "backends/llm_core/model/decoder_spec.h"

namespace nereid::cpu {

class RopeAngles {
 public:
  // `ropes` must outlive the object.
  explicit RopeAngles(const std::vector<llm::RopeSpec>& ropes);

  // `positions` [num_tokens].
  void Prepare(const llm::StepBatch& batch, std::span<const int32_t> positions);

  // Values of rope number `rope`: [num_tokens, dim / 2], in the order of StepBatch::token_ids.
  // Valid until the next Prepare.
  const float* cosines(int32_t rope) const { return angles_[rope].cosines.data(); }
  const float* sines(int32_t rope) const { return angles_[rope].sines.data(); }

 private:
  struct Angles {
    std::vector<float> cosines, sines;
    // Dynamic rope: the frequencies for a sequence of `dynamic_length` tokens.
    std::vector<float> dynamic_freq;
    int32_t dynamic_length = 0;
  };
  const float* FrequenciesOf(const llm::BatchEntry& sequence, int32_t position,
                             const llm::RopeSpec& rope, Angles& angles);

  const std::vector<llm::RopeSpec>& ropes_;
  std::vector<Angles> angles_;  // per rope
};

}  // namespace nereid::cpu
