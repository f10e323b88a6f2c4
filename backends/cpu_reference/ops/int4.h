// Unpacks int4 weights into vectors of float: for ops alone.
#pragma once

#include "cpu_reference/ops/simd.h"
#include "cpu_reference/ops/weight_type.h"

namespace nereid::cpu::NEREID_ISA {

// The weights of one group's 16 values. With 16 lanes they are a table that a permutation looks up;
// else they are computed. Either way a weight is one product, rounded once.
struct Int4Group {
#if defined(__AVX512F__)
  VecF table;
#else
  VecF zero, scale;
#endif
};

NEREID_INLINE Int4Group MakeInt4Group(float scale, uint8_t zero) {
#if defined(__AVX512F__)
  const VecF values = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return {(values - static_cast<float>(zero)) * scale};
#else
  return {Broadcast(static_cast<float>(zero)), Broadcast(scale)};
#endif
}

// Of the lowest nibble of each word.
NEREID_INLINE VecF Dequantize(VecU words, const Int4Group& group) {
#if defined(__AVX512F__)
  return _mm512_permutexvar_ps(reinterpret_cast<__m512i>(words), group.table);
#elif defined(__AVX2__)
  const VecF value = _mm256_cvtepi32_ps(reinterpret_cast<__m256i>(words & 15u));
  return (value - group.zero) * group.scale;
#else
  const VecF value = _mm_cvtepi32_ps(reinterpret_cast<__m128i>(words & 15u));
  return (value - group.zero) * group.scale;
#endif
}

inline constexpr int64_t kInt4Ahead = 16384;

// What all blocks of a matrix share, worked out once a tile.
struct Int4Matrix {
  const uint8_t* data;
  const float* scales;
  const uint8_t* zeros;
  int64_t row_bytes, num_groups, group_size;
  int64_t bytes_ahead;    // how far ahead weights are asked for: whole rows
  int vectors_per_group;  // groups within a block: the power of two of their 16 columns; else 3
};

NEREID_INLINE Int4Matrix Int4MatrixOf(const WeightMatrix& w) {
  const int64_t group = w.group_size;
  const int64_t row_bytes =
      (w.columns + kInt4BlockColumns - 1) / kInt4BlockColumns * kInt4BlockBytes;
  return {static_cast<const uint8_t*>(w.data),
          w.group_scales,
          w.group_zeros,
          row_bytes,
          (w.columns + group - 1) / group,
          group,
          row_bytes * (row_bytes > kInt4Ahead / 4 ? 4 : kInt4Ahead / row_bytes),
          group == 16   ? 0
          : group == 32 ? 1
          : group == 64 ? 2
                        : 3};
}

// 128 columns of a row, or what is left of it, from column `first` on.
class Int4Block {
 public:
  // `group` is that of the first column.
  NEREID_INLINE_MEMBER Int4Block(const Int4Matrix& matrix, int64_t row, int64_t first,
                                 int64_t group)
      : scales_(matrix.scales + row * matrix.num_groups + group),
        zeros_(matrix.zeros + row * matrix.num_groups + group),
        shift_(matrix.vectors_per_group) {
    const uint8_t* bytes = matrix.data + row * matrix.row_bytes + first / 2;
    __builtin_prefetch(bytes + matrix.bytes_ahead);
    // Spelt out: `auto` would drop the alignment of 1.
    const VecUUnaligned* words = reinterpret_cast<const VecUUnaligned*>(bytes);
#pragma GCC unroll 4
    for (int part = 0; part < kParts; ++part) words_[part] = words[part];
  }

  // body(values, column in the block, number of columns) for vectors of the first `width` columns.
  template <typename F>
  NEREID_INLINE_MEMBER void ForEachVector(int64_t width, F body) const {
    if (width == kInt4BlockColumns && shift_ == 3) {
      const Int4Group group = MakeInt4Group(scales_[0], zeros_[0]);
#pragma GCC unroll 8
      for (int k = 0; k < 8; ++k) {
#pragma GCC unroll 4
        for (int part = 0; part < kParts; ++part) {
          body(Dequantize(words_[part] >> (4 * k), group), 16 * k + part * kLanes, kLanes);
        }
      }
      return;
    }
    for (int k = 0; 16 * k < width; ++k) {  // smaller groups, and a row's end
      const Int4Group group = MakeInt4Group(scales_[k >> shift_], zeros_[k >> shift_]);
#pragma GCC unroll 4
      for (int part = 0; part < kParts; ++part) {
        const int64_t left = width - 16 * k - part * kLanes;
        if (left <= 0) break;
        body(Dequantize(words_[part] >> (4 * k), group), 16 * k + part * kLanes,
             left < kLanes ? static_cast<int>(left) : kLanes);
      }
    }
  }

 private:
  static constexpr int kParts = 16 / kLanes;

  VecU words_[kParts];
  const float* scales_;
  const uint8_t* zeros_;
  int shift_;
};

}  // namespace nereid::cpu::NEREID_ISA
