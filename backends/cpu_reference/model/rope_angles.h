// Cosines and sines of a step's tokens, of every rope of a decoder: which frequencies a token turns
// with depends on where it stands and on how long its sequence is. [engine thread]
#pragma once

#include <cstdint>
#include <vector>

#include "backends/llm_core/engine/batch.h"
#include "backends/llm_core/model/decoder_spec.h"

namespace nereid::cpu {

class RopeAngles {
 public:
  // `ropes` outlive it.
  explicit RopeAngles(const std::vector<llm::RopeSpec>& ropes);

  void Prepare(const llm::Batch& batch);

  // Of the rope of that index: [num_tokens, dim / 2], tokens as Batch::token_ids has them; valid
  // until the next Prepare.
  const float* cosines(int32_t rope) const { return angles_[rope].cosines.data(); }
  const float* sines(int32_t rope) const { return angles_[rope].sines.data(); }

 private:
  struct Angles {
    std::vector<float> cosines, sines;
    // Dynamic: those of a sequence of `dynamic_length` tokens.
    std::vector<float> dynamic_freq;
    int32_t dynamic_length = 0;
  };
  const float* FrequenciesOf(const llm::BatchSequence& sequence, int32_t position,
                             const llm::RopeSpec& rope, Angles& angles);

  const std::vector<llm::RopeSpec>& ropes_;
  std::vector<Angles> angles_;  // per rope
};

}  // namespace nereid::cpu
