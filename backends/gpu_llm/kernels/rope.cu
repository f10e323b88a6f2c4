// One warp a head of a row, four neighbouring columns a lane. Values lie transposed in the cache:
// in long steps a warp takes up to eight neighbouring tokens of a head, whose values of one column
// are 16 bytes that lie together.
#include <algorithm>

#include "gpu_llm/kernels/byte_format.cuh"
#include "gpu_llm/kernels/cache_layout.h"
#include "gpu_llm/kernels/device.cuh"
#include "gpu_llm/kernels/launch.h"
#include "gpu_llm/kernels/rope.h"

namespace nereid::gpu {
namespace {

constexpr int kWarps = 8;
constexpr int kWindow = 8;          // rows of values a warp takes in long steps
constexpr int kLongStep = 512;      // rows; in short ones it takes one
constexpr int kValuesTogether = 8;  // tokens in 16 bytes
constexpr int kHeadsAWarp = 5;      // at most
constexpr int kManyRows = 512;

__device__ __forceinline__ void Unpack4(uint2 packed, float* values) {
  values[0] = LowBf16(packed.x), values[1] = HighBf16(packed.x);
  values[2] = LowBf16(packed.y), values[3] = HighBf16(packed.y);
}
__device__ __forceinline__ uint2 Pack4(const float* values) {
  return {PackBf16(values[0], values[1]), PackBf16(values[2], values[3])};
}

template <int kHeadDim>
__device__ __forceinline__ char* HeadOf(const RopeWriteParams& p, int slot, int kv_head) {
  return static_cast<char*>(p.cache) +
         (int64_t{slot / kBlockTokens} * p.num_kv_heads + kv_head) * HeadBytes(kHeadDim, p.format);
}

// A warp's key or value, of which this lane has quads lane, lane + 32, ..., in one byte an element.
template <int kHeadDim, bool kIsKey, int kPerLane>
__device__ __forceinline__ void WriteBytes(const RopeWriteParams& p, int slot, int kv_head,
                                           const float (&quads)[kPerLane][4]) {
  const int lane = threadIdx.x % 32, token = slot % kBlockTokens;
  float greatest = 0.0f;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    if (i * 32 + lane >= kHeadDim / 4) break;
#pragma unroll
    for (const float value : quads[i]) greatest = fmaxf(greatest, fabsf(value));
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    greatest = fmaxf(greatest, __shfl_xor_sync(0xffffffffu, greatest, distance));
  const float factor = greatest / GreatestCode(p.format);
  const float inverse = factor > 0.0f ? 1.0f / factor : 0.0f;
  char* head = HeadOf<kHeadDim>(p, slot, kv_head);
  char* tile = kIsKey ? head : head + ByteTileBytes(kHeadDim);
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int quad = i * 32 + lane;
    if (quad >= kHeadDim / 4) break;
    const int at = kIsKey ? ByteKeyOffset<kHeadDim>(token, 4 * quad)
                          : ByteValueOffset<kHeadDim>(token, 4 * quad);
    *reinterpret_cast<uint32_t*>(tile + at) = Encode4(quads[i], inverse, p.format);
  }
  if (lane == 0) {
    reinterpret_cast<float*>(
        head + ByteScalesOffset(kHeadDim))[token + (kIsKey ? 0 : kBlockTokens)] = factor;
  }
}

// Four columns of a head as it lies in qkv, bias included, to the warp's `values`; the sum of their
// squares.
__device__ __forceinline__ float Stage(const RopeWriteParams& p, uint2 packed, int column,
                                       float* values, int head, int head_dim) {
  float four[4];
  Unpack4(packed, four);
  if (p.bias != nullptr) {
    float bias[4];
    Unpack4(*reinterpret_cast<const uint2*>(p.bias + head * head_dim + column), bias);
#pragma unroll
    for (int i = 0; i < 4; ++i) four[i] += bias[i];
  }
  *reinterpret_cast<float4*>(values + column) = {four[0], four[1], four[2], four[3]};
  return four[0] * four[0] + four[1] * four[1] + four[2] * four[2] + four[3] * four[3];
}

// Queries and keys of a row: heads first_head, first_head + kWarps, ..., up to kHeadsAWarp of them,
// all on their way before the first is used. `values` is the warp's.
template <int kHeadDim, bool kIsInBytes>
__device__ void RotateHeads(const RopeWriteParams& p, int64_t row, int first_head, int count,
                            float* values) {
  constexpr int kQuads = kHeadDim / 4;
  constexpr int kPerLane = (kQuads + 31) / 32;
  const int lane = threadIdx.x % 32;
  const int slot = p.cache_slots[row];
  const int half = p.rope_dim / 2;
  const float2* cos_sin = p.cos_sin + int64_t{p.positions[row]} * half;
  bf16* heads = p.qkv + row * (p.num_heads + 2 * p.num_kv_heads) * kHeadDim;
  WaitForPrevious();
  uint2 loaded[kHeadsAWarp][kPerLane];
#pragma unroll
  for (int h = 0; h < kHeadsAWarp; ++h) {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int head = first_head + h * kWarps, quad = i * 32 + lane;
      if (h < count && head < p.num_heads + p.num_kv_heads && quad < kQuads) {
        loaded[h][i] = reinterpret_cast<const uint2*>(heads + head * kHeadDim)[quad];
      }
    }
  }
#pragma unroll
  for (int h = 0; h < kHeadsAWarp; ++h) {
    const int head = first_head + h * kWarps;
    if (h >= count || head >= p.num_heads + p.num_kv_heads) break;
    const bool is_query = head < p.num_heads;
    if (slot < 0 && !is_query) break;
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int quad = i * 32 + lane;
      if (quad < kQuads) sum += Stage(p, loaded[h][i], 4 * quad, values, head, kHeadDim);
    }
    float scale = 1.0f;
    const bf16* norm = is_query ? p.q_norm : p.k_norm;
    if (norm != nullptr) scale = rsqrtf(WarpSum(sum) / kHeadDim + p.epsilon);
    __syncwarp();
    float rotated[kPerLane][4];
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int quad = i * 32 + lane;
      if (quad >= kQuads) break;
      float(&four)[4] = rotated[i];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int column = 4 * quad + j;
        const auto at = [&](int c) {
          return norm == nullptr ? values[c] : values[c] * scale * __bfloat162float(norm[c]);
        };
        four[j] = at(column);
        if (column >= p.rope_dim) continue;
        const bool is_first = column < half;
        const float2 rotation = cos_sin[is_first ? column : column - half];
        const float other = is_first ? -at(column + half) : at(column - half);
        four[j] = four[j] * rotation.x + other * rotation.y;
      }
      if (kIsInBytes && !is_query) continue;
      char* to = is_query ? reinterpret_cast<char*>(heads + head * kHeadDim + 4 * quad)
                          : HeadOf<kHeadDim>(p, slot, head - p.num_heads) +
                                KeyOffset<kHeadDim>(slot % kBlockTokens, 4 * quad);
      *reinterpret_cast<uint2*>(to) = Pack4(four);
    }
    if (kIsInBytes && !is_query) WriteBytes<kHeadDim, true>(p, slot, head - p.num_heads, rotated);
    __syncwarp();
  }
}

// The values of rows [row, row + count) of one head, whose slots follow each other.
template <int kHeadDim>
__device__ void WriteValues(const RopeWriteParams& p, int64_t row, int count, int slot,
                            int kv_head) {
  constexpr int kQuads = kHeadDim / 4;
  const int stride = p.num_heads + 2 * p.num_kv_heads;
  const int head = p.num_heads + p.num_kv_heads + kv_head;
  const bf16* from = p.qkv + (row * stride + head) * kHeadDim;
  char* tile = HeadOf<kHeadDim>(p, slot, kv_head) + TileBytes(kHeadDim);
  const int token = slot % kBlockTokens;
  for (int quad = threadIdx.x % 32; quad < kQuads; quad += 32) {
    float values[kValuesTogether][4];
    float bias[4] = {};
    if (p.bias != nullptr) {
      Unpack4(reinterpret_cast<const uint2*>(p.bias + head * kHeadDim)[quad], bias);
    }
#pragma unroll
    for (int i = 0; i < kValuesTogether; ++i) {
      uint2 packed = {};
      if (i < count) {
        packed = reinterpret_cast<const uint2*>(from + int64_t{i} * stride * kHeadDim)[quad];
      }
      Unpack4(packed, values[i]);
#pragma unroll
      for (int j = 0; j < 4; ++j) values[i][j] += bias[j];
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int column = 4 * quad + j;
      if (count == kValuesTogether) {
        const float eight[8] = {values[0][j], values[1][j], values[2][j], values[3][j],
                                values[4][j], values[5][j], values[6][j], values[7][j]};
        *reinterpret_cast<uint4*>(tile + ValueOffset<kHeadDim>(token, column)) = Pack8(eight);
        continue;
      }
#pragma unroll
      for (int i = 0; i < kValuesTogether; ++i) {
        if (i >= count) break;
        *reinterpret_cast<bf16*>(tile + ValueOffset<kHeadDim>(token + i, column)) =
            __float2bfloat16(values[i][j]);
      }
    }
  }
}

// The value of one row and head, in one byte an element.
template <int kHeadDim>
__device__ void WriteValueBytes(const RopeWriteParams& p, int64_t row, int slot, int kv_head) {
  constexpr int kQuads = kHeadDim / 4;
  constexpr int kPerLane = (kQuads + 31) / 32;
  const int head = p.num_heads + p.num_kv_heads + kv_head;
  const bf16* from = p.qkv + (row * (p.num_heads + 2 * p.num_kv_heads) + head) * kHeadDim;
  float values[kPerLane][4] = {};
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int quad = i * 32 + static_cast<int>(threadIdx.x) % 32;
    if (quad >= kQuads) break;
    Unpack4(reinterpret_cast<const uint2*>(from)[quad], values[i]);
    if (p.bias == nullptr) continue;
    float bias[4];
    Unpack4(reinterpret_cast<const uint2*>(p.bias + head * kHeadDim)[quad], bias);
#pragma unroll
    for (int j = 0; j < 4; ++j) values[i][j] += bias[j];
  }
  WriteBytes<kHeadDim, false>(p, slot, kv_head, values);
}

// The runs of neighbouring slots that begin in the warp's window, none over a multiple of eight.
template <int kHeadDim>
__device__ void WriteWindow(const RopeWriteParams& p, int64_t first, int kv_head) {
  const int lane = threadIdx.x % 32;
  const int64_t looked_at = first - 1 + lane;
  const int slots = lane < kWindow + kValuesTogether && looked_at >= 0 && looked_at < p.num_rows
                        ? p.cache_slots[looked_at]
                        : -2;
  WaitForPrevious();
  for (int i = 0; i < kWindow; ++i) {
    const int slot = __shfl_sync(0xffffffffu, slots, i + 1);
    const int before = __shfl_sync(0xffffffffu, slots, i);
    if (slot < 0 || (slot % kValuesTogether != 0 && slot == before + 1)) continue;
    int count = 1;
    while ((slot + count) % kValuesTogether != 0 &&
           __shfl_sync(0xffffffffu, slots, i + 1 + count) == slot + count) {
      ++count;
    }
    WriteValues<kHeadDim>(p, first + i, count, slot, kv_head);
  }
}

// Blocks along y: of queries and keys, then of values.
template <int kHeadDim, bool kIsInBytes>
__global__ void __launch_bounds__(32 * kWarps)
    RopeWriteKernel(RopeWriteParams p, int heads_a_warp) {
  __shared__ float4 heads[kWarps][kHeadDim / 4];
  LaunchNext();
  const int warp = threadIdx.x / 32;
  const int num_rotated = p.num_heads + p.num_kv_heads;
  const int heads_a_block = kWarps * heads_a_warp;
  const int rotated_blocks = (num_rotated + heads_a_block - 1) / heads_a_block;
  if (static_cast<int>(blockIdx.y) < rotated_blocks) {
    const int first_head = static_cast<int>(blockIdx.y) * heads_a_block + warp;
    RotateHeads<kHeadDim, kIsInBytes>(p, blockIdx.x, first_head, heads_a_warp,
                                      reinterpret_cast<float*>(heads[warp]));
    return;
  }
  const int kv_head = (static_cast<int>(blockIdx.y) - rotated_blocks) * kWarps + warp;
  if (kv_head >= p.num_kv_heads) return;
  if (!kIsInBytes && p.num_rows >= kLongStep) {
    const int64_t first = int64_t{blockIdx.x} * kWindow;
    if (first < p.num_rows) WriteWindow<kHeadDim>(p, first, kv_head);
    return;
  }
  const int slot = p.cache_slots[blockIdx.x];
  WaitForPrevious();
  if (slot < 0) return;
  if constexpr (kIsInBytes) {
    WriteValueBytes<kHeadDim>(p, blockIdx.x, slot, kv_head);
  } else {
    WriteValues<kHeadDim>(p, blockIdx.x, 1, slot, kv_head);
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
  const auto blocks = [](int heads, int heads_a_block) {
    return static_cast<unsigned>((heads + heads_a_block - 1) / heads_a_block);
  };
  const int num_rotated = params.num_heads + params.num_kv_heads;
  // Few rows: many short blocks; many rows: more bytes on their way in each.
  const int heads_a_warp =
      params.num_rows < kManyRows
          ? 1
          : static_cast<int>(std::min(blocks(num_rotated, kWarps), unsigned{kHeadsAWarp}));
  const dim3 grid(params.num_rows,
                  blocks(num_rotated, kWarps * heads_a_warp) + blocks(params.num_kv_heads, kWarps));
  const auto launch = [&](auto kernel, auto bytes_kernel) {
    Launch(params.format == CacheFormat::kBf16 ? kernel : bytes_kernel, grid, 32 * kWarps, 0,
           stream, params, heads_a_warp);
  };
  switch (params.head_dim) {
    case 64:
      return launch(RopeWriteKernel<64, false>, RopeWriteKernel<64, true>);
    case 80:
      return launch(RopeWriteKernel<80, false>, RopeWriteKernel<80, true>);
    case 96:
      return launch(RopeWriteKernel<96, false>, RopeWriteKernel<96, true>);
    case 128:
      return launch(RopeWriteKernel<128, false>, RopeWriteKernel<128, true>);
    case 256:
      return launch(RopeWriteKernel<256, false>, RopeWriteKernel<256, true>);
    case 16:
      return launch(RopeWriteKernel<16, false>, RopeWriteKernel<16, true>);
    case 32:
      return launch(RopeWriteKernel<32, false>, RopeWriteKernel<32, true>);
  }
}

void FillRopeTable(const float* inv_freq, int half_dim, int max_positions, float magnitude,
                   float2* cos_sin, cudaStream_t stream) {
  const int64_t count = int64_t{half_dim} * max_positions;
  RopeTableKernel<<<static_cast<unsigned>((count + 255) / 256), 256, 0, stream>>>(
      inv_freq, half_dim, count, magnitude, cos_sin);
}

}  // namespace nereid::gpu
