// Delays a stream. OperatorTimer uses it so that the kernels launched meanwhile run without gaps.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/gpu_llm/kernels/device/form.h"

namespace nereid::gpu {

inline namespace NEREID_KERNEL_FORM {
// With 0 the kernel ends at once.
void DelayStream(int64_t nanoseconds, cudaStream_t stream);
}  // namespace NEREID_KERNEL_FORM

}  // namespace nereid::gpu
