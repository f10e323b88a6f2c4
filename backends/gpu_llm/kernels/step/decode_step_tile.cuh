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

// A warp's running sums over the tiles of a unit, of 8 queries. Lane 4 g + t has queries 2 t and
// 2 t + 1.
template <int kHeadDim>
struct QuerySums {
  static constexpr int kSteps = kHeadDim / 16;
  // Sums of values: out[s] has two columns of the head, and its elements i and 2 + i belong to
  // query 2 t + i.
  float out[kSteps][4] = {};
  float max[2] = {kNegativeInfinity, kNegativeInfinity}, sum[2] = {};
  int end[2];  // the token behind the last that a query sees

  // Turns scores [token][query] of tokens `token` and `token` + 8, without their scale, into the
  // weights of values. Scales the sums to a new maximum, and those of values also by `change`.
  template <bool kMayCap>
  __device__ __forceinline__ void ApplySoftmax(const DecodeStepParams& p, const UnitTile& tile,
                                               int token, float change, float (&scores)[2][2]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int begin = tile.Begin(end[i]);
      float new_max = max[i];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float& score = scores[j][i];
        score *= p.attention_scale;
        if (kMayCap && p.soft_cap > 0.0f) score = SoftCapped(score, p.soft_cap);
        if (token + 8 * j >= end[i] || token + 8 * j < begin) score = kNegativeInfinity;
        new_max = fmaxf(new_max, score);
      }
#pragma unroll
      for (int other = 4; other < 32; other *= 2)
        new_max = fmaxf(new_max, __shfl_xor_sync(0xffffffffu, new_max, other));
      const float base = new_max == kNegativeInfinity ? 0.0f : new_max;
      const float correction = __expf(max[i] - base);
      max[i] = new_max;
      sum[i] *= correction;
      const float factor = correction * change;
#pragma unroll
      for (int s = 0; s < kSteps; ++s) out[s][i] *= factor, out[s][2 + i] *= factor;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        scores[j][i] = __expf(scores[j][i] - base);
        sum[i] += scores[j][i];
      }
    }
  }

  // Stores the sums of the first `num_rows` queries in shared memory, from `to` on:
  // PartialStride() floats for each query, as CombineWarpPartials() reads them. column_of(s, j)
  // returns which column of the head the j-th column of out[s] is. The sums of values are
  // multiplied by `unit`.
  template <typename ColumnOf>
  __device__ __forceinline__ void Store(int lane, int num_rows, float unit,
                                        const ColumnOf& column_of, float* to) const {
    const int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float whole = sum[i];
#pragma unroll
      for (int other = 4; other < 32; other *= 2)
        whole += __shfl_xor_sync(0xffffffffu, whole, other);
      if (2 * t + i >= num_rows) continue;
      float* const row = to + (2 * t + i) * PartialStride(kHeadDim);
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        row[column_of(s, 0)] = out[s][i] * unit;
        row[column_of(s, 1)] = out[s][2 + i] * unit;
      }
      if (g == 0) row[kHeadDim] = max[i], row[kHeadDim + 1] = whole;
    }
  }
};

// The queries of a unit and a warp's running sums, for a bf16 cache. kHalves is 1 where a unit has
// at most 8 queries, and else 2. kMayCap: scores may have a soft cap.
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
      // Rows behind the last query hold arbitrary values, which change no result of another query.
      rows_[half] = SharedAddress(heads.Query(half * kHalfRows + lane % 8));
      if constexpr (kKeepsQueries) {
#pragma unroll
        for (int s = 0; s < kSteps; s += 2) {
          const uint4 words = LoadQueries(half, s);
          q_[half][s][0] = words.x, q_[half][s][1] = words.y;
          if (s + 1 < kSteps) q_[half][s + 1][0] = words.z, q_[half][s + 1][1] = words.w;
        }
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int query = half * kHalfRows + 2 * t + i;
        sums_[half].end[i] = queries.End(min(query, queries.count() - 1));
      }
    }
  }

  // Adds this warp's tokens of a tile to the sums.
  __device__ __forceinline__ void Add(const DecodeStepParams& p, const UnitTile& tile) {
    has_second_half_ ? Add<kHalves>(p, tile) : Add<1>(p, tile);
  }

  // Stores the warp's sums for the first `num_rows` queries of a half, as QuerySums::Store().
  __device__ __forceinline__ void Store(int half, int num_rows, float* to) const {
    const int lane = thread_ % 32;
    sums_[half].Store(
        lane, num_rows, 1.0f, [&](int s, int i) { return 16 * s + 8 * i + lane / 4; }, to);
  }

 private:
  static constexpr int kSteps = kHeadDim / 16;
  // Whether queries stay in registers. Those of wide heads would be spilled, and those of two
  // halves where the form has too few registers, so that each tile reads them from shared memory.
  static constexpr bool kKeepsQueries =
      kHeadDim <= kWideHeadDim && (kHalves == 1 || kKeepsQueriesOfTwoHalves || kSteps % 2 != 0);

  // Columns [16 s, + 32) of a half's queries, which two products read.
  __device__ __forceinline__ uint4 LoadQueries(int half, int s) const {
    const int column = min(16 * s + thread_ % 32 / 8 * 8, kHeadDim - 8);
    return LoadMatrices(rows_[half] + 2 * column);
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
    const auto keys_of = [&](int s) {
      return LoadMatrices(
          SharedAddress(tile.data + KeyOffset<kHeadDim>(warp_token + row, 16 * s + chunk)));
    };
    if constexpr (kKeepsQueries) {
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        const uint4 keys = keys_of(s);
#pragma unroll
        for (int half = 0; half < kUsed; ++half) {
          MatrixMultiplyAdd(scores[half][s % 2], keys.x, keys.y, keys.z, keys.w, q_[half][s][0],
                            q_[half][s][1]);
        }
      }
    } else {
#pragma unroll 4  // a loop without branches spills registers
      for (int s = 0; s < kSteps; s += 2) {
        const uint4 keys = keys_of(s), next_keys = keys_of(s + 1);
#pragma unroll
        for (int half = 0; half < kUsed; ++half) {
          const uint4 q = LoadQueries(half, s);
          MatrixMultiplyAdd(scores[half][0], keys.x, keys.y, keys.z, keys.w, q.x, q.y);
          MatrixMultiplyAdd(scores[half][1], next_keys.x, next_keys.y, next_keys.z, next_keys.w,
                            q.z, q.w);
        }
      }
    }
    uint32_t weights[kUsed][2] = {};
#pragma unroll
    for (int half = 0; half < kUsed; ++half) {
      float of_tokens[2][2];  // [token][query]
#pragma unroll
      for (int j = 0; j < 4; ++j) of_tokens[j / 2][j % 2] = scores[half][0][j] + scores[half][1][j];
      sums_[half].template ApplySoftmax<kMayCap>(
          p, tile, tile.index * kBlockTokens + warp_token + lane / 4, 1.0f, of_tokens);
#pragma unroll
      for (int j = 0; j < 2; ++j)
        weights[half][j] = TransposeMatrix(PackBf16(of_tokens[j][0], of_tokens[j][1]));
    }
    // Values of tokens that no query sees may be NaN, and a product of NaN and a weight of 0 is
    // NaN. So these values are replaced by 0.
    const int begin = tile.unit.first_visible - tile.index * kBlockTokens - warp_token;
    const int end = tile.unit.item.length - tile.index * kBlockTokens - warp_token;
    const auto mask = [&](int token) {
      return (token >= begin && token < end ? 0xffffu : 0u) |
             (token + 1 >= begin && token + 1 < end ? 0xffff0000u : 0u);
    };
    const uint32_t first_mask = mask(lane % 4 * 2), second_mask = mask(8 + lane % 4 * 2);
    const char* const values = tile.data + TileBytes(kHeadDim);
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const uint4 columns = LoadMatrices(
          SharedAddress(values + ValueOffset<kHeadDim>(warp_token + chunk, 16 * s + row)));
#pragma unroll
      for (int half = 0; half < kUsed; ++half) {
        MatrixMultiplyAdd(sums_[half].out[s], columns.x & first_mask, columns.y & first_mask,
                          columns.z & second_mask, columns.w & second_mask, weights[half][0],
                          weights[half][1]);
      }
    }
  }

  uint32_t q_[kHalves][kSteps][2];
  uint32_t rows_[kHalves];  // shared address of the query whose columns this lane loads
  QuerySums<kHeadDim> sums_[kHalves];
  int thread_;
  bool has_second_half_;
};

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step
