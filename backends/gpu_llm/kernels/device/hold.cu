// One thread that looks at the clock.
#include "backends/gpu_llm/kernels/device/hold.h"

#include "backends/gpu_llm/kernels/device/device.cuh"

namespace nereid::gpu {
namespace {

__global__ void HoldKernel(int64_t nanoseconds) {
  for (const uint64_t end = NowNs() + nanoseconds; nanoseconds > 0 && NowNs() < end;)
    __nanosleep(1000);
}

}  // namespace

void HoldStream(int64_t nanoseconds, cudaStream_t stream) {
  HoldKernel<<<1, 1, 0, stream>>>(nanoseconds);
}

}  // namespace nereid::gpu
