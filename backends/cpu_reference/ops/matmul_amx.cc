// Tiles: 16 outputs x 32 columns of weights, as stored; 32 columns x 16 rows of input, packed in
// pairs of columns; 16 outputs x 16 rows of sums. A 2 x 2 arrangement fills the tile registers:
// sums in 0-3, weights in 4 and 5, inputs in 6 and 7.
#include "backends/cpu_reference/ops/matmul_amx.h"

#include "backends/cpu_reference/ops/amx_tiles.h"

namespace nereid::cpu::amx {
namespace {

constexpr int64_t kTileOutputs = 16;
constexpr int64_t kTileColumns = 32;
// The packed input of a block of rows stays in the L2 cache while all weights are read.
constexpr int64_t kBlockBytes = int64_t{1} << 20;
// Prefetch distance of weights, in tiles along the columns: for tiles processed one by one, and for
// pairs of tiles multiplied by many rows.
constexpr int64_t kTilesAhead[] = {2, 8};

int64_t DivideUp(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// `rows`: number of input rows, 1 to 16. It is the width of the input and sum tiles.
void Configure(int64_t rows) {
  TileConfig config;
  for (int tile = 0; tile < kNumTiles; ++tile) {
    config.rows[tile] = 16;
    config.row_bytes[tile] = tile == 4 || tile == 5 ? 64 : static_cast<uint16_t>(rows * 4);
  }
  _tile_loadconfig(&config);
}

// Splits columns [column, column + 32) of one row into pairs of bf16: high parts and remainders. A
// pair is a word; consecutive pairs are `stride` words apart.
void PackColumns(const float* in, int64_t count, uint32_t* high, uint32_t* low, int64_t stride) {
  const auto mask = static_cast<uint32_t>((uint64_t{1} << count) - 1);
  const __m512 first = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), in);
  const __m512 second = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), in + 16);
  const __m512bh rounded = _mm512_cvtne2ps_pbh(second, first);
  const __m512i bits = (__m512i)rounded;
  const __m512 first_high = _mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(bits)), 16));
  const __m512 second_high = _mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(bits, 1)), 16));
  const __m512bh rests =
      _mm512_cvtne2ps_pbh(_mm512_sub_ps(second, second_high), _mm512_sub_ps(first, first_high));
  if (stride == 1) {
    _mm512_storeu_si512(high, bits);
    _mm512_storeu_si512(low, (__m512i)rests);
    return;
  }
  alignas(64) uint32_t pairs[2][16];
  _mm512_store_si512(pairs[0], bits);
  _mm512_store_si512(pairs[1], (__m512i)rests);
  for (int64_t pair = 0; pair < 16; ++pair) {
    high[pair * stride] = pairs[0][pair];
    low[pair * stride] = pairs[1][pair];
  }
}

// Writes a high tile and a low tile for each 32 columns of up to `width` rows.
void PackRows(const float* in, int64_t num_rows, int64_t columns, int64_t width, uint8_t* to) {
  const int64_t tile_bytes = kTileRows * width * 4;
  for (int64_t column = 0; column < columns; column += kTileColumns, to += 2 * tile_bytes) {
    const int64_t left = columns - column;
    auto* high = reinterpret_cast<uint32_t*>(to);
    auto* low = reinterpret_cast<uint32_t*>(to + tile_bytes);
    for (int64_t row = 0; row < num_rows; ++row) {
      PackColumns(in + row * columns + column, left < kTileColumns ? left : kTileColumns,
                  high + row, low + row, width);
    }
  }
}

// Writes a tile of sums to out[row][output]. The tile is sums[output][row] with `stride` floats
// between outputs.
void Finish(const float* sums, int64_t stride, const MatmulParams& p, int64_t output,
            int64_t num_outputs, int64_t row, int64_t num_rows) {
  const auto mask = static_cast<__mmask16>((1u << num_outputs) - 1);
  const __m512i lanes =
      _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                         _mm512_set1_epi32(static_cast<int>(stride)));
  const __m512 bias =
      p.bias != nullptr ? _mm512_maskz_loadu_ps(mask, p.bias + output) : _mm512_setzero_ps();
  for (int64_t r = 0; r < num_rows; ++r) {
    float* out = p.out + (row + r) * p.out_stride + output;
    __m512 values = _mm512_i32gather_ps(lanes, sums + r, 4);
    if (p.bias != nullptr) values = _mm512_add_ps(values, bias);
    if (p.accumulate) values = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, out), values);
    _mm512_mask_storeu_ps(out, mask, values);
  }
}

class Bf16Matmul {
 public:
  Bf16Matmul(const MatmulParams& params, uint8_t* packed)
      : p_(params),
        weights_(static_cast<const uint8_t*>(params.weights.data)),
        columns_(params.weights.columns),
        row_bytes_(columns_ * 2),
        steps_(DivideUp(columns_, kTileColumns)),
        packed_(packed) {}

  void Run() {
    const int64_t tiles = DivideUp(p_.num_rows, kTileRows);
    int64_t tiles_per_block = kBlockBytes / (steps_ * 2 * kTileBytes) / 2 * 2;
    if (tiles_per_block < 2) tiles_per_block = 2;
    for (int64_t tile = 0; tile < tiles; tile += tiles_per_block) {
      const int64_t first = tile * kTileRows;
      RunBlock(first, Least(p_.num_rows - first, tiles_per_block * kTileRows));
    }
  }

 private:
  static int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }

  void RunBlock(int64_t first_row, int64_t num_rows) {
    // Narrow tiles for a small step; otherwise 16 rows, of which the last tile may use a part.
    width_ = Least(num_rows, kTileRows);
    const int64_t row_tile_bytes = steps_ * 2 * in_tile_bytes();
    for (int64_t row = 0; row < num_rows; row += kTileRows) {
      PackRows(p_.in + (first_row + row) * columns_, Least(num_rows - row, kTileRows), columns_,
               width_, packed_ + row / kTileRows * row_tile_bytes);
    }
    Configure(width_);
    if (num_rows <= kTileRows) {
      RunNarrow(first_row, num_rows);
      _tile_release();
      return;
    }
    for (int64_t output = p_.first_output; output < p_.last_output; output += 2 * kTileOutputs) {
      for (int64_t row = 0; row < num_rows; row += 2 * kTileRows) {
        const uint8_t* in = packed_ + row / kTileRows * row_tile_bytes;
        const bool is_wide = num_rows - row > kTileRows;
        const bool is_tall = p_.last_output - output > kTileOutputs;
        if (is_wide) {
          is_tall ? RunTiles<2, 2>(output, first_row + row, in, row_tile_bytes)
                  : RunTiles<1, 2>(output, first_row + row, in, row_tile_bytes);
        } else {
          is_tall ? RunTiles<2, 1>(output, first_row + row, in, row_tile_bytes)
                  : RunTiles<1, 1>(output, first_row + row, in, row_tile_bytes);
        }
      }
    }
    _tile_release();
  }

  int64_t in_row_bytes() const { return width_ * 4; }
  int64_t in_tile_bytes() const { return kTileRows * in_row_bytes(); }

  // Few rows: processes one tile of outputs at a time. This reads the weights almost in memory
  // order, at the speed of a plain read. Sums are processed while the next ones are computed, to
  // avoid waiting for them.
  void RunNarrow(int64_t first_row, int64_t num_rows) {
    alignas(64) float sums[2][kTileOutputs * kTileRows];
    const auto finish = [&](int64_t output, const float* of) {
      Finish(of, width_, p_, output, Least(p_.last_output - output, kTileOutputs), first_row,
             num_rows);
    };
    int64_t made = -1;
    int turn = 0;
    for (int64_t output = p_.first_output; output < p_.last_output; output += kTileOutputs) {
      Sum<1, 1>(output, packed_, 0);
      _tile_stored(0, sums[turn], width_ * 4);
      turn ^= 1;
      if (made >= 0) finish(made, sums[turn]);
      made = output;
    }
    if (made >= 0) finish(made, sums[turn ^ 1]);
  }

  template <int kOutputTiles, int kRowTiles>
  void RunTiles(int64_t output, int64_t row, const uint8_t* in, int64_t row_tile_bytes) {
    Sum<kOutputTiles, kRowTiles>(output, in, row_tile_bytes);
    Store<kOutputTiles, kRowTiles>(output, row);
  }

  template <int kOutputTiles, int kRowTiles>
  void Sum(int64_t output, const uint8_t* in, int64_t row_tile_bytes) {
    const bool is_first_pass = in == packed_;  // later passes find the weights in a cache
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    const uint8_t* weights = weights_ + output * row_bytes_;
    const bool is_short = output + kOutputTiles * kTileOutputs > p_.last_output;
    for (int64_t step = 0; step < steps_; ++step, weights += 64, in += 2 * in_tile_bytes()) {
      const bool is_end = (step + 1) * kTileColumns > columns_;
      if (is_short || is_end) {
        LoadPart<kOutputTiles>(weights, output, is_end ? columns_ % kTileColumns : kTileColumns);
      } else {
        if (is_first_pass) PrefetchAhead<kOutputTiles>(output, step);
        _tile_loadd(4, weights, row_bytes_);
        if constexpr (kOutputTiles == 2) {
          _tile_loadd(5, weights + kTileOutputs * row_bytes_, row_bytes_);
        }
      }
      Multiply<kOutputTiles, kRowTiles>(in, row_tile_bytes);
      Multiply<kOutputTiles, kRowTiles>(in + in_tile_bytes(), row_tile_bytes);
    }
  }

  template <int kOutputTiles, int kRowTiles>
  void Multiply(const uint8_t* in, int64_t row_tile_bytes) const {
    _tile_loadd(6, in, in_row_bytes());
    if constexpr (kRowTiles == 2) _tile_loadd(7, in + row_tile_bytes, in_row_bytes());
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kOutputTiles == 2) _tile_dpbf16ps(1, 5, 6);
    if constexpr (kRowTiles == 2) _tile_dpbf16ps(2, 4, 7);
    if constexpr (kOutputTiles == 2 && kRowTiles == 2) _tile_dpbf16ps(3, 5, 7);
  }

  // Loads weights at the border, padded with zeros.
  template <int kOutputTiles>
  void LoadPart(const uint8_t* weights, int64_t output, int64_t columns) {
    alignas(64) uint8_t tiles[kOutputTiles * kTileBytes] = {};
    const int64_t outputs = Least(kOutputTiles * kTileOutputs, p_.last_output - output);
    for (int64_t o = 0; o < outputs; ++o) {
      __builtin_memcpy(tiles + o * 64, weights + o * row_bytes_, columns * 2);
    }
    _tile_loadd(4, tiles, 64);
    if constexpr (kOutputTiles == 2) _tile_loadd(5, tiles + kTileBytes, 64);
  }

  // Rows of weights are far apart, and the hardware prefetcher does not predict the next panel.
  template <int kOutputTiles>
  void PrefetchAhead(int64_t output, int64_t step) const {
    int64_t ahead = step + kTilesAhead[kOutputTiles - 1];
    if (ahead >= steps_) {
      ahead -= steps_;
      output += kOutputTiles * kTileOutputs;
      if (ahead >= steps_ || output + kOutputTiles * kTileOutputs > p_.last_output) return;
    }
    const uint8_t* from = weights_ + output * row_bytes_ + ahead * 64;
#pragma GCC unroll 32
    for (int64_t o = 0; o < kOutputTiles * kTileOutputs; ++o) {
      __builtin_prefetch(from + o * row_bytes_);
    }
  }

  template <int kOutputTiles, int kRowTiles>
  void Store(int64_t output, int64_t row) {
    alignas(64) float sums[4][kTileOutputs * kTileRows];
    _tile_stored(0, sums[0], kTileRows * 4);
    if constexpr (kOutputTiles == 2) _tile_stored(1, sums[1], kTileRows * 4);
    if constexpr (kRowTiles == 2) _tile_stored(2, sums[2], kTileRows * 4);
    if constexpr (kOutputTiles == 2 && kRowTiles == 2) _tile_stored(3, sums[3], kTileRows * 4);
    for (int r = 0; r < kRowTiles; ++r) {
      const int64_t first_row = row + r * kTileRows;
      const int64_t rows = Least(p_.num_rows - first_row, kTileRows);
      for (int o = 0; o < kOutputTiles; ++o) {
        const int64_t first = output + o * kTileOutputs;
        Finish(sums[r * 2 + o], kTileRows, p_, first, Least(p_.last_output - first, kTileOutputs),
               first_row, rows);
      }
    }
  }

  const MatmulParams& p_;
  const uint8_t* const weights_;
  const int64_t columns_, row_bytes_, steps_;
  uint8_t* const packed_;
  int64_t width_ = kTileRows;  // input rows in a tile of this block
};

}  // namespace

void MatmulBf16(const MatmulParams& params) {
  Bf16Matmul(params, AlignedScratch(params)).Run();
}

}  // namespace nereid::cpu::amx
