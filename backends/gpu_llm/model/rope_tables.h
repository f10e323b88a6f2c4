// Cosines and sines of rotary positions, on the device. Immutable once filled. [any thread]
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "backends/gpu_llm/cuda/memory.h"
#include "backends/llm_core/model/decoder_spec.h"
#include "nereid/status.h"

namespace nereid::gpu {

class RopeTables {
 public:
  // Words of a step's positions: those of short sequences are so many behind those of long ones.
  // 0: there is no difference.
  static int32_t ShortPositionsOffset(const llm::DecoderSpec& spec, int32_t max_positions);

  RopeTables() = default;  // of no rope
  // Waits for the device.
  static Result<RopeTables> Fill(const llm::DecoderSpec& spec, int32_t max_positions);

  // [max_positions, dim / 2] pairs of cosine and sine of spec.ropes[rope]; where there is a
  // difference, with longrope's short factors behind.
  const float2* table(int32_t rope) const { return tables_[rope].as<float2>(); }
  int64_t memory_bytes() const;

 private:
  std::vector<DeviceMemory> tables_;  // by rope
};

}  // namespace nereid::gpu
