// Products of few rows with int4 weights as products of bytes (int4_bytes.cuh), in the stream GEMM
// of both forms. Unpacking takes three instructions for eight weights instead of eleven, and a
// product of the tensor cores has twice the depth and up to four rows. Every block of threads
// converts the whole input to bytes in its shared memory, with the norm. Device code only.
#pragma once

#include "backends/gpu_llm/kernels/gemm/gemm.h"
#include "backends/gpu_llm/kernels/gemm/int4_bytes.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::stream_bytes {

constexpr int kBlockSteps = kInt4BlockColumns / 32;  // products of the tensor cores

// The input in shared memory. A block is the part of a row that belongs to a block of weights:
// kInt4BlockColumns columns.
struct ByteInput {
  // For each block and row 16 words of 16 bytes, by half of the columns, then high and low bytes,
  // then t: what lane 4 g + t multiplies in the two steps of that half.
  uint4* words;
  int4* sums;  // of the integers of each step of 32 columns
  float* scales;
  int num_rows;

  // Operand b always has four rows. The first row stands in for those that do not exist, and the
  // sums that it gives there are ignored.
  __device__ int Row(int row) const { return row < num_rows ? row : 0; }

  __device__ ByteInput(char* shared, int depth, int rows) : num_rows(rows) {
    const int count = NumInt4Blocks(depth) * rows;
    words = reinterpret_cast<uint4*>(shared);
    sums = reinterpret_cast<int4*>(words + 16 * count);
    scales = reinterpret_cast<float*>(sums + count);
  }
};

// Converts a block of a row, of which each lane of half a warp has eight columns, and writes it
// unless `exists` is false. Called by the whole warp, each half for a block of its own.
__device__ __forceinline__ void StoreBlock(const ByteInput& input, const float (&values)[8],
                                           int row, int block, bool exists) {
  uint32_t largest = LargestMagnitude(values);
#pragma unroll
  for (int lanes = 8; lanes > 0; lanes /= 2)
    largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, lanes));
  const InputScale scale(largest);
  InputBytes bytes = ToInputBytes(values, scale.factor());
  bytes.sum += __shfl_xor_sync(0xffffffffu, bytes.sum, 1);  // of the four lanes of a step
  bytes.sum += __shfl_xor_sync(0xffffffffu, bytes.sum, 2);
  if (!exists) return;
  const int part = threadIdx.x % 16, step = part / 4, t = part % 4;
  const int at = block * input.num_rows + row;
  uint2* const words = reinterpret_cast<uint2*>(input.words + 16 * at + step / 2 * 8 + t);
  words[step % 2] = bytes.high;
  words[8 + step % 2] = bytes.low;
  if (t == 0) reinterpret_cast<int32_t*>(input.sums + at)[step] = bytes.sum;
  if (part == 0) input.scales[at] = scale.scale();
}

// Writes the input rows to shared memory as bytes, multiplied by the norm's weights if there is a
// norm. Each row has `warps_a_row` warps, and half a warp converts one block at a time.
// `squares[row]` gets the sum of squares of each of these warps' columns. Called by kWarps warps.
template <int kWarps>
__device__ void FillBytes(const StreamGemmParams& p, int warps_a_row, const ByteInput& input,
                          float (*squares)[kWarps]) {
  constexpr int kAtOnce = 4;  // blocks whose loads are under way together
  const int warp = threadIdx.x / 32, half = threadIdx.x % 32 / 16, part = threadIdx.x % 16;
  const int depth = p.weights.depth;
  const int num_blocks = NumInt4Blocks(depth);
  for (int row = warp / warps_a_row; row < p.num_rows; row += kWarps / warps_a_row) {
    const int64_t from_row = p.rows != nullptr ? p.rows[row] : row;
    const bf16* const from = p.in + from_row * depth;
    float squared = 0.0f;
    for (int first = 2 * (warp % warps_a_row); first < num_blocks;
         first += 2 * warps_a_row * kAtOnce) {
      uint4 loaded[kAtOnce], norms[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int column = (first + 2 * warps_a_row * i + half) * kInt4BlockColumns + 8 * part;
        loaded[i] = norms[i] = {};
        if (column >= depth) continue;
        loaded[i] = *reinterpret_cast<const uint4*>(from + column);
        if (p.norm_weight != nullptr)
          norms[i] = *reinterpret_cast<const uint4*>(p.norm_weight + column);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int block = first + 2 * warps_a_row * i + half;
        if (block - half >= num_blocks) break;
        float values[8];
        Unpack8(loaded[i], values);
        if (p.norm_weight != nullptr) {
          float weights[8];
          Unpack8(norms[i], weights);
#pragma unroll
          for (int j = 0; j < 8; ++j) squared += values[j] * values[j], values[j] *= weights[j];
        }
        StoreBlock(input, values, row, block, block < num_blocks);
      }
    }
    squared = WarpSum(squared);
    if (threadIdx.x % 32 == 0) squares[row][warp % warps_a_row] = squared;
  }
}

// What a lane needs of the input to multiply a block of weights. A row of the input is two of the
// eight columns of operand b.
struct BlockInput {
  uint4 words[2];  // of row g / 2, of which this lane has a column of operand b
  int4 sums;       // of row t, of which this lane gets the products
  float scale;

  __device__ __forceinline__ void Load(const ByteInput& input, int block) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int first = block * input.num_rows;
    const uint4* const from = input.words + 16 * (first + input.Row(g / 2)) + g % 2 * 4 + t;
    words[0] = from[0], words[1] = from[8];
    sums = input.sums[first + input.Row(t)], scale = input.scales[first + input.Row(t)];
  }
};

// A thread's part of a block of weights, for rows g and g + 8 of the tile.
template <bool kOneScale>
struct WeightBlock {
  static constexpr int kScales = kOneScale ? 1 : kBlockSteps;
  uint4 halves[2];
  uint32_t scales[2][kScales];  // kOneScale: of the block, else of each step

  // `load_words` and `load_scale` read an element at an address.
  template <typename LoadWords, typename LoadScale>
  __device__ __forceinline__ void Load(const char* block, int scales_per_block,
                                       const LoadWords& load_words, const LoadScale& load_scale) {
    const int lane = threadIdx.x % 32;
    const auto* words = reinterpret_cast<const uint4*>(block) + lane;
    halves[0] = load_words(words), halves[1] = load_words(words + 32);
    const auto* of_rows = reinterpret_cast<const uint32_t*>(block + kInt4ValueBytes) + lane / 4;
#pragma unroll
    for (int s = 0; s < kScales; ++s) {
      const auto* at = of_rows + s * scales_per_block / kBlockSteps * kInt4TileRows;
      scales[0][s] = load_scale(at), scales[1][s] = load_scale(at + 8);
    }
  }
};

// totals[i] += weights x input: output g + 8 i, row t.
template <bool kOneScale>
__device__ __forceinline__ void MultiplyBlock(const WeightBlock<kOneScale>& weights,
                                              const BlockInput& x, float (&totals)[2]) {
  constexpr uint32_t kMask = 0x0f0f0f0fu;
  const int32_t sums[kBlockSteps] = {x.sums.x, x.sums.y, x.sums.z, x.sums.w};
  int32_t products[4] = {}, sum = 0;
#pragma unroll
  for (int s = 0; s < kBlockSteps; ++s) {
    const uint4 &half = weights.halves[s / 2], &in = x.words[s / 2];
    const uint32_t low = s % 2 == 0 ? half.x : half.z, high = s % 2 == 0 ? half.y : half.w;
    ByteMultiplyAdd(products, low & kMask, high & kMask, low >> 4 & kMask, high >> 4 & kMask,
                    s % 2 == 0 ? in.x : in.z, s % 2 == 0 ? in.y : in.w);
    sum += sums[s];
    if (kOneScale && s + 1 < kBlockSteps) continue;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t word = weights.scales[i][kOneScale ? 0 : s];
      const int32_t product =
          256 * products[2 * i] + products[2 * i + 1] - static_cast<int32_t>(word & 31u) * sum;
      totals[i] += static_cast<float>(product) * (__uint_as_float(word & ~31u) * x.scale);
      products[2 * i] = products[2 * i + 1] = 0;
    }
    sum = 0;
  }
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::stream_bytes
