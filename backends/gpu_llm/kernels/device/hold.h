// Keeps a stream busy with nothing, so that what is launched meanwhile then runs without gaps.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace nereid::gpu {

// 0: a kernel that ends at once.
void HoldStream(int64_t nanoseconds, cudaStream_t stream);

}  // namespace nereid::gpu
