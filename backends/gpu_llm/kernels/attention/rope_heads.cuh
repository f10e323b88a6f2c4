// Queries and keys of rope.cu: biases, per-head norms and rotation. Queries are written back, keys
// go to the cache. A head is spread over head_dim / 16 lanes. A lane has two chunks of eight
// adjacent columns, 16 bytes each, which rotate with each other, and it keeps the angles of its
// columns for all heads of a row. One pass of a warp handles several heads. Device code only.
#pragma once

#include "backends/gpu_llm/kernels/attention/rope_cache.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::rope {

constexpr int kChunkColumns = 8;  // 16 bytes

template <int kHeadDim>
struct HeadLanes {
  static constexpr int kCount = kHeadDim / (2 * kChunkColumns);
  static constexpr int kHeads = 32 / kCount;  // of a pass; some lanes may be unused

  // Reduces over a head's lanes; all of them get the result. Called by the whole warp.
  template <typename Join>
  static __device__ __forceinline__ float Reduce(float value, Join join) {
    if constexpr ((kCount & (kCount - 1)) == 0) {
#pragma unroll
      for (int distance = kCount / 2; distance > 0; distance /= 2)
        value = join(value, __shfl_xor_sync(0xffffffffu, value, distance));
      return value;
    } else {
      const int first = static_cast<int>(threadIdx.x) % 32 / kCount * kCount;
      float all = __shfl_sync(0xffffffffu, value, first);
#pragma unroll
      for (int i = 1; i < kCount; ++i)
        all = join(all, __shfl_sync(0xffffffffu, value, min(first + i, 31)));
      return all;
    }
  }
};

// A lane's part of one head.
struct HeadChunks {
  int low, high;  // first columns
  float values[2][kChunkColumns];

  __device__ __forceinline__ int column(int chunk, int i) const {
    return (chunk == 0 ? low : high) + i;
  }
};

// Rotation for a rope_dim whose halves do not begin at a chunk: each column's partner is loaded
// again. The head is written only after all lanes have read.
template <int kHeadDim>
__device__ void RotateColumns(const RopeWriteParams& p, int64_t row, int head, const bf16* norm,
                              float scale, HeadChunks& chunks) {
  const int half = p.rope_dim / 2;
  const float2* cos_sin = p.cos_sin + int64_t{p.positions[row]} * half;
  const bf16* from = p.qkv + (row * RowHeads(p) + head) * kHeadDim;
#pragma unroll
  for (int chunk = 0; chunk < 2; ++chunk) {
#pragma unroll
    for (int i = 0; i < kChunkColumns; ++i) {
      const int column = chunks.column(chunk, i);
      if (column >= p.rope_dim) continue;
      const bool is_first = column < half;
      const int at = is_first ? column + half : column - half;
      float other = __bfloat162float(from[at]);
      if (p.bias != nullptr) other += __bfloat162float(p.bias[head * kHeadDim + at]);
      if (norm != nullptr) other *= scale * __bfloat162float(norm[at]);
      const float2 rotation = cos_sin[is_first ? column : at];
      float& value = chunks.values[chunk][i];
      value = value * rotation.x + (is_first ? -other : other) * rotation.y;
    }
  }
}

// Writes a query back, or a key to the cache. Called by the whole warp; lanes with `is_valid` false
// store nothing.
template <int kHeadDim, bool kIsQuantized>
__device__ __forceinline__ void StoreHead(const RopeWriteParams& p, int64_t row, int slot, int head,
                                          const HeadChunks& chunks, bool is_valid) {
  const bool is_query = head < p.num_heads;
  const int kv_head = head - p.num_heads;
  float inverse = 0.0f;
  if constexpr (kIsQuantized) {
    float max_magnitude = 0.0f;
#pragma unroll
    for (const auto& chunk : chunks.values) {
#pragma unroll
      for (const float value : chunk) max_magnitude = fmaxf(max_magnitude, fabsf(value));
    }
    max_magnitude =
        HeadLanes<kHeadDim>::Reduce(max_magnitude, [](float a, float b) { return fmaxf(a, b); });
    const bool is_key = is_valid && !is_query && slot >= 0;
    if (is_key)
      inverse = WriteScale<kHeadDim, true>(p, slot, kv_head, max_magnitude, chunks.low == 0);
  }
  if (!is_valid || (!is_query && slot < 0)) return;
  const int token = slot % kBlockTokens;
#pragma unroll
  for (int chunk = 0; chunk < 2; ++chunk) {
    const int column = chunks.column(chunk, 0);
    const float(&values)[kChunkColumns] = chunks.values[chunk];
    if (is_query) {
      bf16* to = p.qkv + (row * RowHeads(p) + head) * kHeadDim + column;
      *reinterpret_cast<uint4*>(to) = Pack8(values);
    } else if constexpr (kIsQuantized) {
      char* to = HeadOf<kHeadDim>(p, slot, kv_head) + QuantizedKeyOffset<kHeadDim>(token, column);
      const float first[4] = {values[0], values[1], values[2], values[3]};
      const float second[4] = {values[4], values[5], values[6], values[7]};
      *reinterpret_cast<uint2*>(to) = {Encode4(first, inverse, p.format),
                                       Encode4(second, inverse, p.format)};
    } else {
      char* to = HeadOf<kHeadDim>(p, slot, kv_head) + KeyOffset<kHeadDim>(token, column);
      *reinterpret_cast<uint4*>(to) = Pack8(values);
    }
  }
}

// Handles `count` passes over the queries and keys of a row. All loads are issued before the first
// is used. Only one pass if rope_dim's halves do not begin at a chunk.
template <int kHeadDim, bool kIsQuantized, int kMaxPasses>
__device__ void RotateHeads(const RopeWriteParams& p, int64_t row, int first_pass, int count) {
  using Lanes = HeadLanes<kHeadDim>;
  const int lane = threadIdx.x % 32, in_head = lane % Lanes::kCount;
  const int half = p.rope_dim / 2, num_rotated = p.num_heads + p.num_kv_heads;
  const bool is_whole = half % kChunkColumns == 0;
  const bool rotates = is_whole && in_head * kChunkColumns < half;
  HeadChunks chunks;
  chunks.low = in_head * kChunkColumns * (rotates ? 1 : 2);
  chunks.high = chunks.low + (rotates ? half : kChunkColumns);
  const int slot = p.cache_slots[row];
  float2 rotation[kChunkColumns] = {};
  if (rotates) {
    const float2* from = p.cos_sin + int64_t{p.positions[row]} * half + chunks.low;
#pragma unroll
    for (int i = 0; i < kChunkColumns; i += 2) {
      const float4 two = *reinterpret_cast<const float4*>(from + i);
      rotation[i] = {two.x, two.y}, rotation[i + 1] = {two.z, two.w};
    }
  }
  const auto head_of = [&](int pass) {
    return (first_pass + pass) * Lanes::kHeads + lane / Lanes::kCount;
  };
  const bool is_unused_lane = lane / Lanes::kCount >= Lanes::kHeads;
  WaitForPrevious();
  uint4 loaded[kMaxPasses][2];
#pragma unroll
  for (int pass = 0; pass < kMaxPasses; ++pass) {
    loaded[pass][0] = loaded[pass][1] = {};
    if (pass >= count || is_unused_lane || head_of(pass) >= num_rotated) continue;
    const bf16* from = p.qkv + (row * RowHeads(p) + head_of(pass)) * kHeadDim;
    loaded[pass][0] = *reinterpret_cast<const uint4*>(from + chunks.low);
    loaded[pass][1] = *reinterpret_cast<const uint4*>(from + chunks.high);
  }
#pragma unroll
  for (int pass = 0; pass < kMaxPasses; ++pass) {
    if (pass >= count) break;
    const bool is_valid = !is_unused_lane && head_of(pass) < num_rotated;
    const int head = is_valid ? head_of(pass) : 0;
#pragma unroll
    for (int chunk = 0; chunk < 2; ++chunk) {
      Unpack8(loaded[pass][chunk], chunks.values[chunk]);
      if (p.bias == nullptr) continue;
      float biases[kChunkColumns];
      Unpack8(*reinterpret_cast<const uint4*>(p.bias + head * kHeadDim + chunks.column(chunk, 0)),
              biases);
#pragma unroll
      for (int i = 0; i < kChunkColumns; ++i) chunks.values[chunk][i] += biases[i];
    }
    const bf16* norm = head < p.num_heads ? p.q_norm : p.k_norm;
    float scale = 1.0f;
    if (p.q_norm != nullptr || p.k_norm != nullptr) {
      float sum = 0.0f;
#pragma unroll
      for (const auto& chunk : chunks.values) {
#pragma unroll
        for (const float value : chunk) sum += value * value;
      }
      sum = Lanes::Reduce(sum, [](float a, float b) { return a + b; });
      scale = rsqrtf(sum / kHeadDim + p.epsilon);
    }
#pragma unroll
    for (int chunk = 0; chunk < 2 && norm != nullptr; ++chunk) {
      float weights[kChunkColumns];
      Unpack8(*reinterpret_cast<const uint4*>(norm + chunks.column(chunk, 0)), weights);
#pragma unroll
      for (int i = 0; i < kChunkColumns; ++i) chunks.values[chunk][i] *= scale * weights[i];
    }
    if (rotates) {
#pragma unroll
      for (int i = 0; i < kChunkColumns; ++i) {
        const float low = chunks.values[0][i], high = chunks.values[1][i];
        chunks.values[0][i] = low * rotation[i].x - high * rotation[i].y;
        chunks.values[1][i] = high * rotation[i].x + low * rotation[i].y;
      }
    }
    if constexpr (kMaxPasses == 1) {
      if (!is_whole) {
        if (is_valid) RotateColumns<kHeadDim>(p, row, head, norm, scale, chunks);
        __syncwarp();
      }
    }
    StoreHead<kHeadDim, kIsQuantized>(p, row, slot, head, chunks, is_valid);
  }
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::rope
