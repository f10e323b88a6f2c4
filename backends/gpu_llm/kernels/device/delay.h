// Delays a stream. OperatorTimer uses it so that the kernels launched meanwhile run without gaps.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace nereid::gpu {

// With 0 the kernel ends at once.
void DelayStream(int64_t nanoseconds, cudaStream_t stream);

}  // namespace nereid::gpu
