// Copies to the device what functions write into pinned memory, by several threads. [load thread]
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "backends/gpu_llm/cuda/memory.h"
#include "nereid/status.h"

namespace nereid::gpu {

// Bytes that lie together in device memory. `fill` writes all of them, on any thread.
struct UploadJob {
  int64_t offset = 0, size_bytes = 0;
  std::function<Status(uint8_t* to)> fill;
};

// The first fault of a job ends it.
Status Upload(const std::vector<UploadJob>& jobs, const DeviceMemory& memory);

}  // namespace nereid::gpu
