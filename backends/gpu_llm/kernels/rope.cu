// One warp a head of a row.
#include "gpu_llm/kernels/cache_layout.h"
#include "gpu_llm/kernels/device.cuh"
#include "gpu_llm/kernels/launch.h"
#include "gpu_llm/kernels/rope.h"

namespace nereid::gpu {
namespace {

constexpr int kWarps = 8;

template <int kHeadDim>
__global__ void __launch_bounds__(32 * kWarps) RopeWriteKernel(RopeWriteParams p) {
  constexpr int kPerLane = (kHeadDim + 31) / 32;
  __shared__ float heads[kWarps][kHeadDim];
  LaunchNext();
  WaitForPrevious();
  const int lane = threadIdx.x % 32;
  const int num_heads = p.num_heads + 2 * p.num_kv_heads;
  const int64_t unit = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  const int64_t row = unit / num_heads;
  const int head = static_cast<int>(unit % num_heads);
  if (row >= p.num_rows) return;
  const int slot = p.cache_slots[row];
  const bool is_query = head < p.num_heads;
  const bool is_value = head >= p.num_heads + p.num_kv_heads;
  if (slot < 0 && !is_query) return;
  bf16* from = p.qkv + (row * num_heads + head) * kHeadDim;
  float* values = heads[threadIdx.x / 32];
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int column = i * 32 + lane;
    if (column >= kHeadDim) break;
    float value = __bfloat162float(from[column]);
    if (p.bias != nullptr) value += __bfloat162float(p.bias[head * kHeadDim + column]);
    values[column] = value;
    sum += value * value;
  }
  const int kv_head = is_value ? head - p.num_heads - p.num_kv_heads : head - p.num_heads;
  char* tile = static_cast<char*>(p.cache) +
               (int64_t{slot / kBlockTokens} * p.num_kv_heads + kv_head) * HeadBytes(kHeadDim);
  const int token = slot % kBlockTokens;
  if (is_value) {
    for (int column = lane; column < kHeadDim; column += 32) {
      *reinterpret_cast<bf16*>(tile + TileBytes(kHeadDim) + ValueOffset<kHeadDim>(token, column)) =
          __float2bfloat16(values[column]);
    }
    return;
  }
  if (p.q_norm != nullptr) {
    const float scale = rsqrtf(WarpSum(sum) / kHeadDim + p.epsilon);
    const bf16* weight = is_query ? p.q_norm : p.k_norm;
    for (int column = lane; column < kHeadDim; column += 32)
      values[column] *= scale * __bfloat162float(weight[column]);
  }
  __syncwarp();
  const int half = p.rope_dim / 2;
  for (int column = lane; column < kHeadDim; column += 32) {
    float value = values[column];
    if (column < p.rope_dim) {
      const bool is_first = column < half;
      const float2 rotation =
          p.cos_sin[int64_t{p.positions[row]} * half + (is_first ? column : column - half)];
      value = is_first ? value * rotation.x - values[column + half] * rotation.y
                       : value * rotation.x + values[column - half] * rotation.y;
    }
    bf16* to = is_query ? from + column
                        : reinterpret_cast<bf16*>(tile + KeyOffset<kHeadDim>(token, column));
    *to = __float2bfloat16(value);
  }
}

__global__ void RopeTableKernel(const float* inv_freq, int half_dim, int64_t count, float magnitude,
                                float2* cos_sin) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float angle = static_cast<float>(i / half_dim) * inv_freq[i % half_dim];
  cos_sin[i] = {cosf(angle) * magnitude, sinf(angle) * magnitude};
}

}  // namespace

void RopeWrite(const RopeWriteParams& params, cudaStream_t stream) {
  const int64_t units = int64_t{params.num_rows} * (params.num_heads + 2 * params.num_kv_heads);
  const auto blocks = static_cast<unsigned>((units + kWarps - 1) / kWarps);
  const auto launch = [&](auto kernel) { Launch(kernel, blocks, 32 * kWarps, 0, stream, params); };
  switch (params.head_dim) {
    case 64:
      return launch(RopeWriteKernel<64>);
    case 80:
      return launch(RopeWriteKernel<80>);
    case 96:
      return launch(RopeWriteKernel<96>);
    case 128:
      return launch(RopeWriteKernel<128>);
    case 256:
      return launch(RopeWriteKernel<256>);
    case 16:
      return launch(RopeWriteKernel<16>);
    case 32:
      return launch(RopeWriteKernel<32>);
  }
}

void FillRopeTable(const float* inv_freq, int half_dim, int max_positions, float magnitude,
                   float2* cos_sin, cudaStream_t stream) {
  const int64_t count = int64_t{half_dim} * max_positions;
  RopeTableKernel<<<static_cast<unsigned>((count + 255) / 256), 256, 0, stream>>>(
      inv_freq, half_dim, count, magnitude, cos_sin);
}

}  // namespace nereid::gpu
