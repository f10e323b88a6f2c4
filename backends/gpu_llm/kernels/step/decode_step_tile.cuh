// One KV block of a fused decode step's attention: four warps share its tile, 16 tokens a warp.
// This file has tiles of a bf16 cache; those of quantized caches follow in
// decode_step_quantized_tile.cuh.
//
// Keys and values are operand a of the mma: its 16 rows are tokens of the keys, or columns of the
// values. Queries are the 8 columns of operand b, so that few queries leave few of them unused.
// Device code only.
#pragma once

#include "backends/gpu_llm/kernels/attention/partial_attention.cuh"
#include "backends/gpu_llm/kernels/device/operand_loads.cuh"
#include "backends/gpu_llm/kernels/device/soft_cap.cuh"
#include "backends/gpu_llm/kernels/step/decode_step_queries.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step {

constexpr int kTileWarps = 4;  // warps that share a KV block; the other four handle the next block
constexpr int kWarpTokens = kBlockTokens / kTileWarps;
constexpr int kHalfRows = kItemRows / 2;  // queries are handled in two halves
static_assert(kWarpTokens == 16 && kHalfRows == 8);

// A KV block of a unit, in the ring.
struct UnitTile {
  const AttentionUnit& unit;
  int window;
  int index;  // of the block in the sequence
  char* data;

  // Returns the first token that a query sees. The last one is `end` - 1.
  __device__ __forceinline__ int Begin(int end) const {
    return window > 0 ? max(0, end - window) : 0;
  }
};

// Transposes a matrix of 8 x 8 elements of 16 bits, of which a lane has two adjacent ones.
__device__ __forceinline__ uint32_t TransposeMatrix(uint32_t words) {
  uint32_t to;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(to) : "r"(words));
  return to;
}

// Queries of a unit and a warp's running sums over the unit's tiles, for a bf16 cache. Lane 4 g + t
// has queries 2 t and 2 t + 1 of each half. kHalves: 1: the unit has at most 8 queries. kMayCap:
// scores may have a soft cap.
template <int kHeadDim, int kHalves, bool kMayCap>
class Bf16Tiles {
 public:
  template <typename Queries>
  __device__ __forceinline__ void LoadQueries(const UnitHeads<kHeadDim>& heads,
                                              const Queries& queries, int thread) {
    thread_ = thread;
    const int lane = thread_ % 32, t = lane % 4;
    has_second_half_ = kHalves == 2 && queries.count() > kHalfRows;
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      // Queries that do not exist have any values, and change no other ones.
      rows_[half] = SharedAddress(heads.Query(half * kHalfRows + lane % 8));
      if constexpr (kKeepsQueries) {
#pragma unroll
        for (int s = 0; s < kSteps; s += 2) LoadQueries(half, s, q_[half]);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int query = half * kHalfRows + 2 * t + i;
        end_[half][i] = queries.End(min(query, queries.count() - 1));
        max_[half][i] = kNegativeInfinity;
      }
    }
  }

  // Adds this warp's tokens of a tile to the sums.
  __device__ __forceinline__ void Add(const DecodeStepParams& p, const UnitTile& tile) {
    has_second_half_ ? Add<kHalves>(p, tile) : Add<1>(p, tile);
  }

  // Stores the warp's sums for the first `num_rows` queries of a half in shared memory, from `to`
  // on: PartialStride() floats for each query, as CombineWarpPartials() reads them.
  __device__ __forceinline__ void Store(int half, int num_rows, float* to) const {
    const int lane = thread_ % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float sum = sum_[half][i];
#pragma unroll
      for (int other = 4; other < 32; other *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, other);
      if (2 * t + i >= num_rows) continue;
      float* const row = to + (2 * t + i) * PartialStride(kHeadDim);
#pragma unroll
      for (int s = 0; s < kSteps; ++s)
        row[16 * s + g] = out_[half][s][i], row[16 * s + 8 + g] = out_[half][s][2 + i];
      if (g == 0) row[kHeadDim] = max_[half][i], row[kHeadDim + 1] = sum;
    }
  }

 private:
  static constexpr int kSteps = kHeadDim / 16;
  // In registers. Wide ones would be spilled, and are read from shared memory for each tile.
  static constexpr bool kKeepsQueries = kHeadDim <= kWideHeadDim;

  // Loads columns [16 s, + 32) of a half's queries, which two products read.
  __device__ __forceinline__ void LoadQueries(int half, int s, uint32_t (&q)[kSteps][2]) const {
    const int column = min(16 * s + thread_ % 32 / 8 * 8, kHeadDim - 8);
    const uint4 words = LoadMatrices(rows_[half] + 2 * column);
    q[s][0] = words.x, q[s][1] = words.y;
    if (s + 1 < kSteps) q[s + 1][0] = words.z, q[s + 1][1] = words.w;
  }
  // Adds this warp's tokens of a tile to the sums of the queries in the first kUsed halves.
  template <int kUsed>
  __device__ __forceinline__ void Add(const DecodeStepParams& p, const UnitTile& tile) {
    const int thread = thread_, lane = thread % 32;
    const int warp_token = thread / 32 % kTileWarps * kWarpTokens;
    // The row of a matrix that this lane loads; matrices 1 and 3 have the last 8 rows of operand a,
    // 2 and 3 the last 8 columns.
    const int row = lane % 16, chunk = lane / 16 * 8;
    float scores[kUsed][2][4] = {};  // two sums, so that products do not wait for each other
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const uint4 keys = LoadMatrices(
          SharedAddress(tile.data + KeyOffset<kHeadDim>(warp_token + row, 16 * s + chunk)));
#pragma unroll
      for (int half = 0; half < kUsed; ++half) {
        if (!kKeepsQueries && s % 2 == 0) LoadQueries(half, s, q_[half]);
        MatrixMultiplyAdd(scores[half][s % 2], keys.x, keys.y, keys.z, keys.w, q_[half][s][0],
                          q_[half][s][1]);
      }
    }
    uint32_t weights[kUsed][2] = {};
#pragma unroll
    for (int half = 0; half < kUsed; ++half) {
      ApplySoftmax(p, tile, half, tile.index * kBlockTokens + warp_token + lane / 4, scores[half],
                   weights[half]);
    }
    // Visible tokens of the tile. If the warp has others, their values are cleared.
    const int begin = tile.unit.first_visible - tile.index * kBlockTokens;
    const int end = tile.unit.item.length - tile.index * kBlockTokens;
    char* const values = tile.data + TileBytes(kHeadDim);
    if (begin > warp_token || end < warp_token + kWarpTokens) {
      ClearValues<kHeadDim, kWarpTokens>(values, warp_token, begin, end, lane, 32);
      __syncwarp();
    }
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const uint4 columns = LoadMatrices(
          SharedAddress(values + ValueOffset<kHeadDim>(warp_token + chunk, 16 * s + row)));
#pragma unroll
      for (int half = 0; half < kUsed; ++half) {
        MatrixMultiplyAdd(out_[half][s], columns.x, columns.y, columns.z, columns.w,
                          weights[half][0], weights[half][1]);
      }
    }
  }

  // Turns scores of tokens `token` and `token` + 8 into the weights of the product with values, and
  // scales the sums to a new maximum.
  __device__ __forceinline__ void ApplySoftmax(const DecodeStepParams& p, const UnitTile& tile,
                                               int half, int token, float (&scores)[2][4],
                                               uint32_t (&weights)[2]) {
    float of_tokens[2][2];  // [token][query]
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int end = end_[half][i], begin = tile.Begin(end);
      float max = max_[half][i];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float score = (scores[0][2 * j + i] + scores[1][2 * j + i]) * p.attention_scale;
        if (kMayCap && p.soft_cap > 0.0f) score = SoftCapped(score, p.soft_cap);
        if (token + 8 * j >= end || token + 8 * j < begin) score = kNegativeInfinity;
        max = fmaxf(max, score);
        of_tokens[j][i] = score;
      }
#pragma unroll
      for (int other = 4; other < 32; other *= 2)
        max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, other));
      const float base = max == kNegativeInfinity ? 0.0f : max;
      const float correction = __expf(max_[half][i] - base);
      max_[half][i] = max;
      sum_[half][i] *= correction;
#pragma unroll
      for (int s = 0; s < kSteps; ++s)
        out_[half][s][i] *= correction, out_[half][s][2 + i] *= correction;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        of_tokens[j][i] = __expf(of_tokens[j][i] - base);
        sum_[half][i] += of_tokens[j][i];
      }
    }
#pragma unroll
    for (int j = 0; j < 2; ++j)
      weights[j] = TransposeMatrix(PackBf16(of_tokens[j][0], of_tokens[j][1]));
  }

  uint32_t q_[kHalves][kSteps][2];
  uint32_t rows_[kHalves];  // shared address of the query whose columns this lane loads
  float out_[kHalves][kSteps][4] = {};
  float max_[kHalves][2], sum_[kHalves][2] = {};
  int end_[kHalves][2];  // the token behind the last that a query sees
  int thread_;
  bool has_second_half_;
};

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step
