// Copies checkpoint tensors to the device, converted to bf16, by several threads over pinned
// memory. [load thread]
#pragma once

#include <cstdint>
#include <vector>

#include "gpu_llm/cuda/memory.h"
#include "llm_core/model/weight_map.h"
#include "nereid/status.h"

namespace nereid::gpu {

// One weight, and where its rows go: row r to row r / group_rows * group_stride + r % group_rows
// behind `offset`.
struct WeightPart {
  const llm::ResolvedWeight* weight = nullptr;
  int64_t rows = 0, columns = 0;  // a vector: one column
  int64_t group_rows = 0, group_stride = 0;
  int64_t offset = 0;     // in elements
  bool is_first = false;  // of the parts of its matrix
};

Status UploadWeights(const std::vector<WeightPart>& parts, const DeviceMemory& memory);

}  // namespace nereid::gpu
