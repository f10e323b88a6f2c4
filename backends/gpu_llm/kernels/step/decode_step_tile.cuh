// One KV block of a fused decode step's attention: four warps share its tile, 16 tokens a warp. A
// tile of a bf16 cache is computed as in decode_attention.cu; those of quantized caches follow in
// decode_step_quantized_tile.cuh. Device code only.
#pragma once

#include "backends/gpu_llm/kernels/attention/partial_attention.cuh"
#include "backends/gpu_llm/kernels/step/decode_step_queries.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step {

constexpr int kTileWarps = 4;  // warps that share a KV block; the other four handle the next block
constexpr int kWarpTokens = kBlockTokens / kTileWarps;

// A warp's running sums over the tiles of a unit. A thread has the rows g and g + 8.
template <int kHeadDim>
struct AttentionSums {
  float out[kHeadDim / 8][4] = {};
  float max[2] = {kNegativeInfinity, kNegativeInfinity}, sum[2] = {};
  float unit = 0.0f;  // of `out`, if the cache is quantized
  int end[2];         // the token behind the last that a row sees
};

// Turns the scores of a half of the rows into weights, and scales the sums to a new maximum.
// `scores[j]` are those of tokens first_token + j * kStride and its successor. `change`: of the
// unit of the sums.
template <int kHeadDim, int kStride>
__device__ __forceinline__ void ApplySoftmax(const DecodeStepParams& p, int half, int first_token,
                                             int window, float change, float (&scores)[2][4],
                                             AttentionSums<kHeadDim>& sums) {
  const int end = sums.end[half], begin = window > 0 ? max(0, end - window) : 0;
  float run_max = sums.max[half];
#pragma unroll
  for (int j = 0; j < 2; ++j) {
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      float& score = scores[j][2 * half + b];
      score *= p.attention_scale;
      const int token = first_token + kStride * j + b;
      if (token >= end || token < begin) score = kNegativeInfinity;
      run_max = fmaxf(run_max, score);
    }
  }
  run_max = fmaxf(run_max, __shfl_xor_sync(0xffffffffu, run_max, 1));
  run_max = fmaxf(run_max, __shfl_xor_sync(0xffffffffu, run_max, 2));
  const float base = run_max == kNegativeInfinity ? 0.0f : run_max;
  const float correction = __expf(sums.max[half] - base);
  sums.max[half] = run_max;
  sums.sum[half] *= correction;
  const float rescale = correction * change;
#pragma unroll
  for (int n = 0; n < kHeadDim / 8; ++n)
    sums.out[n][2 * half] *= rescale, sums.out[n][2 * half + 1] *= rescale;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      float& score = scores[j][2 * half + b];
      score = __expf(score - base);
      sums.sum[half] += score;
    }
  }
}

template <int kHeadDim>
__device__ __forceinline__ void LoadKey(const char* tile, int token,
                                        uint32_t (&key)[HeadShape<kHeadDim>::kWords]) {
  using Shape = HeadShape<kHeadDim>;
  const int t = threadIdx.x % 4;
#pragma unroll
  for (int s = 0; s < Shape::kWide; ++s) {
    const uint4 packed =
        *reinterpret_cast<const uint4*>(tile + KeyOffset<kHeadDim>(token, 32 * s + 8 * t));
    key[4 * s] = packed.x, key[4 * s + 1] = packed.y, key[4 * s + 2] = packed.z,
            key[4 * s + 3] = packed.w;
  }
  if constexpr (Shape::kHasRest) {
    const uint2 packed = *reinterpret_cast<const uint2*>(
        tile + KeyOffset<kHeadDim>(token, 32 * Shape::kWide + 4 * t));
    key[4 * Shape::kWide] = packed.x, key[4 * Shape::kWide + 1] = packed.y;
  }
}

// A KV block of a unit, in the ring.
struct UnitTile {
  const AttentionUnit& unit;
  int window;
  bool has_second_half;  // the unit has more than 8 rows of queries
  int index;             // of the block in the sequence
  char* data;
};

// Adds a tile of a bf16 cache to the sums.
template <int kHeadDim>
__device__ __forceinline__ void AddTile(const DecodeStepParams& p, const UnitTile& tile,
                                        const uint32_t (&q)[2][HeadShape<kHeadDim>::kWords],
                                        AttentionSums<kHeadDim>& sums) {
  const int warp = threadIdx.x / 32 % kTileWarps, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  float scores[2][4] = {};
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    uint32_t key[HeadShape<kHeadDim>::kWords];
    LoadKey<kHeadDim>(tile.data, kWarpTokens * warp + 4 * (g / 2) + 2 * j + g % 2, key);
#pragma unroll
    for (int s = 0; s < kHeadDim / 16; ++s) {
      MatrixMultiplyAdd(scores[j], q[0][2 * s], q[1][2 * s], q[0][2 * s + 1], q[1][2 * s + 1],
                        key[2 * s], key[2 * s + 1]);
    }
  }
  const int first_token = tile.index * kBlockTokens + kWarpTokens * warp + 4 * t;
  uint32_t weights[2][2] = {};
  ApplySoftmax<kHeadDim, 2>(p, 0, first_token, tile.window, 1.0f, scores, sums);
  if (tile.has_second_half)
    ApplySoftmax<kHeadDim, 2>(p, 1, first_token, tile.window, 1.0f, scores, sums);
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    weights[0][j] = PackBf16(scores[j][0], scores[j][1]);
    weights[1][j] = tile.has_second_half ? PackBf16(scores[j][2], scores[j][3]) : 0;
  }
  // Visible tokens of the tile. If the warp has others, their values are cleared.
  const int begin = tile.unit.first_visible - tile.index * kBlockTokens;
  const int end = tile.unit.item.length - tile.index * kBlockTokens;
  if (begin > kWarpTokens * warp || end < kWarpTokens * (warp + 1)) {
    ClearValues<kHeadDim, kWarpTokens>(tile.data + TileBytes(kHeadDim), kWarpTokens * warp, begin,
                                       end, threadIdx.x % 32, 32);
    __syncwarp();
  }
#pragma unroll
  for (int n = 0; n < kHeadDim / 8; ++n) {
    const uint2 values = *reinterpret_cast<const uint2*>(
        tile.data + TileBytes(kHeadDim) +
        ValueOffset<kHeadDim>(kWarpTokens * warp + 4 * t, 8 * n + g));
    MatrixMultiplyAdd(sums.out[n], weights[0][0], weights[1][0], weights[0][1], weights[1][1],
                      values.x, values.y);
  }
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step
