// Grid: one block of threads for each row and head, 8 values a thread at a time.
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/rows/silu_residual.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) SiluResidualKernel(SiluResidualParams p) {
  LaunchNext();
  WaitForPrevious();
  const int64_t row = blockIdx.x, head = blockIdx.y;
  const bf16* in = p.in + head * p.in_stride + row * p.size;
  const bf16* product = p.product + (row * p.num_heads + head) * p.size;
  bf16* out = p.out + head * p.out_stride + row * p.size;
  for (int i = 8 * static_cast<int>(threadIdx.x); i < p.size; i += 8 * kThreads) {
    float values[8], added[8] = {}, sums[8];
    Unpack8(*reinterpret_cast<const uint4*>(product + i), values);
    if (p.bias != nullptr)
      Unpack8(*reinterpret_cast<const uint4*>(p.bias + head * p.size + i), added);
    Unpack8(*reinterpret_cast<const uint4*>(in + i), sums);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float value = values[j] + added[j];
      sums[j] += value / (1.0f + __expf(-value));
    }
    *reinterpret_cast<uint4*>(out + i) = Pack8(sums);
  }
}

}  // namespace

void SiluResidual(const SiluResidualParams& params, cudaStream_t stream) {
  Launch(SiluResidualKernel, dim3(params.num_rows, params.num_heads), kThreads, 0, stream, params);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
