// Grids: one block of threads for each row, or for each row and layer, 16 bytes a thread at a time.
#include "backends/gpu_llm/kernels/rows/hidden_states.h"

#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/step/decode_step_exchange.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

constexpr int kCopyThreads = 256;

__global__ void __launch_bounds__(kCopyThreads) CopyRowsKernel(CopyRowsParams p) {
  if (!p.holds_next) LaunchNext();
  WaitForPrevious();
  const int row = static_cast<int>(blockIdx.x);
  const int64_t from_row = p.in_rows != nullptr ? p.in_rows[row] : row;
  const int64_t to_row = p.out_rows != nullptr ? p.out_rows[row] : row;
  if (from_row < 0 || to_row < 0) return;
  const uint4* from = reinterpret_cast<const uint4*>(p.in + from_row * p.row_size);
  uint4* to = reinterpret_cast<uint4*>(p.out + to_row * p.out_stride);
  for (int i = threadIdx.x; i < p.row_size / 8; i += kCopyThreads) to[i] = from[i];
}

__global__ void __launch_bounds__(kCopyThreads) StepHiddenStatesKernel(StepHiddenStatesParams p) {
  LaunchNext();
  WaitForPrevious();
  const int64_t row = blockIdx.x;
  const int layer = p.layers[blockIdx.y];
  const bf16* from = p.step.residual + row * p.step.hidden_size;
  if (layer > 0) {
    // The launch has handed the other set to the next one.
    const decode_step::LayerExchange exchange =
        decode_step::ExchangeOf(p.step, 1 - p.step.state->set, layer - 1);
    from = exchange.residual + row * exchange.stride;
  }
  const uint4* in = reinterpret_cast<const uint4*>(from);
  uint4* out = reinterpret_cast<uint4*>(p.out + row * p.out_stride +
                                        int64_t{blockIdx.y} * p.step.hidden_size);
  for (int i = threadIdx.x; i < p.step.hidden_size / 8; i += kCopyThreads) out[i] = in[i];
}

}  // namespace

void CopyRows(const CopyRowsParams& params, cudaStream_t stream) {
  Launch(CopyRowsKernel, params.num_rows, kCopyThreads, 0, stream, params);
}

void CopyStepHiddenStates(const StepHiddenStatesParams& params, cudaStream_t stream) {
  Launch(StepHiddenStatesKernel, dim3(params.step.num_rows, params.num_layers), kCopyThreads, 0,
         stream, params);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
