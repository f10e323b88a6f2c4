// Cosines and sines of rotary embeddings on the device. Immutable after Fill(). [any thread]
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
  // Offset that is added to the positions of short sequences, for rope with different short and
  // long factors; 0: no difference.
  static int32_t ShortPositionsOffset(const llm::DecoderSpec& spec, int32_t max_positions);

  RopeTables() = default;  // no tables
  // Waits for the device.
  static Result<RopeTables> Fill(const llm::DecoderSpec& spec, int32_t max_positions);

  // [max_positions, dim / 2] pairs of cosine and sine of spec.ropes[rope]. If short factors exist,
  // their [max_positions, dim / 2] pairs follow.
  const float2* table(int32_t rope) const { return tables_[rope].as<float2>(); }
  int64_t memory_bytes() const;

 private:
  std::vector<DeviceMemory> tables_;  // by rope
};

}  // namespace nereid::gpu
