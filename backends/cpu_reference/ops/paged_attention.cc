// Scores by blocks of 16 keys, softmax, weighted sum of values. Queries go in groups of four, so
// that a key or value once loaded serves all of them.
#include "cpu_reference/ops/paged_attention.h"

#include "cpu_reference/ops/simd.h"

namespace nereid::cpu::NEREID_ISA {
namespace {

constexpr int kVectorsPerBlock = kBlockSize / kLanes;
constexpr float kHidden = -3.0e38f;

struct Range {
  int32_t first_block, last_block;  // blocks [first, last)
  int32_t first, last;              // positions [first, last)
};

// Raw scores of G queries against one block, to scratch.
template <int G>
NEREID_INLINE void ScoreBlock(const PagedAttentionParams& p, int32_t query, int32_t block,
                              int64_t stride) {
  const float* keys = p.cache.KeyBlock(p.block_table[block], p.kv_head);
  const float* q = p.queries + int64_t{query} * p.cache.head_dim;
  VecF sums[G][kVectorsPerBlock] = {};
  for (int32_t d = 0; d < p.cache.head_dim; ++d) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectorsPerBlock; ++v) {
      const VecF key = Load(keys + d * kBlockSize + v * kLanes);
#pragma GCC unroll 4
      for (int g = 0; g < G; ++g) sums[g][v] += key * q[g * p.cache.head_dim + d];
    }
  }
  for (int g = 0; g < G; ++g) {
    float* scores = p.scratch + (query + g) * stride + int64_t{block} * kBlockSize;
    for (int v = 0; v < kVectorsPerBlock; ++v) Store(scores + v * kLanes, sums[g][v] * p.scale);
  }
}

void SoftCap(float* scores, int64_t first, int64_t last, float cap) {
  for (int64_t i = first; i < last; i += kLanes) {
    const VecF e = Exp(Load(scores + i) * (2.0f / cap));
    Store(scores + i, (1.0f - 2.0f / (e + 1.0f)) * cap);
  }
}

// Scores of one query become weights; those outside the range become 0.
void Softmax(float* scores, const Range& range) {
  const int64_t begin = int64_t{range.first_block} * kBlockSize;
  const int64_t end = int64_t{range.last_block} * kBlockSize;
  for (int64_t i = begin; i < range.first; ++i) scores[i] = kHidden;
  for (int64_t i = range.last; i < end; ++i) scores[i] = kHidden;
  VecF max = Broadcast(kHidden);
  for (int64_t i = begin; i < end; i += kLanes) max = Max(max, Load(scores + i));
  const VecF top = Broadcast(ReduceMax(max));
  VecF sums = {};
  for (int64_t i = begin; i < end; i += kLanes) {
    const VecF score = Load(scores + i);
    const VecF weight = score == kHidden ? VecF{} : Exp(score - top);
    Store(scores + i, weight);
    sums += weight;
  }
  const float scale = 1.0f / Reduce(sums);
  for (int64_t i = begin; i < end; i += kLanes) Store(scores + i, Load(scores + i) * scale);
}

// out[g][d .. d + ND vectors) = sum over positions of weight * value.
template <int G, int ND>
void MixValues(const PagedAttentionParams& p, int32_t query, const Range& range, int64_t stride,
               int32_t d) {
  VecF sums[G][ND] = {};
  for (int32_t block = range.first_block; block < range.last_block; ++block) {
    const float* values = p.cache.ValueBlock(p.block_table[block], p.kv_head) + d;
    const float* weights = p.scratch + query * stride + int64_t{block} * kBlockSize;
    const int32_t start = block * kBlockSize;
    const int32_t from = range.first > start ? range.first - start : 0;
    const int32_t to = range.last < start + kBlockSize ? range.last - start : kBlockSize;
    for (int32_t t = from; t < to; ++t) {
      VecF value[ND];
#pragma GCC unroll 4
      for (int v = 0; v < ND; ++v)
        value[v] = Load(values + int64_t{t} * p.cache.value_size + v * kLanes);
#pragma GCC unroll 4
      for (int g = 0; g < G; ++g) {
#pragma GCC unroll 4
        for (int v = 0; v < ND; ++v) sums[g][v] += value[v] * weights[g * stride + t];
      }
    }
  }
  for (int g = 0; g < G; ++g) {
    for (int v = 0; v < ND; ++v) {
      float* out = p.out + int64_t{query + g} * p.cache.head_dim + d + v * kLanes;
      const int32_t left = p.cache.head_dim - d - v * kLanes;
      if (left >= kLanes) {
        Store(out, sums[g][v]);
      } else if (left > 0) {
        StorePart(out, sums[g][v], left);
      }
    }
  }
}

template <int G>
void Attend(const PagedAttentionParams& p, int32_t query, const Range& range, int64_t stride) {
  for (int32_t block = range.first_block; block < range.last_block; ++block) {
    ScoreBlock<G>(p, query, block, stride);
  }
  for (int g = 0; g < G; ++g) {
    float* scores = p.scratch + (query + g) * stride;
    if (p.soft_cap > 0.0f) {
      SoftCap(scores, int64_t{range.first_block} * kBlockSize,
              int64_t{range.last_block} * kBlockSize, p.soft_cap);
    }
    Softmax(scores, range);
  }
  int32_t d = 0;
  for (; d + 4 * kLanes <= p.cache.value_size; d += 4 * kLanes) {
    MixValues<G, 4>(p, query, range, stride, d);
  }
  for (; d < p.cache.value_size; d += kLanes) MixValues<G, 1>(p, query, range, stride, d);
}

}  // namespace

void PagedAttention(const PagedAttentionParams& p) {
  Range range;
  range.first = p.window > 0 && p.context > p.window ? p.context - p.window : 0;
  range.last = p.context;
  range.first_block = range.first / kBlockSize;
  range.last_block = (p.context + kBlockSize - 1) / kBlockSize;
  const int64_t stride = int64_t{range.last_block} * kBlockSize;
  int32_t query = 0;
  for (; query + 4 <= p.num_queries; query += 4) Attend<4>(p, query, range, stride);
  for (; query + 2 <= p.num_queries; query += 2) Attend<2>(p, query, range, stride);
  for (; query < p.num_queries; ++query) Attend<1>(p, query, range, stride);
}

}  // namespace nereid::cpu::NEREID_ISA
