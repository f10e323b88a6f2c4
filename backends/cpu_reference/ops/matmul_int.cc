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
constexpr int64_t kBytesAhead = 8192;

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

// Adds the products of MR rows with eight columns of a strip.
template <int MR, bool kIs4>
NEREID_INLINE void AddEight(const uint8_t* weights, const uint8_t* digits,
                            const IntegerMatmulShape& s, VecI (&sums)[MR][3][kVectors]) {
  __builtin_prefetch(weights + kBytesAhead);
  if constexpr (!kIs4) __builtin_prefetch(weights + kBytesAhead + 64);
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    const VecU first = *reinterpret_cast<const VecUUnaligned*>(weights + v * 4 * kLanes);
    const VecU low = kIs4 ? first & 0x0f0f0f0fu : first;
    const VecU high =
        kIs4 ? (first >> 4) & 0x0f0f0f0fu
             : VecU(*reinterpret_cast<const VecUUnaligned*>(weights + 64 + v * 4 * kLanes));
#pragma GCC unroll 4
    for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 3
      for (int d = 0; d < 3; ++d) {
        const uint8_t* in = digits + m * s.row_bytes + d * s.padded;
        VecI& sum = sums[m][d][v];
        if constexpr (kIs4) {
          sum = Dot(Dot(sum, low, FourAt(in)), high, FourAt(in + 4));
        } else {
          sum = DotOfBytes(DotOfBytes(sum, low, FourAt(in)), high, FourAt(in + 4));
        }
      }
    }
  }
}

// Adds the products of MR rows with the columns of a strip from 8 * eight to 8 * end. With few
// rows, several sums of each row are computed at a time, which hides the latency of an addition.
template <int MR, bool kIs4>
NEREID_INLINE void AddSegment(const uint8_t* weights, const uint8_t* digits, int64_t eight,
                              int64_t end, const IntegerMatmulShape& s,
                              VecI (&sums)[MR][3][kVectors]) {
  constexpr int64_t kBytes = kIs4 ? 64 : 128;  // of eight columns
  constexpr int kParts = kVectors > 1 ? 1 : MR == 1 ? 4 : MR == 2 ? 2 : 1;
  VecI parts[kParts][MR][3][kVectors] = {};
  for (; eight + kParts <= end; eight += kParts) {
#pragma GCC unroll 4
    for (int part = 0; part < kParts; ++part) {
      AddEight<MR, kIs4>(weights + (eight + part) * kBytes, digits + 8 * (eight + part), s,
                         parts[part]);
    }
  }
  for (; eight < end; ++eight) {
    AddEight<MR, kIs4>(weights + eight * kBytes, digits + 8 * eight, s, parts[0]);
  }
#pragma GCC unroll 4
  for (int part = 0; part < kParts; ++part) {
#pragma GCC unroll 4
    for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 3
      for (int d = 0; d < 3; ++d) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) sums[m][d][v] += parts[part][m][d][v];
      }
    }
  }
}

// Computes a whole strip for MR rows, into totals[row][16].
template <int MR, bool kIs4>
__attribute__((noinline)) void RunStrip(const MatmulParams& p, const IntegerMatmulShape& s,
                                        int64_t row, int64_t strip, float* totals) {
  const uint8_t* weights = static_cast<const uint8_t*>(p.weights.data) + strip * s.strip_bytes;
  const uint8_t* digits = p.fixed_point + row * s.row_bytes;
  VecF total[MR][kVectors] = {};
  for (int64_t segment = 0; segment < s.num_segments; ++segment) {
    const int64_t first = segment * s.segment;
    const int64_t left = s.columns - first;
    VecI sums[MR][3][kVectors] = {};
    AddSegment<MR, kIs4>(weights, digits, first / 8,
                         first / 8 + ((left < s.segment ? left : s.segment) + 7) / 8, s, sums);
    const int64_t group = (strip * s.num_groups + segment / s.segments_per_group) * kStripOutputs;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const VecF scale = Load(p.weights.group_scales + group + v * kLanes);
      const VecF zero =
          ToFloat(reinterpret_cast<VecI>(Widen(p.weights.group_zeros + group + v * kLanes)));
#pragma GCC unroll 4
      for (int m = 0; m < MR; ++m) {
        const float* in =
            reinterpret_cast<const float*>(digits + m * s.row_bytes + 3 * s.padded) + segment;
        VecF all = MulAdd(ToFloat(sums[m][1][v]), Broadcast(256.0f), ToFloat(sums[m][2][v]));
        all = MulAdd(ToFloat(sums[m][0][v]), Broadcast(65536.0f), all);
        all = MulAdd(zero, Broadcast(-in[s.num_segments]), all);
        total[m][v] = MulAdd(all, scale * in[0], total[m][v]);
      }
    }
  }
  for (int m = 0; m < MR; ++m) {
    for (int v = 0; v < kVectors; ++v) {
      Store(totals + m * kStripOutputs + v * kLanes, total[m][v]);
    }
  }
}

// Writes the requested outputs of MR rows and a strip.
template <int MR, bool kIs4>
void FinishStrip(const MatmulParams& p, const IntegerMatmulShape& s, int64_t row, int64_t strip) {
  float totals[MR * kStripOutputs];
  RunStrip<MR, kIs4>(p, s, row, strip, totals);
  const int64_t first = strip * kStripOutputs;
  const int64_t begin = first < p.first_output ? p.first_output : first;
  const int64_t whole = first + kStripOutputs;
  const int64_t end = whole < p.last_output ? whole : p.last_output;
  for (int m = 0; m < MR; ++m) {
    const float* from = totals + m * kStripOutputs - first;
    float* out = p.out + (row + m) * p.out_stride;
    for (int64_t o = begin; o < end; ++o) {
      const float value = from[o] + (p.bias != nullptr ? p.bias[o] : 0.0f);
      out[o] = p.accumulate ? out[o] + value : value;
    }
  }
}

// The last `num_rows` rows of a block, at most MR and fewer than kMaxRows.
template <int MR, bool kIs4>
void FinishLastRows(const MatmulParams& p, const IntegerMatmulShape& s, int64_t row,
                    int64_t num_rows, int64_t strip) {
  if constexpr (MR > 0) {
    if (num_rows == MR) return FinishStrip<MR, kIs4>(p, s, row, strip);
    FinishLastRows<MR - 1, kIs4>(p, s, row, num_rows, strip);
  }
}

// Processes one strip at a time for all rows of a block, so that the strip is read once.
template <bool kIs4>
void RunBlock(const MatmulParams& p, const IntegerMatmulShape& s, int64_t first_row,
              int64_t last_row) {
  const int64_t end = (p.last_output + kStripOutputs - 1) / kStripOutputs;
  for (int64_t strip = p.first_output / kStripOutputs; strip < end; ++strip) {
    int64_t row = first_row;
    for (; row + kMaxRows <= last_row; row += kMaxRows) {
      FinishStrip<kMaxRows, kIs4>(p, s, row, strip);
    }
    FinishLastRows<kMaxRows - 1, kIs4>(p, s, row, last_row - row, strip);
  }
}

template <bool kIs4>
void Run(const MatmulParams& p) {
  const IntegerMatmulShape s = ShapeOf(p.weights);
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
