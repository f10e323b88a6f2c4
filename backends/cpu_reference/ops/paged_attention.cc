// Scores by blocks of 16 keys, softmax, weighted sum of values. Rows are processed in groups of
// four, so that a loaded key or value is used for all of them.
#include "backends/cpu_reference/ops/paged_attention.h"

#include "backends/cpu_reference/ops/simd.h"

namespace nereid::cpu::NEREID_ISA {
namespace {

constexpr int kVectorsPerBlock = kBlockSize / kLanes;
constexpr float kMaskedScore = -3.0e38f;

struct VisibleRange {
  int32_t first, last;              // positions [first, last) ...
  int32_t sinks;                    // ... and [0, sinks), a gap before `first`; else 0
  int32_t first_block, last_block;  // the blocks that contain all of them
  bool Contains(int32_t position) const {
    return position < sinks || (position >= first && position < last);
  }
};

VisibleRange VisibleRangeOf(const PagedAttentionParams& p, const AttentionRow& row) {
  VisibleRange range;
  range.first = p.window > 0 && row.context > p.window ? row.context - p.window : 0;
  range.last = row.context;
  range.sinks = 0;
  if (p.num_sinks > 0 && range.first > 0) {
    range.first += p.num_sinks;
    range.sinks = p.num_sinks;
  }
  range.first_block = range.sinks > 0 ? 0 : range.first / kBlockSize;
  range.last_block = (range.last + kBlockSize - 1) / kBlockSize;
  return range;
}

// Up to four rows, their ranges, and the blocks that any of them sees.
template <int G>
struct RowGroup {
  const AttentionRow* rows;
  float* scores[G];
  VisibleRange ranges[G];
  int32_t first_block, last_block;
  int32_t gap_begin, gap_end;  // blocks in between that no row sees
  bool IsGap(int32_t block) const { return block >= gap_begin && block < gap_end; }
};

// Unscaled scores of G rows against B consecutive blocks.
template <int G, int B>
NEREID_INLINE void ScoreBlocks(const PagedAttentionParams& p, const RowGroup<G>& group,
                               int32_t block) {
  constexpr int kVectors = kVectorsPerBlock;
  const float* keys[B];
  for (int b = 0; b < B; ++b) keys[b] = p.cache.KeyBlock(p.block_table[block + b], p.kv_head);
  VecF sums[G][B][kVectors] = {};
  for (int32_t d = 0; d < p.cache.head_dim; ++d) {
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const VecF key = Load(keys[b] + d * kBlockSize + v * kLanes);
#pragma GCC unroll 4
        for (int g = 0; g < G; ++g) {
          sums[g][b][v] = MulAdd(key, Broadcast(group.rows[g].query[d]), sums[g][b][v]);
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int g = 0; g < G; ++g) {
#pragma GCC unroll 4
    for (int b = 0; b < B; ++b) {
      float* scores = group.scores[g] + int64_t{block + b} * kBlockSize;
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) Store(scores + v * kLanes, sums[g][b][v] * p.scale);
    }
  }
}

template <int G>
void Score(const PagedAttentionParams& p, const RowGroup<G>& group) {
  // As many blocks at a time as the registers allow.
  constexpr int kAtOnce = kLanes == 16 ? (G == 1 ? 4 : 2) : 1;
  int32_t block = group.first_block;
  for (; block < group.gap_begin; ++block) ScoreBlocks<G, 1>(p, group, block);
  if (group.gap_end > block) block = group.gap_end;
  for (; block + kAtOnce <= group.last_block; block += kAtOnce) {
    ScoreBlocks<G, kAtOnce>(p, group, block);
  }
  for (; block < group.last_block; ++block) ScoreBlocks<G, 1>(p, group, block);
}

void SoftCap(float* scores, int64_t begin, int64_t end, float cap) {
  for (int64_t i = begin; i < end; i += kLanes) {
    const VecF e = Exp(Load(scores + i) * (2.0f / cap));
    Store(scores + i, (1.0f - 2.0f / (e + 1.0f)) * cap);
  }
}

// Converts the scores of one row to weights; those outside its range become 0.
void Softmax(float* scores, const VisibleRange& range) {
  const int64_t begin = int64_t{range.first_block} * kBlockSize;
  const int64_t end = int64_t{range.last_block} * kBlockSize;
  for (int64_t i = begin + range.sinks; i < range.first; ++i) scores[i] = kMaskedScore;
  for (int64_t i = range.last; i < end; ++i) scores[i] = kMaskedScore;
  VecF max = Broadcast(kMaskedScore);
  for (int64_t i = begin; i < end; i += kLanes) max = Max(max, Load(scores + i));
  const VecF top = Broadcast(ReduceMax(max));
  VecF sums = {};
  for (int64_t i = begin; i < end; i += kLanes) {
    const VecF score = Load(scores + i);
    const VecF weight = score == kMaskedScore ? VecF{} : Exp(score - top);
    Store(scores + i, weight);
    sums += weight;
  }
  const float scale = 1.0f / Reduce(sums);
  for (int64_t i = begin; i < end; i += kLanes) Store(scores + i, Load(scores + i) * scale);
}

// sums[g] += weight * value over all positions of a block, or over those in each row's range.
template <int G, int ND, bool kAllActive>
NEREID_INLINE void AccumulateBlock(const PagedAttentionParams& p, const RowGroup<G>& group,
                                   int32_t block, int32_t d, VecF (&sums)[G][ND]) {
  const float* values = p.cache.ValueBlock(p.block_table[block], p.kv_head) + d;
  const int32_t start = block * kBlockSize;
  for (int32_t t = 0; t < kBlockSize; ++t) {
    VecF value[ND];
#pragma GCC unroll 4
    for (int v = 0; v < ND; ++v) {
      value[v] = Load(values + int64_t{t} * p.cache.value_size + v * kLanes);
    }
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) {
      if constexpr (!kAllActive) {
        if (!group.ranges[g].Contains(start + t)) continue;
      }
      const VecF weight = Broadcast(group.scores[g][start + t]);
#pragma GCC unroll 4
      for (int v = 0; v < ND; ++v) sums[g][v] = MulAdd(value[v], weight, sums[g][v]);
    }
  }
}

// out[d .. d + ND vectors) of each row = sum over its positions of weight * value.
template <int G, int ND>
void AccumulateValues(const PagedAttentionParams& p, const RowGroup<G>& group, int32_t d) {
  VecF sums[G][ND] = {};
  for (int32_t block = group.first_block; block < group.last_block; ++block) {
    if (group.IsGap(block)) continue;
    bool all_active = true;
    for (int g = 0; g < G; ++g) {
      all_active = all_active && group.ranges[g].first <= block * kBlockSize &&
                   group.ranges[g].last >= (block + 1) * kBlockSize;
    }
    // A position that a row does not see must not change its sums, not even by 0 times a value.
    if (all_active) {
      AccumulateBlock<G, ND, true>(p, group, block, d, sums);
    } else {
      AccumulateBlock<G, ND, false>(p, group, block, d, sums);
    }
  }
#pragma GCC unroll 4
  for (int g = 0; g < G; ++g) {
#pragma GCC unroll 4
    for (int v = 0; v < ND; ++v) {
      float* out = group.rows[g].out + d + v * kLanes;
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
void RunGroup(const PagedAttentionParams& p, const AttentionRow* rows, int64_t stride) {
  RowGroup<G> group;
  group.rows = rows;
  for (int g = 0; g < G; ++g) {
    group.scores[g] = p.scratch + g * stride;
    group.ranges[g] = VisibleRangeOf(p, rows[g]);
    const VisibleRange& range = group.ranges[g];
    if (g == 0 || range.first_block < group.first_block) group.first_block = range.first_block;
    if (g == 0 || range.last_block > group.last_block) group.last_block = range.last_block;
    // There is a gap only if every row has sinks.
    const int32_t sink_blocks = (range.sinks + kBlockSize - 1) / kBlockSize;
    const int32_t gap_end = range.sinks > 0 ? range.first / kBlockSize : 0;
    if (g == 0) group.gap_begin = sink_blocks;
    if (g == 0 || gap_end < group.gap_end) group.gap_end = gap_end;
  }
  if (group.gap_end <= group.gap_begin) group.gap_begin = group.gap_end = 0;
  Score<G>(p, group);
  for (int g = 0; g < G; ++g) {
    if (p.soft_cap > 0.0f) {
      SoftCap(group.scores[g], int64_t{group.ranges[g].first_block} * kBlockSize,
              int64_t{group.ranges[g].last_block} * kBlockSize, p.soft_cap);
    }
    Softmax(group.scores[g], group.ranges[g]);
  }
  int32_t d = 0;
  for (; d + 4 * kLanes <= p.cache.value_size; d += 4 * kLanes) AccumulateValues<G, 4>(p, group, d);
  for (; d + 2 * kLanes <= p.cache.value_size; d += 2 * kLanes) AccumulateValues<G, 2>(p, group, d);
  for (; d < p.cache.value_size; d += kLanes) AccumulateValues<G, 1>(p, group, d);
}

}  // namespace

void PagedAttention(const PagedAttentionParams& p) {
  int64_t stride = 0;
  for (int32_t row = 0; row < p.num_rows; ++row) {
    const int64_t size = int64_t{VisibleRangeOf(p, p.rows[row]).last_block} * kBlockSize;
    if (size > stride) stride = size;
  }
  int32_t row = 0;
  for (; row + 4 <= p.num_rows; row += 4) RunGroup<4>(p, p.rows + row, stride);
  for (; row + 2 <= p.num_rows; row += 2) RunGroup<2>(p, p.rows + row, stride);
  for (; row < p.num_rows; ++row) RunGroup<1>(p, p.rows + row, stride);
}

}  // namespace nereid::cpu::NEREID_ISA
