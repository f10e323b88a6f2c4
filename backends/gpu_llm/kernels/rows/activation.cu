// Activations of the MLP, 8 outputs a thread. Bound by memory bandwidth. 8,192 rows of 14,336: the
// SiLU gate reaches 94 %, GELU 62 % of an H200's 4.65 TB/s. SiluResidual: one block of threads for
// each row and head, 8 values a thread at a time.
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/rows/activate.cuh"
#include "backends/gpu_llm/kernels/rows/activation.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

using llm::Activation;

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    SiluGateKernel(const uint4* gate_up, uint4* out, int64_t count) {
  LaunchNext();
  WaitForPrevious();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  float gate[8], up[8];
  Unpack8(gate_up[2 * i], gate);
  Unpack8(gate_up[2 * i + 1], up);
#pragma unroll
  for (int j = 0; j < 8; ++j) gate[j] = gate[j] / (1.0f + __expf(-gate[j])) * up[j];
  out[i] = Pack8(gate);
}

__device__ __forceinline__ void AddBias(const uint4* bias, int64_t chunk, float (&values)[8]) {
  float biases[8];
  Unpack8(bias[chunk], biases);
#pragma unroll
  for (int j = 0; j < 8; ++j) values[j] += biases[j];
}

template <Activation kKind, bool kIsGated>
__global__ void __launch_bounds__(kThreads) ActivationKernel(ActivationParams p) {
  LaunchNext();
  WaitForPrevious();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int chunks = p.inner_size / 8;  // of a row
  if (i >= p.num_rows * chunks) return;
  const int64_t chunk = i % chunks;
  const uint4* in = reinterpret_cast<const uint4*>(p.in);
  const uint4* bias = reinterpret_cast<const uint4*>(p.bias);
  float activated[8];
  Unpack8(in[kIsGated ? 2 * i : i], activated);
  if (bias != nullptr) AddBias(bias, kIsGated ? 2 * chunk : chunk, activated);
#pragma unroll
  for (float& value : activated) value = Apply<kKind>(value);
  if constexpr (kIsGated) {
    float up[8];
    Unpack8(in[2 * i + 1], up);
    if (bias != nullptr) AddBias(bias, 2 * chunk + 1, up);
#pragma unroll
    for (int j = 0; j < 8; ++j) activated[j] *= up[j];
  }
  reinterpret_cast<uint4*>(p.out)[i] = Pack8(activated);
}

template <Activation kKind>
void LaunchFor(const ActivationParams& p, cudaStream_t stream) {
  const int64_t count = p.num_rows * p.inner_size / 8;
  const auto blocks = static_cast<unsigned>((count + kThreads - 1) / kThreads);
  p.is_gated ? Launch(ActivationKernel<kKind, true>, blocks, kThreads, 0, stream, p)
             : Launch(ActivationKernel<kKind, false>, blocks, kThreads, 0, stream, p);
}

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

void SiluGate(const __nv_bfloat16* gate_up, __nv_bfloat16* out, int64_t num_rows, int inner_size,
              cudaStream_t stream) {
  const int64_t count = num_rows * inner_size / 8;
  Launch(SiluGateKernel, static_cast<unsigned>((count + kThreads - 1) / kThreads), kThreads, 0,
         stream, reinterpret_cast<const uint4*>(gate_up), reinterpret_cast<uint4*>(out), count);
}

void Activate(const ActivationParams& params, cudaStream_t stream) {
  switch (params.kind) {
    case Activation::kSilu:
      return LaunchFor<Activation::kSilu>(params, stream);
    case Activation::kGelu:
      return LaunchFor<Activation::kGelu>(params, stream);
    case Activation::kGeluTanh:
      return LaunchFor<Activation::kGeluTanh>(params, stream);
    case Activation::kRelu:
      return LaunchFor<Activation::kRelu>(params, stream);
    case Activation::kQuickGelu:
      return LaunchFor<Activation::kQuickGelu>(params, stream);
  }
}

void SiluResidual(const SiluResidualParams& params, cudaStream_t stream) {
  Launch(SiluResidualKernel, dim3(params.num_rows, params.num_heads), kThreads, 0, stream, params);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
