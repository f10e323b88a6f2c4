// Grid: one block of threads for each row, 16 bytes a thread at a time.
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/rows/copy_rows.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

constexpr int kCopyThreads = 256;

__global__ void __launch_bounds__(kCopyThreads) CopyRowsKernel(CopyRowsParams p) {
  LaunchNext();
  WaitForPrevious();
  const int row = static_cast<int>(blockIdx.x);
  const int64_t from_row = p.in_rows != nullptr ? p.in_rows[row] : row;
  const int64_t to_row = p.out_rows != nullptr ? p.out_rows[row] : row;
  if (from_row < 0 || to_row < 0) return;
  const uint4* from = reinterpret_cast<const uint4*>(p.in + from_row * p.row_size);
  uint4* to = reinterpret_cast<uint4*>(p.out + to_row * p.out_stride);
  for (int i = threadIdx.x; i < p.row_size / 8; i += kCopyThreads) to[i] = from[i];
}

}  // namespace

void CopyRows(const CopyRowsParams& params, cudaStream_t stream) {
  Launch(CopyRowsKernel, params.num_rows, kCopyThreads, 0, stream, params);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
