// Integer weights in strips of 16 outputs, whose bytes a multiply-add of bytes uses as they are.
// Every implementation, here and in matmul_int_amx.cc, combines a segment's sums of one output in
// this order:
//   all = 65536 * sum(v d0) + (256 * sum(v d1) + sum(v d2))     each sum is exact, in int32
//   total += (all - zero * sum of the input) * (scale of the weights * scale of the input)
// so that all implementations for one instruction set give the same bits.
#include "backends/cpu_reference/ops/matmul.h"

#include "backends/cpu_reference/ops/simd.h"

namespace nereid::cpu::NEREID_ISA {
namespace {

constexpr int kVectors = 16 / kLanes;  // per strip
#if defined(__AVX512VNNI__) || defined(__AVX512F__)
constexpr int kMaxRows = 4;
#elif defined(__AVX2__)
constexpr int kMaxRows = 2;
#else
constexpr int kMaxRows = 1;
#endif
// Rows whose input stays in the L2 cache while the strips are read.
constexpr int64_t kRowsAtOnce = 64;
constexpr int64_t kBytesAhead = 4096;

// In each lane: sums += four bytes of `weights` (unsigned, at most 15 unless VNNI) times four of
// `input` (signed).
NEREID_INLINE VecI Dot(VecI sums, VecU weights, int32_t input) {
#if defined(__AVX512VNNI__)
  return reinterpret_cast<VecI>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sums),
                                                    reinterpret_cast<__m512i>(weights),
                                                    _mm512_set1_epi32(input)));
#elif defined(__AVX512F__)
  const __m512i pairs =
      _mm512_maddubs_epi16(reinterpret_cast<__m512i>(weights), _mm512_set1_epi32(input));
  return sums + reinterpret_cast<VecI>(_mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
#elif defined(__AVX2__)
  const __m256i pairs =
      _mm256_maddubs_epi16(reinterpret_cast<__m256i>(weights), _mm256_set1_epi32(input));
  return sums + reinterpret_cast<VecI>(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
#else
  const __m128i pairs =
      _mm_maddubs_epi16(reinterpret_cast<__m128i>(weights), _mm_set1_epi32(input));
  return sums + reinterpret_cast<VecI>(_mm_madd_epi16(pairs, _mm_set1_epi16(1)));
#endif
}

NEREID_INLINE VecI DotOfBytes(VecI sums, VecU weights, int32_t input) {
#if defined(__AVX512VNNI__)
  return Dot(sums, weights, input);
#else  // the sum of two byte products exceeds 16 bits, so that bytes are split into halves
  const VecI high = Dot(VecI{}, (weights >> 4) & 0x0f0f0f0fu, input);
  return Dot(sums, weights & 0x0f0f0f0fu, input) + (high << 4);
#endif
}

NEREID_INLINE VecF ToFloat(VecI values) {
#if defined(__AVX512F__)
  return _mm512_cvtepi32_ps(reinterpret_cast<__m512i>(values));
#elif defined(__AVX2__)
  return _mm256_cvtepi32_ps(reinterpret_cast<__m256i>(values));
#else
  return _mm_cvtepi32_ps(reinterpret_cast<__m128i>(values));
#endif
}

struct IntegerMatmulShape {
  int64_t columns, padded, segment, num_segments, row_bytes, num_groups, segments_per_group;
  int64_t strip_bytes;
};

NEREID_INLINE IntegerMatmulShape ShapeOf(const WeightMatrix& w) {
  IntegerMatmulShape s;
  s.columns = w.columns;
  s.padded = (w.columns + 63) / 64 * 64;
  s.segment = w.group_size < 128 && 128 % w.group_size == 0 ? w.group_size : 128;
  s.num_segments = (w.columns + s.segment - 1) / s.segment;
  s.row_bytes = (3 * s.padded + 8 * s.num_segments + 63) / 64 * 64;
  s.num_groups = (w.columns + w.group_size - 1) / w.group_size;
  s.segments_per_group = (w.group_size + s.segment - 1) / s.segment;
  s.strip_bytes = (w.columns + 7) / 8 * (w.type == WeightFormat::kInt4 ? 64 : 128);
  return s;
}

NEREID_INLINE int32_t FourAt(const uint8_t* from) {
  int32_t four;
  __builtin_memcpy(&four, from, 4);
  return four;
}

// Adds the products of MR rows with eight columns of NS strips.
template <int MR, int NS, bool kIs4>
NEREID_INLINE void AddEight(const uint8_t* weights, int64_t strip_bytes, const uint8_t* digits,
                            const IntegerMatmulShape& s, VecI (&sums)[MR][NS][3][kVectors]) {
#pragma GCC unroll 4
  for (int n = 0; n < NS; ++n) {
    const uint8_t* from = weights + n * strip_bytes;
    __builtin_prefetch(from + kBytesAhead);
    if constexpr (!kIs4) __builtin_prefetch(from + kBytesAhead + 64);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const VecU first = *reinterpret_cast<const VecUUnaligned*>(from + v * 4 * kLanes);
      const VecU low = kIs4 ? first & 0x0f0f0f0fu : first;
      const VecU high =
          kIs4 ? (first >> 4) & 0x0f0f0f0fu
               : VecU(*reinterpret_cast<const VecUUnaligned*>(from + 64 + v * 4 * kLanes));
#pragma GCC unroll 4
      for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 3
        for (int d = 0; d < 3; ++d) {
          const uint8_t* in = digits + m * s.row_bytes + d * s.padded;
          VecI& sum = sums[m][n][d][v];
          if constexpr (kIs4) {
            sum = Dot(Dot(sum, low, FourAt(in)), high, FourAt(in + 4));
          } else {
            sum = DotOfBytes(DotOfBytes(sum, low, FourAt(in)), high, FourAt(in + 4));
          }
        }
      }
    }
  }
}

// Computes whole strips from `strip` on for MR rows, into totals[row][16 NS].
template <int MR, int NS, bool kIs4>
__attribute__((noinline)) void RunStrips(const MatmulParams& p, const IntegerMatmulShape& s,
                                         int64_t row, int64_t strip, float* totals) {
  const uint8_t* weights = static_cast<const uint8_t*>(p.weights.data) + strip * s.strip_bytes;
  const uint8_t* digits = p.fixed_point + row * s.row_bytes;
  const int64_t scale_stride = s.num_groups * kStripOutputs;
  VecF total[MR][NS][kVectors] = {};
  int64_t eight = 0;
  for (int64_t segment = 0; segment < s.num_segments; ++segment) {
    const int64_t left = s.columns - segment * s.segment;
    const int64_t end = eight + ((left < s.segment ? left : s.segment) + 7) / 8;
    VecI sums[MR][NS][3][kVectors] = {};
    for (; eight < end; ++eight) {
      AddEight<MR, NS, kIs4>(weights + eight * (kIs4 ? 64 : 128), s.strip_bytes, digits + 8 * eight,
                             s, sums);
    }
    const int64_t group = strip * scale_stride + segment / s.segments_per_group * kStripOutputs;
#pragma GCC unroll 4
    for (int n = 0; n < NS; ++n) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const int64_t at = group + n * scale_stride + v * kLanes;
        const VecF scale = Load(p.weights.group_scales + at);
        const VecF zero = ToFloat(reinterpret_cast<VecI>(Widen(p.weights.group_zeros + at)));
#pragma GCC unroll 4
        for (int m = 0; m < MR; ++m) {
          const float* in =
              reinterpret_cast<const float*>(digits + m * s.row_bytes + 3 * s.padded) + segment;
          const VecI(&sum)[3][kVectors] = sums[m][n];
          VecF all = MulAdd(ToFloat(sum[1][v]), Broadcast(256.0f), ToFloat(sum[2][v]));
          all = MulAdd(ToFloat(sum[0][v]), Broadcast(65536.0f), all);
          all = MulAdd(zero, Broadcast(-in[s.num_segments]), all);
          total[m][n][v] = MulAdd(all, scale * in[0], total[m][n][v]);
        }
      }
    }
  }
  for (int m = 0; m < MR; ++m) {
    for (int n = 0; n < NS; ++n) {
      for (int v = 0; v < kVectors; ++v) {
        Store(totals + (m * NS + n) * kStripOutputs + v * kLanes, total[m][n][v]);
      }
    }
  }
}

// Writes the requested outputs of MR rows and NS strips.
template <int MR, int NS, bool kIs4>
void FinishStrips(const MatmulParams& p, const IntegerMatmulShape& s, int64_t row, int64_t strip) {
  float totals[MR * NS * kStripOutputs];
  RunStrips<MR, NS, kIs4>(p, s, row, strip, totals);
  const int64_t first = strip * kStripOutputs;
  const int64_t begin = first < p.first_output ? p.first_output : first;
  const int64_t whole = first + NS * kStripOutputs;
  const int64_t end = whole < p.last_output ? whole : p.last_output;
  for (int m = 0; m < MR; ++m) {
    const float* from = totals + m * NS * kStripOutputs - first;
    float* out = p.out + (row + m) * p.out_stride;
    for (int64_t o = begin; o < end; ++o) {
      const float value = from[o] + (p.bias != nullptr ? p.bias[o] : 0.0f);
      out[o] = p.accumulate ? out[o] + value : value;
    }
  }
}

template <int MR, bool kIs4>
void RunRows(const MatmulParams& p, const IntegerMatmulShape& s, int64_t row) {
#if defined(__AVX512F__)
  constexpr int kStrips = MR == 1 ? 4 : MR == 2 ? 2 : 1;
#else
  constexpr int kStrips = 1;
#endif
  const int64_t end = (p.last_output + kStripOutputs - 1) / kStripOutputs;
  int64_t strip = p.first_output / kStripOutputs;
  for (; strip + kStrips <= end; strip += kStrips)
    FinishStrips<MR, kStrips, kIs4>(p, s, row, strip);
  for (; strip < end; ++strip) FinishStrips<MR, 1, kIs4>(p, s, row, strip);
}

// Processes one strip at a time for all rows of a block, so that the strip is read once.
template <bool kIs4>
void RunBlock(const MatmulParams& p, const IntegerMatmulShape& s, int64_t first_row,
              int64_t last_row) {
  const int64_t end = (p.last_output + kStripOutputs - 1) / kStripOutputs;
  for (int64_t strip = p.first_output / kStripOutputs; strip < end; ++strip) {
    int64_t row = first_row;
    for (; row + kMaxRows <= last_row; row += kMaxRows) {
      FinishStrips<kMaxRows, 1, kIs4>(p, s, row, strip);
    }
    for (; row < last_row; ++row) FinishStrips<1, 1, kIs4>(p, s, row, strip);
  }
}

template <bool kIs4>
void Run(const MatmulParams& p) {
  const IntegerMatmulShape s = ShapeOf(p.weights);
  if (p.num_rows == 1) return RunRows<1, kIs4>(p, s, 0);
  if constexpr (kMaxRows >= 2) {
    if (p.num_rows == 2) return RunRows<2, kIs4>(p, s, 0);
  }
  for (int64_t row = 0; row < p.num_rows; row += kRowsAtOnce) {
    const int64_t last = row + kRowsAtOnce < p.num_rows ? row + kRowsAtOnce : p.num_rows;
    RunBlock<kIs4>(p, s, row, last);
  }
}

}  // namespace

void MatmulIntegers(const MatmulParams& params) {
  params.weights.type == WeightFormat::kInt4 ? Run<true>(params) : Run<false>(params);
}

}  // namespace nereid::cpu::NEREID_ISA
