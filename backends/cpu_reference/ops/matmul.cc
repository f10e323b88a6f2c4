// Matrix product in tiles of MR rows x NR outputs. Each element of a tile is a vector of partial
// sums over the columns. Memory-bound for few rows (weights are read once), compute-bound for many.
#include "backends/cpu_reference/ops/matmul.h"

#include "backends/cpu_reference/ops/simd.h"

namespace nereid::cpu::NEREID_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kMaxRows = 6;  // 6 x 4 sums + 6 inputs + 1 weight: 31 of 32 registers
#else
constexpr int kMaxRows = 2;
#endif
// The weights stream from memory as NR short rows in parallel, which the hardware prefetcher does
// not predict. The first tile of a panel prefetches as many bytes as it reads, this far ahead in
// memory order. For the rows that follow, the weights of the panel are in a cache.
constexpr int64_t kPrefetchBytes = 16384;

template <typename W>
struct MatmulTile {
  const float* in;   // first row
  const W* weights;  // first output
  int64_t columns;
  const float* scales;        // of the first output, or null
  const float* bias;          // of the first output, or null
  const float* block_scales;  // for Fp8Blocks
  int64_t first_output;
  float* out;
  int64_t out_stride;
  bool accumulate;
  bool prefetches = true;
};

// With block scales, each weight is multiplied by its scale, with one additional rounding.
template <typename W>
NEREID_INLINE VecF Scaled(const MatmulTile<W>&, int, int64_t, VecF weights) {
  return weights;
}
NEREID_INLINE VecF Scaled(const MatmulTile<Fp8Blocks>& tile, int n, int64_t column, VecF weights) {
  const int64_t num_blocks = (tile.columns + kF8Block - 1) / kF8Block;
  const int64_t row = (tile.first_output + n) / kF8Block * num_blocks;
  return weights * tile.block_scales[row + column / kF8Block];
}

NEREID_INLINE void Finish4(float* out, Vec4 sums, const float* scales, const float* bias,
                           bool accumulate) {
  // Explicit type: `auto` would drop the alignment of 1.
  Vec4Unaligned* to = reinterpret_cast<Vec4Unaligned*>(out);
  if (scales != nullptr) sums *= *reinterpret_cast<const Vec4Unaligned*>(scales);
  if (bias != nullptr) sums += *reinterpret_cast<const Vec4Unaligned*>(bias);
  *to = accumulate ? *to + sums : sums;
}

template <int MR, int NR, typename T>
NEREID_INLINE void FinishTile(const T& tile, const VecF (&sums)[MR][NR]) {
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m) {
    float* out = tile.out + m * tile.out_stride;
    if constexpr (NR % 4 == 0) {
#pragma GCC unroll 2
      for (int n = 0; n < NR; n += 4) {
        Finish4(out + n, Reduce4(sums[m][n], sums[m][n + 1], sums[m][n + 2], sums[m][n + 3]),
                tile.scales != nullptr ? tile.scales + n : nullptr,
                tile.bias != nullptr ? tile.bias + n : nullptr, tile.accumulate);
      }
    } else {
#pragma GCC unroll 8
      for (int n = 0; n < NR; ++n) {
        float sum = Reduce(sums[m][n]);
        if (tile.scales != nullptr) sum *= tile.scales[n];
        if (tile.bias != nullptr) sum += tile.bias[n];
        out[n] = tile.accumulate ? out[n] + sum : sum;
      }
    }
  }
}

template <int MR, int NR, typename W>
__attribute__((noinline)) void RunTile(const MatmulTile<W>& tile) {
  VecF sums[MR][NR] = {};
  const int64_t columns = tile.columns;
  const int64_t whole = columns - columns % kLanes;
  for (int64_t k = 0; k < whole; k += kLanes) {
    if (MR < kMaxRows || tile.prefetches) {  // a whole tile may be one of many
      const char* ahead = reinterpret_cast<const char*>(tile.weights + k * NR) + kPrefetchBytes;
#pragma GCC unroll 16
      for (int b = 0; b < NR * kLanes * static_cast<int>(sizeof(W)); b += 64) {
        __builtin_prefetch(ahead + b);
      }
    }
    VecF in[MR];
#pragma GCC unroll 8
    for (int m = 0; m < MR; ++m) in[m] = Load(tile.in + m * columns + k);
#pragma GCC unroll 8
    for (int n = 0; n < NR; ++n) {
      const VecF weights = Scaled(tile, n, k, LoadWeights(tile.weights + n * columns + k));
#pragma GCC unroll 8
      for (int m = 0; m < MR; ++m) sums[m][n] = MulAdd(in[m], weights, sums[m][n]);
    }
  }
  if (whole != columns) {
    const int rest = static_cast<int>(columns - whole);
    VecF in[MR];
#pragma GCC unroll 8
    for (int m = 0; m < MR; ++m) in[m] = LoadPart(tile.in + m * columns + whole, rest);
#pragma GCC unroll 8
    for (int n = 0; n < NR; ++n) {
      const VecF weights =
          Scaled(tile, n, whole, LoadWeightsPart(tile.weights + n * columns + whole, rest));
#pragma GCC unroll 8
      for (int m = 0; m < MR; ++m) sums[m][n] = MulAdd(in[m], weights, sums[m][n]);
    }
  }
  FinishTile<MR, NR>(tile, sums);
}

// Computes all outputs of a panel for MR rows.
template <int MR, typename W>
NEREID_INLINE void RunRows(MatmulTile<W> tile, int64_t num_outputs) {
  // With few rows, more outputs in flight hide the latency.
  [[maybe_unused]] constexpr int kWide = MR <= 3 ? 8 : 4;
  const auto advance = [&](int64_t outputs) {
    tile.weights += outputs * tile.columns;
    tile.out += outputs;
    tile.first_output += outputs;
    if (tile.scales != nullptr) tile.scales += outputs;
    if (tile.bias != nullptr) tile.bias += outputs;
    num_outputs -= outputs;
  };
#if defined(__AVX512F__)
  for (; num_outputs >= kWide; advance(kWide)) RunTile<MR, kWide>(tile);
#endif
  for (; num_outputs >= 4; advance(4)) RunTile<MR, 4>(tile);  // NOLINT: advance() updates it
  for (; num_outputs > 0; advance(1)) RunTile<MR, 1>(tile);   // NOLINT: advance() updates it
}

template <typename W>
void RunPanel(MatmulTile<W> tile, int64_t num_rows, int64_t num_outputs) {
  while (num_rows > 0) {
    const int64_t rows = num_rows < kMaxRows ? num_rows : kMaxRows;
    switch (rows) {
      case 1:
        RunRows<1>(tile, num_outputs);
        break;
      case 2:
        RunRows<2>(tile, num_outputs);
        break;
#if defined(__AVX512F__)
      case 3:
        RunRows<3>(tile, num_outputs);
        break;
      case 4:
        RunRows<4>(tile, num_outputs);
        break;
      case 5:
        RunRows<5>(tile, num_outputs);
        break;
      case 6:
        RunRows<6>(tile, num_outputs);
        break;
#endif
    }
    tile.in += rows * tile.columns;
    tile.out += rows * tile.out_stride;
    tile.prefetches = false;
    num_rows -= rows;
  }
}

// The tile of the panel that starts at output `first`. `weights` points to its rows.
template <typename W>
MatmulTile<W> PanelOf(const MatmulParams& p, int64_t first, const W* weights) {
  return {p.in,
          weights,
          p.weights.columns,
          p.weights.row_scales != nullptr ? p.weights.row_scales + first : nullptr,
          p.bias != nullptr ? p.bias + first : nullptr,
          p.weights.block_scales,
          first,
          p.out + first,
          p.out_stride,
          p.accumulate};
}

// Calls run(first output, number of outputs) for each panel.
template <typename F>
NEREID_INLINE void ForEachPanel(const MatmulParams& p, F run) {
  for (int64_t first = p.first_output; first < p.last_output; first += kOutputsPerPanel) {
    const int64_t left = p.last_output - first;
    run(first, left < kOutputsPerPanel ? left : kOutputsPerPanel);
  }
}

template <typename W>
void Run(const MatmulParams& p) {
  ForEachPanel(p, [&](int64_t first, int64_t count) {
    const W* weights = static_cast<const W*>(p.weights.data) + first * p.weights.columns;
    RunPanel(PanelOf(p, first, weights), p.num_rows, count);
  });
}

}  // namespace

void MatmulIntegers(const MatmulParams& params);  // in matmul_int.cc

void Matmul(const MatmulParams& params) {
  switch (params.weights.type) {
    case WeightFormat::kF32:
      return Run<float>(params);
    case WeightFormat::kBf16:
      return Run<Bf16>(params);
    case WeightFormat::kF16:
      return Run<Fp16>(params);
    case WeightFormat::kF8E4M3:
      return params.weights.block_scales != nullptr ? Run<Fp8Blocks>(params) : Run<Fp8>(params);
    case WeightFormat::kInt4:
    case WeightFormat::kInt8:
      return MatmulIntegers(params);
  }
}

}  // namespace nereid::cpu::NEREID_ISA
