// Uploads weights: several threads run functions that write into pinned memory, and copy the result
// to the device. [load thread]
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "backends/gpu_llm/cuda/memory.h"
#include "nereid/status.h"

namespace nereid::gpu {

inline constexpr int64_t kWeightAlignment = 256;              // bytes
inline constexpr int64_t kUploadJobBytes = int64_t{8} << 20;  // about the size of a job

// A contiguous range of the weights. `fill` writes all of its bytes and runs on any thread.
struct UploadJob {
  int64_t offset = 0, size_bytes = 0;
  std::function<Status(uint8_t* to)> fill;
};

// The address of an offset: in device memory or in pinned host memory. [any thread]
using WeightPlace = std::function<char*(int64_t offset)>;

// Returns the first error; remaining jobs are then skipped.
Status Upload(const std::vector<UploadJob>& jobs, const WeightPlace& place);

}  // namespace nereid::gpu
