// Integer weights on AMX: digits of 16 input rows x 64 columns, times weights of 64 columns x 16
// outputs, as stored in strips. Three tiles of sums, one per digit, in two alternating sets; tile 6
// is input, tile 7 weights.
#include "backends/cpu_reference/ops/amx_tiles.h"
#include "backends/cpu_reference/ops/matmul_amx.h"

namespace nereid::cpu::amx {
namespace {

constexpr int64_t kTileColumns = 64;
// Rows whose digits stay in the L2 cache while the strips are read.
constexpr int64_t kRowsAtOnce = 128;

void Configure(int64_t rows) {
  TileConfig config;
  for (int tile = 0; tile < kNumTiles; ++tile) {
    config.rows[tile] = tile == 7 ? 16 : static_cast<uint8_t>(rows);
    config.row_bytes[tile] = 64;
  }
  _tile_loadconfig(&config);
}

class IntegerMatmul {
 public:
  IntegerMatmul(const MatmulParams& params, uint8_t* unpacked)
      : p_(params),
        is_4_(params.weights.type == WeightFormat::kInt4),
        columns_(params.weights.columns),
        padded_((columns_ + 63) / 64 * 64),
        segment_(params.weights.group_size == 64 ? 64 : 128),
        num_segments_((columns_ + segment_ - 1) / segment_),
        row_bytes_((3 * padded_ + 8 * num_segments_ + 63) / 64 * 64),
        num_groups_((columns_ + params.weights.group_size - 1) / params.weights.group_size),
        segments_per_group_((params.weights.group_size + segment_ - 1) / segment_),
        strip_bytes_((columns_ + 7) / 8 * (is_4_ ? 64 : 128)),
        unpacked_(unpacked) {}

  void Run() {
    const int64_t end = (p_.last_output + kStripOutputs - 1) / kStripOutputs;
    for (int64_t first = 0; first < p_.num_rows; first += kRowsAtOnce) {
      const int64_t last = first + kRowsAtOnce < p_.num_rows ? first + kRowsAtOnce : p_.num_rows;
      const int64_t whole = last - (last - first) % kTileRows;
      Configure(kTileRows);
      for (int64_t strip = p_.first_output / kStripOutputs; strip < end; ++strip) {
        Unpack(strip);
        for (int64_t row = first; row < whole; row += kTileRows) RunTile(strip, row, kTileRows);
        if (whole == last) continue;
        Configure(last - whole);
        RunTile(strip, whole, last - whole);
        Configure(kTileRows);
      }
    }
    _tile_release();
  }

 private:
  // Expands a strip to bytes, padded to whole tiles.
  void Unpack(int64_t strip) {
    const uint8_t* from = static_cast<const uint8_t*>(p_.weights.data) + strip * strip_bytes_;
    const int64_t filled = columns_ / 8 * 128;
    if (is_4_) {
      const __m512i mask = _mm512_set1_epi8(15);
      for (int64_t to = 0; to < filled; to += 128, from += 64) {
        __builtin_prefetch(from + 2048);
        const __m512i both = _mm512_loadu_si512(from);
        _mm512_store_si512(unpacked_ + to, _mm512_and_si512(both, mask));
        _mm512_store_si512(unpacked_ + to + 64, _mm512_and_si512(_mm512_srli_epi16(both, 4), mask));
      }
    } else {
      for (int64_t to = 0; to < filled; to += 64, from += 64) {
        __builtin_prefetch(from + 4096);
        _mm512_store_si512(unpacked_ + to, _mm512_loadu_si512(from));
      }
    }
    for (int64_t to = filled; to < padded_ * 16; to += 64) {
      _mm512_store_si512(unpacked_ + to, _mm512_setzero_si512());
    }
  }

  void RunTile(int64_t strip, int64_t row, int64_t num_rows) {
    alignas(64) float totals[kTileRows * kStripOutputs] = {};
    alignas(64) int32_t sums[2][3][kTileRows * kStripOutputs];
    for (int64_t segment = 0; segment < num_segments_; ++segment) {
      segment % 2 == 0 ? SumEven(segment, row, sums[0]) : SumOdd(segment, row, sums[1]);
      if (segment > 0) Add(strip, row, num_rows, segment - 1, sums[(segment - 1) % 2], totals);
    }
    Add(strip, row, num_rows, num_segments_ - 1, sums[(num_segments_ - 1) % 2], totals);
    Store(strip, row, num_rows, totals);
  }

// The intrinsics require tile numbers as literals.
#define NEREID_SUM(t0, t1, t2)                                                 \
  const int64_t begin = segment * segment_;                                    \
  const int64_t end = begin + segment_ < padded_ ? begin + segment_ : padded_; \
  const uint8_t* digits = p_.fixed_point + row * row_bytes_;                   \
  _tile_zero(t0);                                                              \
  _tile_zero(t1);                                                              \
  _tile_zero(t2);                                                              \
  for (int64_t column = begin; column < end; column += kTileColumns) {         \
    _tile_loadd(7, unpacked_ + column / kTileColumns * kTileBytes, 64);        \
    _tile_loadd(6, digits + column, row_bytes_);                               \
    _tile_dpbsud(t0, 6, 7);                                                    \
    _tile_loadd(6, digits + padded_ + column, row_bytes_);                     \
    _tile_dpbsud(t1, 6, 7);                                                    \
    _tile_loadd(6, digits + 2 * padded_ + column, row_bytes_);                 \
    _tile_dpbsud(t2, 6, 7);                                                    \
  }                                                                            \
  _tile_stored(t0, sums[0], 64);                                               \
  _tile_stored(t1, sums[1], 64);                                               \
  _tile_stored(t2, sums[2], 64);

  void SumEven(int64_t segment, int64_t row, int32_t (&sums)[3][kTileRows * kStripOutputs]) {
    NEREID_SUM(0, 1, 2)
  }
  void SumOdd(int64_t segment, int64_t row, int32_t (&sums)[3][kTileRows * kStripOutputs]) {
    NEREID_SUM(3, 4, 5)
  }
#undef NEREID_SUM

  void Add(int64_t strip, int64_t row, int64_t num_rows, int64_t segment,
           const int32_t (&sums)[3][kTileRows * kStripOutputs], float* totals) const {
    const int64_t at = (strip * num_groups_ + segment / segments_per_group_) * kStripOutputs;
    const __m512 scale = _mm512_loadu_ps(p_.weights.group_scales + at);
    const __m512 zero = _mm512_cvtepi32_ps(_mm512_cvtepu16_epi32(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p_.weights.group_zeros + at))));
    for (int64_t r = 0; r < num_rows; ++r) {
      const auto* in =
          reinterpret_cast<const float*>(p_.fixed_point + (row + r) * row_bytes_ + 3 * padded_) +
          segment;
      const auto digit = [&](int d) {
        return _mm512_cvtepi32_ps(_mm512_load_si512(sums[d] + r * kStripOutputs));
      };
      __m512 all = _mm512_fmadd_ps(digit(1), _mm512_set1_ps(256.0f), digit(2));
      all = _mm512_fmadd_ps(digit(0), _mm512_set1_ps(65536.0f), all);
      all = _mm512_fmadd_ps(zero, _mm512_set1_ps(-in[num_segments_]), all);
      const __m512 total = _mm512_load_ps(totals + r * kStripOutputs);
      _mm512_store_ps(totals + r * kStripOutputs,
                      _mm512_fmadd_ps(all, _mm512_mul_ps(scale, _mm512_set1_ps(in[0])), total));
    }
  }

  void Store(int64_t strip, int64_t row, int64_t num_rows, const float* totals) const {
    const int64_t first = strip * kStripOutputs;
    const int64_t begin = p_.first_output > first ? p_.first_output - first : 0;
    const int64_t end =
        p_.last_output - first < kStripOutputs ? p_.last_output - first : kStripOutputs;
    const auto mask = static_cast<__mmask16>((1u << end) - (1u << begin));
    const __m512 bias =
        p_.bias != nullptr ? _mm512_maskz_loadu_ps(mask, p_.bias + first) : _mm512_setzero_ps();
    for (int64_t r = 0; r < num_rows; ++r) {
      float* out = p_.out + (row + r) * p_.out_stride + first;
      __m512 value = _mm512_add_ps(_mm512_load_ps(totals + r * kStripOutputs), bias);
      if (p_.accumulate) value = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, out), value);
      _mm512_mask_storeu_ps(out, mask, value);
    }
  }

  const MatmulParams& p_;
  const bool is_4_;
  const int64_t columns_, padded_, segment_, num_segments_, row_bytes_, num_groups_,
      segments_per_group_, strip_bytes_;
  uint8_t* const unpacked_;
};

}  // namespace

bool IntegersSuitAmx(const MatmulParams& params) {
  constexpr int64_t kFewestRows = 5;  // for fewer rows, setting up tiles costs more than it saves
  return params.num_rows >= kFewestRows && params.weights.columns % 8 == 0 &&
         (params.weights.group_size >= 128 || params.weights.group_size == 64);
}

void MatmulIntegers(const MatmulParams& params) {
  IntegerMatmul(params, AlignedScratch(params)).Run();
}

}  // namespace nereid::cpu::amx
