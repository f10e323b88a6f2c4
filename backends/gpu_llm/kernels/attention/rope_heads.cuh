// Queries and keys of rope.cu: biases, norms of single heads, rotation; queries go back to where
// they came from, keys to the cache. A head is spread over head_dim / 16 lanes. A lane has two
// pieces of eight neighbouring columns, 16 bytes each, which rotate with each other, and the angles
// of its columns for all heads of a row; so one pass of a warp is several heads. Device code alone.
#pragma once

#include "backends/gpu_llm/kernels/attention/rope_cache.cuh"

namespace nereid::gpu::rope {

constexpr int kPieceColumns = 8;  // 16 bytes

template <int kHeadDim>
struct HeadLanes {
  static constexpr int kCount = kHeadDim / (2 * kPieceColumns);
  static constexpr int kHeads = 32 / kCount;  // of a pass; lanes may be left over

  // Of a head's lanes, known to all of them; the whole warp calls.
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

// What a lane has of one head.
struct Pieces {
  int low, high;  // first columns
  float values[2][kPieceColumns];

  __device__ __forceinline__ int column(int piece, int i) const {
    return (piece == 0 ? low : high) + i;
  }
};

// Where the halves that rotate with each other do not begin with whole pieces: the other value of
// each column is read again. The head is not written before all have read.
template <int kHeadDim>
__device__ void RotateColumns(const RopeWriteParams& p, int64_t row, int head, const bf16* norm,
                              float scale, Pieces& pieces) {
  const int half = p.rope_dim / 2;
  const float2* cos_sin = p.cos_sin + int64_t{p.positions[row]} * half;
  const bf16* from = p.qkv + (row * RowHeads(p) + head) * kHeadDim;
#pragma unroll
  for (int piece = 0; piece < 2; ++piece) {
#pragma unroll
    for (int i = 0; i < kPieceColumns; ++i) {
      const int column = pieces.column(piece, i);
      if (column >= p.rope_dim) continue;
      const bool is_first = column < half;
      const int at = is_first ? column + half : column - half;
      float other = __bfloat162float(from[at]);
      if (p.bias != nullptr) other += __bfloat162float(p.bias[head * kHeadDim + at]);
      if (norm != nullptr) other *= scale * __bfloat162float(norm[at]);
      const float2 rotation = cos_sin[is_first ? column : at];
      float& value = pieces.values[piece][i];
      value = value * rotation.x + (is_first ? -other : other) * rotation.y;
    }
  }
}

// A query to where it came from, a key to the cache. The whole warp calls; `is_there`: for real.
template <int kHeadDim, bool kIsInBytes>
__device__ __forceinline__ void StoreHead(const RopeWriteParams& p, int64_t row, int slot, int head,
                                          const Pieces& pieces, bool is_there) {
  const bool is_query = head < p.num_heads;
  const int kv_head = head - p.num_heads;
  float inverse = 0.0f;
  if constexpr (kIsInBytes) {
    float greatest = 0.0f;
#pragma unroll
    for (const auto& piece : pieces.values) {
#pragma unroll
      for (const float value : piece) greatest = fmaxf(greatest, fabsf(value));
    }
    greatest = HeadLanes<kHeadDim>::Reduce(greatest, [](float a, float b) { return fmaxf(a, b); });
    const bool is_key = is_there && !is_query && slot >= 0;
    if (is_key) inverse = WriteFactor<kHeadDim, true>(p, slot, kv_head, greatest, pieces.low == 0);
  }
  if (!is_there || (!is_query && slot < 0)) return;
  const int token = slot % kBlockTokens;
#pragma unroll
  for (int piece = 0; piece < 2; ++piece) {
    const int column = pieces.column(piece, 0);
    const float(&values)[kPieceColumns] = pieces.values[piece];
    if (is_query) {
      bf16* to = p.qkv + (row * RowHeads(p) + head) * kHeadDim + column;
      *reinterpret_cast<uint4*>(to) = Pack8(values);
    } else if constexpr (kIsInBytes) {
      char* to = HeadOf<kHeadDim>(p, slot, kv_head) + ByteKeyOffset<kHeadDim>(token, column);
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

// Queries and keys of a row, `count` passes of them, all on their way before the first is used;
// one pass where halves are no whole pieces.
template <int kHeadDim, bool kIsInBytes, int kMaxPasses>
__device__ void RotateHeads(const RopeWriteParams& p, int64_t row, int first_pass, int count) {
  using Lanes = HeadLanes<kHeadDim>;
  const int lane = threadIdx.x % 32, in_head = lane % Lanes::kCount;
  const int half = p.rope_dim / 2, num_rotated = p.num_heads + p.num_kv_heads;
  const bool is_whole = half % kPieceColumns == 0;
  const bool rotates = is_whole && in_head * kPieceColumns < half;
  Pieces pieces;
  pieces.low = in_head * kPieceColumns * (rotates ? 1 : 2);
  pieces.high = pieces.low + (rotates ? half : kPieceColumns);
  const int slot = p.cache_slots[row];
  float2 rotation[kPieceColumns] = {};
  if (rotates) {
    const float2* from = p.cos_sin + int64_t{p.positions[row]} * half + pieces.low;
#pragma unroll
    for (int i = 0; i < kPieceColumns; i += 2) {
      const float4 two = *reinterpret_cast<const float4*>(from + i);
      rotation[i] = {two.x, two.y}, rotation[i + 1] = {two.z, two.w};
    }
  }
  const auto head_of = [&](int pass) {
    return (first_pass + pass) * Lanes::kHeads + lane / Lanes::kCount;
  };
  const bool is_left_over = lane / Lanes::kCount >= Lanes::kHeads;
  WaitForPrevious();
  uint4 loaded[kMaxPasses][2];
#pragma unroll
  for (int pass = 0; pass < kMaxPasses; ++pass) {
    loaded[pass][0] = loaded[pass][1] = {};
    if (pass >= count || is_left_over || head_of(pass) >= num_rotated) continue;
    const bf16* from = p.qkv + (row * RowHeads(p) + head_of(pass)) * kHeadDim;
    loaded[pass][0] = *reinterpret_cast<const uint4*>(from + pieces.low);
    loaded[pass][1] = *reinterpret_cast<const uint4*>(from + pieces.high);
  }
#pragma unroll
  for (int pass = 0; pass < kMaxPasses; ++pass) {
    if (pass >= count) break;
    const bool is_there = !is_left_over && head_of(pass) < num_rotated;
    const int head = is_there ? head_of(pass) : 0;
#pragma unroll
    for (int piece = 0; piece < 2; ++piece) {
      Unpack8(loaded[pass][piece], pieces.values[piece]);
      if (p.bias == nullptr) continue;
      float biases[kPieceColumns];
      Unpack8(*reinterpret_cast<const uint4*>(p.bias + head * kHeadDim + pieces.column(piece, 0)),
              biases);
#pragma unroll
      for (int i = 0; i < kPieceColumns; ++i) pieces.values[piece][i] += biases[i];
    }
    const bf16* norm = head < p.num_heads ? p.q_norm : p.k_norm;
    float scale = 1.0f;
    if (p.q_norm != nullptr || p.k_norm != nullptr) {
      float sum = 0.0f;
#pragma unroll
      for (const auto& piece : pieces.values) {
#pragma unroll
        for (const float value : piece) sum += value * value;
      }
      sum = Lanes::Reduce(sum, [](float a, float b) { return a + b; });
      scale = rsqrtf(sum / kHeadDim + p.epsilon);
    }
#pragma unroll
    for (int piece = 0; piece < 2 && norm != nullptr; ++piece) {
      float weights[kPieceColumns];
      Unpack8(*reinterpret_cast<const uint4*>(norm + pieces.column(piece, 0)), weights);
#pragma unroll
      for (int i = 0; i < kPieceColumns; ++i) pieces.values[piece][i] *= scale * weights[i];
    }
    if (rotates) {
#pragma unroll
      for (int i = 0; i < kPieceColumns; ++i) {
        const float low = pieces.values[0][i], high = pieces.values[1][i];
        pieces.values[0][i] = low * rotation[i].x - high * rotation[i].y;
        pieces.values[1][i] = high * rotation[i].x + low * rotation[i].y;
      }
    }
    if constexpr (kMaxPasses == 1) {
      if (!is_whole) {
        if (is_there) RotateColumns<kHeadDim>(p, row, head, norm, scale, pieces);
        __syncwarp();
      }
    }
    StoreHead<kHeadDim, kIsInBytes>(p, row, slot, head, pieces, is_there);
  }
}

}  // namespace nereid::gpu::rope
