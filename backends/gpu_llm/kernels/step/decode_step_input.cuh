// Inputs of the matrix products of a fused decode step: a block of threads loads the activations
// that others have computed, norms them, and keeps them in the form in which MultiplyKTile() takes
// them. Each warp has an eighth of the columns. Device code only.
#pragma once

#include <type_traits>

#include "backends/gpu_llm/kernels/attention/cache_quantization.cuh"
#include "backends/gpu_llm/kernels/gemm/int4_bytes.cuh"
#include "backends/gpu_llm/kernels/gemm/int4_subnormal.cuh"
#include "backends/gpu_llm/kernels/step/decode_step_exchange.cuh"
#include "backends/gpu_llm/kernels/step/decode_step_ring.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step {

// Columns of a K tile that a warp has, and the fragments of 8 columns that a thread has of them.
template <WeightFormat kFormat>
constexpr int kWarpColumns = Chunk<kFormat>::kKTileColumns / kWarps;
template <WeightFormat kFormat>
constexpr int kFragments = kWarpColumns<kFormat> / 32;

// The first column of a fragment of lane 4 g + t.
template <WeightFormat kFormat>
__device__ __forceinline__ int FragmentColumn(int fragment, int t) {
  const int first = static_cast<int>(threadIdx.x) / 32 * kWarpColumns<kFormat>;
  if constexpr (kFormat == WeightFormat::kFp8)
    return first + fragment / 2 * 64 + 16 * t + fragment % 2 * 8;
  return first + fragment * 32 + 8 * t;
}

// The input of a K tile in the form that MultiplyKTile() uses. kOneRow: of a step with one row.
template <WeightFormat kFormat, bool kOneRow>
struct KTile {
  uint4 x[kFragments<kFormat>];
  // int4: sums of x over the warp's columns, for rows 2 t and 2 t + 1, as a product with weights of
  // 1 has them.
  float sums[2] = {};
};
// Values in fp16, divided by an InputScale, which leaves the largest below 2^14. A lane has the
// scales of the rows of its sums: of the only row, or of rows 2 t and 2 t + 1.
template <bool kOneRow>
struct KTile<WeightFormat::kFp8, kOneRow> {
  uint4 x[kFragments<WeightFormat::kFp8>];
  float scales[kOneRow ? 1 : 2];
};
// The only row as bytes (int4_bytes.cuh), with a scale that the warp's K tiles share.
template <>
struct KTile<WeightFormat::kInt4, true> {
  uint2 bytes[kFragments<WeightFormat::kInt4>];  // lanes with even g: high, with odd g: low
  int32_t sum;                                   // of the values
  float scale;
};
// The factor by which a product is smaller than its weights and input say.
template <WeightFormat kFormat, bool kOneRow>
constexpr float kOutputFactor = kFormat == WeightFormat::kFp8                ? kFp8Unit
                                : kFormat == WeightFormat::kInt4 && !kOneRow ? kInt4OutputFactor
                                                                             : 1.0f;

// Products of two pairs of bf16 values, rounded.
__device__ __forceinline__ uint32_t MultiplyPairs(uint32_t a, uint32_t b) {
  const __nv_bfloat162 product = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&a),
                                         *reinterpret_cast<const __nv_bfloat162*>(&b));
  return *reinterpret_cast<const uint32_t*>(&product);
}
// Fragments of int4 inputs as the weights' pairs need them.
template <WeightFormat kFormat>
__device__ __forceinline__ uint4 PrepareFragment(const uint4& x) {
  if constexpr (kFormat == WeightFormat::kInt4) {
    return {ScaleBf16Pair(x.x, kInt4EvenFactor), ScaleBf16Pair(x.y, kInt4OddFactor),
            ScaleBf16Pair(x.z, kInt4EvenFactor), ScaleBf16Pair(x.w, kInt4OddFactor)};
  } else {
    return x;
  }
}
// The same of fp8 inputs: fp16 values in the order of UnpackFp8(), multiplied by `factor`.
__device__ __forceinline__ uint4 PrepareFp8Fragment(const float (&values)[8], float factor) {
  const auto pair = [&](int i) {
    return PackHalf(values[i] * factor, values[i + kFp8PairStride] * factor);
  };
  constexpr int kSecond = kFp8PairStride == 1 ? 2 : 1;
  return {pair(0), pair(kSecond), pair(4), pair(4 + kSecond)};
}
template <WeightFormat kFormat>
__device__ __forceinline__ void PrepareKTile(KTile<kFormat, false>& k_tile) {
#pragma unroll
  for (uint4& x : k_tile.x) x = PrepareFragment<kFormat>(x);
  if constexpr (kFormat == WeightFormat::kInt4) {
    float sums[4] = {};
#pragma unroll
    for (const uint4& x : k_tile.x) {
      MatrixMultiplyAdd(sums, kInt4EvenOnes, kInt4EvenOnes, kInt4OddOnes, kInt4OddOnes, x.x, x.y);
      MatrixMultiplyAdd(sums, kInt4EvenOnes, kInt4EvenOnes, kInt4OddOnes, kInt4OddOnes, x.z, x.w);
    }
    k_tile.sums[0] = sums[0], k_tile.sums[1] = sums[1];
  }
}

// Prepares K tiles, which in fp8 have one scale for each row. Called by all lanes.
template <WeightFormat kFormat, int kCount>
__device__ __forceinline__ void PrepareKTiles(KTile<kFormat, false> (&k_tiles)[kCount]) {
  if constexpr (kFormat == WeightFormat::kFp8) {
    // Pairs of magnitudes: the values as floats, which are needed below, would all stay in
    // registers.
    __nv_bfloat162 pair = __floats2bfloat162_rn(0.0f, 0.0f);
    const auto add = [&](const uint32_t& words) {
      pair = __hmax2(pair, __habs2(*reinterpret_cast<const __nv_bfloat162*>(&words)));
    };
#pragma unroll
    for (const auto& k_tile : k_tiles) {
#pragma unroll
      for (const uint4& x : k_tile.x) add(x.x), add(x.y), add(x.z), add(x.w);
    }
    uint32_t largest = max(__float_as_uint(__low2float(pair)), __float_as_uint(__high2float(pair)));
    largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
    largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
    const InputScale scale(largest);
    const int first = static_cast<int>(threadIdx.x) % 4 * 8;  // a lane of row 2 t
    const float scales[2] = {__shfl_sync(0xffffffffu, scale.scale(), first),
                             __shfl_sync(0xffffffffu, scale.scale(), first + 4)};
#pragma unroll
    for (auto& k_tile : k_tiles) {
      k_tile.scales[0] = scales[0], k_tile.scales[1] = scales[1];
#pragma unroll
      for (uint4& x : k_tile.x) {
        float values[8];
        Unpack8(x, values);
        x = PrepareFp8Fragment(values, scale.factor());
      }
    }
  } else {
#pragma unroll
    for (auto& k_tile : k_tiles) PrepareKTile<kFormat>(k_tile);
  }
}

// Loads this thread's fragments of a K tile of the input; some words may not be ready yet. kAgain:
// only those fragments of which some are not.
template <WeightFormat kFormat, bool kAgain = false>
__device__ __forceinline__ void LoadKTile(int depth, const bf16* row, int first,
                                          KTile<kFormat, false>& k_tile) {
#pragma unroll
  for (int i = 0; i < kFragments<kFormat>; ++i) {
    const int column = first + FragmentColumn<kFormat>(i, threadIdx.x % 4);
    if (!kAgain) k_tile.x[i] = {};
    if (kAgain ? !IsReady(k_tile.x[i]) : row != nullptr && column < depth)
      k_tile.x[i] = LoadWords4(row + column);
  }
}
template <WeightFormat kFormat>
__device__ __forceinline__ bool IsReady(const KTile<kFormat, false>& k_tile) {
  bool is_ready = true;
#pragma unroll
  for (const uint4& x : k_tile.x) is_ready &= IsReady(x);
  return is_ready;
}
__device__ __forceinline__ const bf16* InputRow(const DecodeStepParams& p, const StepGemm& gemm) {
  const int g = threadIdx.x % 32 / 4;
  if (g >= p.num_rows) return nullptr;
  return gemm.in + (gemm.rows != nullptr ? gemm.rows[g] : g) * gemm.in_stride;
}

// A lane's share of the only row of a step. The lanes of a warp divide its columns of kKTiles K
// tiles among them, norm and convert them, and exchange the results in shared memory. Where lanes
// load what they multiply (several rows), four of 32 would do all of this.
template <WeightFormat kFormat, int kKTiles>
class RowShare {
 public:
  static constexpr int kTileFragments = kFragments<kFormat>;
  static constexpr int kEach = kKTiles * kTileFragments / 8;  // fragments of a lane
  static_assert(kKTiles * kTileFragments % 8 == 0);
  static constexpr int kMaxDepth = kKTiles * Chunk<kFormat>::kKTileColumns;

  // Whether any lane has an i-th fragment of this many columns.
  __device__ static __forceinline__ bool HasFragment(int i, int depth) {
    return i * (kMaxDepth / kEach) < depth;
  }
  // Loads this lane's columns. `row` points to the first column of the K tiles; `columns` of them
  // exist, the others are zero. Returns whether all words are ready.
  __device__ __forceinline__ bool Load(const bf16* row, int columns) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      words_[i] = {};
      if (Column(i) < columns) words_[i] = LoadWords4(row + Column(i));
    }
    return is_ready();
  }
  __device__ __forceinline__ bool is_ready() const {
    bool is_ready = true;
#pragma unroll
    for (const uint4& words : words_) is_ready &= IsReady(words);
    return is_ready;
  }

  // The weights or biases of a norm.
  struct Norm {
    uint4 words[kEach];

    // `weights`: null: zeros.
    __device__ __forceinline__ void Load(const bf16* weights, int columns) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        words[i] = {};
        if (weights != nullptr && Column(i) < columns)
          words[i] = __ldg(reinterpret_cast<const uint4*>(weights + Column(i)));
      }
    }
  };

  // This lane's values.
  __device__ __forceinline__ void Unpack(float (&values)[kEach][8]) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) Unpack8(words_[i], values[i]);
  }
  // Stores this lane's part, multiplied by `norm` unless that is null, and takes the warp's K
  // tiles. Returns the sum of this lane's squares.
  __device__ __forceinline__ float Exchange(const Norm* norm, SharedState& shared,
                                            KTile<kFormat, true> (&k_tiles)[kKTiles]) const {
    float squares = 0.0f, values[kEach][8];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      Unpack8(words_[i], values[i]);
      if (norm == nullptr) continue;
      float weights[8];
      Unpack8(norm->words[i], weights);
#pragma unroll
      for (int j = 0; j < 8; ++j)
        squares += values[i][j] * values[i][j], values[i][j] *= weights[j];
    }
    ExchangeValues(values, shared, k_tiles);
    return squares;
  }
  // The same of this lane's values of the row after a norm. K tiles behind `depth` have any values.
  __device__ static __forceinline__ void ExchangeValues(const float (&values)[kEach][8],
                                                        SharedState& shared,
                                                        KTile<kFormat, true> (&k_tiles)[kKTiles],
                                                        int depth = kMaxDepth) {
    // In the warp's part of SharedState::partials, which is of no other use if there is one row.
    const int warp = threadIdx.x / 32, t = threadIdx.x % 4;
    const auto place = [&](int at) {
      return reinterpret_cast<uint4*>(shared.partials[at / 64][warp]) + at % 64;
    };
    if constexpr (kFormat == WeightFormat::kInt4) {
      const float scale = StoreBytes(values, place, depth);
      __syncwarp();
#pragma unroll
      for (int k = 0; k < kKTiles; ++k) {
        KTile<kFormat, true>& to = k_tiles[k];
        int32_t sums[4] = {};
#pragma unroll
        for (int c = 0; c < kTileFragments; c += 2) {
          const uint4 two = *place(BytesPlace(k * kTileFragments + c, Group() % 2));
          to.bytes[c] = {two.x, two.y}, to.bytes[c + 1] = {two.z, two.w};
          ByteMultiplyAdd(sums, kByteOnes, kByteOnes, kByteOnes, kByteOnes, two.x, two.y);
          ByteMultiplyAdd(sums, kByteOnes, kByteOnes, kByteOnes, kByteOnes, two.z, two.w);
        }
        to.sum = 256 * sums[0] + sums[1], to.scale = scale;
      }
    } else {
      const InputScale scale = ScaleOf(values);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        if (!HasFragment(i, depth)) break;
        uint4& to = *place((8 * i + Group()) * 4 + t);
        if constexpr (kFormat == WeightFormat::kFp8) {
          to = PrepareFp8Fragment(values[i], scale.factor());
        } else {
          to = PrepareFragment<kFormat>(Pack8(values[i]));
        }
      }
      __syncwarp();
#pragma unroll
      for (int k = 0; k < kKTiles; ++k) {
        if constexpr (kFormat == WeightFormat::kFp8) k_tiles[k].scales[0] = scale.scale();
#pragma unroll
        for (int c = 0; c < kTileFragments; ++c)
          k_tiles[k].x[c] = *place((k * kTileFragments + c) * 4 + t);
      }
    }
    __syncwarp();  // before the next exchange
  }
  // The first column of this lane's i-th eight values.
  __device__ static __forceinline__ int Column(int i) {
    const int fragment = 8 * i + Group();
    return fragment / kTileFragments * Chunk<kFormat>::kKTileColumns +
           FragmentColumn<kFormat>(fragment % kTileFragments, threadIdx.x % 4);
  }

 private:
  __device__ static __forceinline__ int Group() {
    return threadIdx.x % 32 / 4;
  }
  // The place in shared memory of the high (half 0) or low (half 1) bytes of two adjacent
  // fragments, for this thread's columns.
  __device__ static __forceinline__ int BytesPlace(int fragment, int half) {
    return fragment / 2 * 8 + half * 4 + static_cast<int>(threadIdx.x) % 4;
  }

  // The scale of the warp's values.
  __device__ static __forceinline__ InputScale ScaleOf(const float (&values)[kEach][8]) {
    uint32_t largest = 0;
#pragma unroll
    for (const auto& of_fragment : values) largest = max(largest, LargestMagnitude(of_fragment));
    return InputScale(__reduce_max_sync(0xffffffffu, largest));
  }
  // Stores values as bytes: of the columns that are even nibbles of a word of weights, and of those
  // that are odd ones. Returns their scale.
  template <typename Place>
  __device__ static __forceinline__ float StoreBytes(const float (&values)[kEach][8],
                                                     const Place& place, int depth) {
    const InputScale scale = ScaleOf(values);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (!HasFragment(i, depth)) break;
      const InputBytes bytes = ToInputBytes(values[i], scale.factor());
      const int fragment = 8 * i + Group();
      const auto store = [&](int half, const uint2& words) {
        reinterpret_cast<uint2*>(place(BytesPlace(fragment, half)))[fragment % 2] = words;
      };
      store(0, bytes.high);
      store(1, bytes.low);
    }
    return scale.scale();
  }

  uint4 words_[kEach];
};

// A chunk of an input of any depth, without a norm.
template <WeightFormat kFormat, bool kOneRow>
class ChunkInput {
 public:
  // bf16 inputs need no conversion, and a chunk may be too short for all lanes.
  static constexpr bool kIsByRow = kOneRow && kFormat != WeightFormat::kBf16 &&
                                   Chunk<kFormat>::kKTiles * kFragments<kFormat> % 8 == 0;
  struct KTiles {
    KTile<kFormat, kIsByRow> all[Chunk<kFormat>::kKTiles];
  };

  // The row of the step that this thread loads, and its beginning; null: none.
  __device__ static __forceinline__ int RowIndex() {
    return kIsByRow ? 0 : static_cast<int>(threadIdx.x) % 32 / 4;
  }
  __device__ static __forceinline__ const bf16* Row(const DecodeStepParams& p,
                                                    const StepGemm& gemm) {
    return kIsByRow ? gemm.in : InputRow(p, gemm);
  }
  // `row`: null: zeros.
  __device__ __forceinline__ void Load(int depth, const bf16* row, int column) {
    if constexpr (kIsByRow) {
      raw_.Load(row + column, row == nullptr ? 0 : depth - column);
    } else {
#pragma unroll
      for (int i = 0; i < Chunk<kFormat>::kKTiles; ++i)
        LoadKTile<kFormat>(depth, row, column + i * Chunk<kFormat>::kKTileColumns, raw_.all[i]);
    }
  }
  __device__ __forceinline__ bool is_ready() const {
    if constexpr (kIsByRow) {
      return raw_.is_ready();
    } else {
      bool all = true;
#pragma unroll
      for (const auto& k_tile : raw_.all) all &= IsReady<kFormat>(k_tile);
      return all;
    }
  }
  // Called by all lanes.
  __device__ __forceinline__ void Prepare(SharedState& shared, KTiles& to) const {
    if constexpr (kIsByRow) {
      raw_.Exchange(nullptr, shared, to.all);
    } else {
      to = raw_;
      PrepareKTiles<kFormat>(to.all);
    }
  }

 private:
  std::conditional_t<kIsByRow, RowShare<kFormat, Chunk<kFormat>::kKTiles>, KTiles> raw_;
};

// An input of up to kResident columns, in registers.
template <WeightFormat kFormat, int kResident, bool kOneRow>
struct ResidentInput {
  static constexpr int kKTiles = kResident / Chunk<kFormat>::kKTileColumns;
  KTile<kFormat, kOneRow> k_tiles[kKTiles];
};

// Loads the only row of a step, with or without a norm.
template <WeightFormat kFormat, int kResident>
__device__ __forceinline__ void LoadResident(const DecodeStepParams& p, const StepGemm& gemm,
                                             Consumer& consumer,
                                             ResidentInput<kFormat, kResident, true>& input) {
  using Share = RowShare<kFormat, ResidentInput<kFormat, kResident, true>::kKTiles>;
  Share share;
  typename Share::Norm norm;
  if (gemm.norm != nullptr) norm.Load(gemm.norm, gemm.depth);
  const bf16* row = gemm.in;
  if (gemm.rows != nullptr) row += gemm.rows[0] * gemm.in_stride;
  const auto load = [&] { return share.Load(row, gemm.depth); };
  if (gemm.in_is_complete) {
    load();
  } else {
    SpinUntilReady(p, consumer.shared(), load);
  }
  SharedState& shared = consumer.shared();
  if (gemm.norm != nullptr) {
    const float squares = WarpSum(share.Exchange(&norm, shared, input.k_tiles));
    if (threadIdx.x % 32 == 0) shared.squares[0][threadIdx.x / 32] = squares;
  } else {
    share.Exchange(nullptr, shared, input.k_tiles);
  }
}

// Loads each thread's fragments of a row of an input. `row`: null: zeros. Unless is_complete, other
// blocks may still store the row: a thread polls its first fragment until that is ready, and then
// all of them.
template <WeightFormat kFormat, int kKTiles>
__device__ __forceinline__ void LoadRow(const DecodeStepParams& p, const SharedState& shared,
                                        const bf16* row, int depth, bool is_complete,
                                        KTile<kFormat, false> (&k_tiles)[kKTiles]) {
  if (!is_complete) {
    const int column = FragmentColumn<kFormat>(0, static_cast<int>(threadIdx.x) % 4);
    SpinUntilReady(p, shared, [&] {
      return row == nullptr || column >= depth || IsReady(LoadWords4(row + column));
    });
  }
#pragma unroll
  for (int k_tile = 0; k_tile < kKTiles; ++k_tile)
    LoadKTile<kFormat>(depth, row, k_tile * Chunk<kFormat>::kKTileColumns, k_tiles[k_tile]);
  const auto is_ready = [&] {
    bool all = true;
#pragma unroll
    for (int k_tile = 0; k_tile < kKTiles; ++k_tile) all &= IsReady<kFormat>(k_tiles[k_tile]);
    return all;
  };
  if (!is_complete && !__all_sync(0xffffffffu, is_ready())) {
    SpinUntilReady(p, shared, [&] {
#pragma unroll
      for (int k_tile = 0; k_tile < kKTiles; ++k_tile) {
        LoadKTile<kFormat, true>(depth, row, k_tile * Chunk<kFormat>::kKTileColumns,
                                 k_tiles[k_tile]);
      }
      return is_ready();
    });
  }
}

// Loads an input, with or without a norm. Everything else is loaded before.
template <WeightFormat kFormat, int kResident>
__device__ __forceinline__ void LoadResident(const DecodeStepParams& p, const StepGemm& gemm,
                                             Consumer& consumer,
                                             ResidentInput<kFormat, kResident, false>& input) {
  using Shape = Chunk<kFormat>;
  constexpr int kKTiles = ResidentInput<kFormat, kResident, false>::kKTiles;
  constexpr int kTileFragments = kFragments<kFormat>, kAllFragments = kKTiles * kTileFragments;
  constexpr int kNormFragments = 16;  // whose norm weights fit in the memory of a warp's sums
  static_assert(kAllFragments == kNormFragments || kAllFragments == 2 * kNormFragments);
  const int depth = gemm.depth;
  const bf16* const norm_weights = gemm.norm;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const auto norms = [&](int fragment) {
    return reinterpret_cast<uint4*>(consumer.shared().partials[fragment / kNormFragments][warp]) +
           fragment % kNormFragments * 4;
  };
  if (norm_weights != nullptr) {
#pragma unroll
    for (int i = 0; i < kAllFragments / 8; ++i) {
      const int fragment = 8 * i + lane / 4;
      const int column = fragment / kTileFragments * Shape::kKTileColumns +
                         FragmentColumn<kFormat>(fragment % kTileFragments, lane % 4);
      uint4 norm = {};
      if (column < depth) norm = __ldg(reinterpret_cast<const uint4*>(norm_weights + column));
      norms(fragment)[lane % 4] = norm;
    }
    __syncwarp();
  }
  auto& k_tiles = input.k_tiles;
  LoadRow<kFormat>(p, consumer.shared(), InputRow(p, gemm), depth, gemm.in_is_complete, k_tiles);
  if (norm_weights != nullptr) {
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < kAllFragments; ++i) {
      uint4& x = k_tiles[i / kTileFragments].x[i % kTileFragments];
      float values[8];
      Unpack8(x, values);
#pragma unroll
      for (const float value : values) squares += value * value;
      const uint4 norm = norms(i)[lane % 4];
      x = {MultiplyPairs(x.x, norm.x), MultiplyPairs(x.y, norm.y), MultiplyPairs(x.z, norm.z),
           MultiplyPairs(x.w, norm.w)};
    }
    squares += __shfl_xor_sync(0xffffffffu, squares, 1);
    squares += __shfl_xor_sync(0xffffffffu, squares, 2);
    if (lane % 4 == 0) consumer.shared().squares[lane / 4][warp] = squares;
    __syncwarp();  // before this warp's sums overwrite its norm weights
  }
  PrepareKTiles<kFormat>(k_tiles);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step
