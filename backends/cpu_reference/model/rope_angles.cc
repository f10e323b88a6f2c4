// Computes the angles of a step in float, as the reference implementation does.
#include "backends/cpu_reference/model/rope_angles.h"

#include <algorithm>
#include <cmath>

namespace nereid::cpu {

RopeAngles::RopeAngles(const std::vector<llm::RopeSpec>& ropes)
    : ropes_(ropes), angles_(ropes.size()) {}

const float* RopeAngles::FrequenciesOf(const llm::BatchEntry& sequence, int32_t position,
                                       const llm::RopeSpec& rope, Angles& angles) {
  const int32_t length = std::max(sequence.num_prompt, position + 1);
  if (rope.trained_positions > 0 && length > rope.trained_positions) {
    // Tokens of one prompt share a length, so that the last frequencies are reused.
    if (length != angles.dynamic_length) {
      angles.dynamic_length = length;
      angles.dynamic_freq.resize(rope.inv_freq.size());
      llm::DynamicFrequencies(rope, length, angles.dynamic_freq.data());
    }
    return angles.dynamic_freq.data();
  }
  const bool is_short = !rope.short_inv_freq.empty() && !sequence.uses_long_rope;
  return is_short ? rope.short_inv_freq.data() : rope.inv_freq.data();
}

void RopeAngles::Prepare(const llm::StepBatch& batch, std::span<const int32_t> positions) {
  for (size_t r = 0; r < ropes_.size(); ++r) {
    const llm::RopeSpec& rope = ropes_[r];
    Angles& angles = angles_[r];
    const size_t half = rope.inv_freq.size();
    const size_t size = batch.token_ids.size() * half;
    if (angles.cosines.size() < size) {
      angles.cosines.resize(size);
      angles.sines.resize(size);
    }
    for (const llm::BatchEntry& sequence : batch.entries) {
      for (int32_t token = 0; token < sequence.num_tokens; ++token) {
        const int32_t position = positions[sequence.first_token + token];
        const float* inv_freq = FrequenciesOf(sequence, position, rope, angles);
        const size_t first = static_cast<size_t>(sequence.first_token + token) * half;
        for (size_t i = 0; i < half; ++i) {
          const float angle = static_cast<float>(position) * inv_freq[i];
          angles.cosines[first + i] = std::cos(angle) * rope.magnitude;
          angles.sines[first + i] = std::sin(angle) * rope.magnitude;
        }
      }
    }
  }
}

}  // namespace nereid::cpu
