// One thread that polls the global timer.
#include "backends/gpu_llm/kernels/device/delay.h"

#include "backends/gpu_llm/kernels/device/device.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

__global__ void DelayKernel(int64_t nanoseconds) {
  for (const uint64_t end = NowNs() + nanoseconds; nanoseconds > 0 && NowNs() < end;)
    __nanosleep(1000);
}

}  // namespace

void DelayStream(int64_t nanoseconds, cudaStream_t stream) {
  DelayKernel<<<1, 1, 0, stream>>>(nanoseconds);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
