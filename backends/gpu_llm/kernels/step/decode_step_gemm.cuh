// Matrix products of a fused decode step. A tile is 16 outputs, operand a of the mma. The rows of
// the step are the columns of operand b, always padded to 8. Each warp has an eighth of the depth
// and keeps its part of the input in registers, if it fits. The warps' sums are added when a tile
// ends. The factor of the norm, which depends on the whole row, is applied to the sums. Device code
// only.
#pragma once

#include "backends/gpu_llm/kernels/rows/activate.cuh"
#include "backends/gpu_llm/kernels/step/decode_step_general.cuh"
#include "backends/gpu_llm/kernels/step/decode_step_scales.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step {

// A warp's part of a K tile: sums += weights x input. `columns`: columns of the depth from the K
// tile on; kIsWhole: at least those of a K tile.
template <WeightFormat kFormat, bool kOneRow, bool kIsWhole = false>
__device__ __forceinline__ void MultiplyKTile(const char* slot, int k_tile, int columns,
                                              const KTile<kFormat, kOneRow>& in, float (&sums)[4]) {
  using Shape = Chunk<kFormat>;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  if (!kIsWhole && warp * kWarpColumns<kFormat> >= columns) return;
  if constexpr (kFormat == WeightFormat::kInt4 && kOneRow) {
    const char* block =
        slot + (k_tile * (Shape::kKTileColumns / kInt4BlockColumns) + warp) * Shape::kBlockBytes;
    const auto* scales = reinterpret_cast<const uint32_t*>(block + kInt4ValueBytes) + g;
    constexpr uint32_t kMask = 0x0f0f0f0fu;
    int32_t products[4] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 words = reinterpret_cast<const uint4*>(block)[half * 32 + lane];
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        const uint32_t low = s == 0 ? words.x : words.z, high = s == 0 ? words.y : words.w;
        const uint2& x = in.bytes[2 * half + s];
        ByteMultiplyAdd(products, low & kMask, high & kMask, low >> 4 & kMask, high >> 4 & kMask,
                        x.x, x.y);
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t word = scales[8 * i];
      const int32_t product =
          256 * products[2 * i] + products[2 * i + 1] - static_cast<int32_t>(word & 31u) * in.sum;
      sums[2 * i] += static_cast<float>(product) * __uint_as_float(word & ~31u);
    }
  } else if constexpr (kFormat == WeightFormat::kInt4) {
    const char* block =
        slot + (k_tile * (Shape::kKTileColumns / kInt4BlockColumns) + warp) * Shape::kBlockBytes;
    const auto* scales = reinterpret_cast<const uint32_t*>(block + kInt4ValueBytes) + g;
    float even[4] = {}, odd[4] = {};  // two independent chains of mma
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 words = reinterpret_cast<const uint4*>(block)[half * 32 + lane];
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        uint32_t low[4], high[4];
        UnpackInt4Subnormal(s == 0 ? words.x : words.z, low);
        UnpackInt4Subnormal(s == 0 ? words.y : words.w, high);
        const uint4& x = in.x[2 * half + s];
        MatrixMultiplyAdd(even, low[0], high[0], low[1], high[1], x.x, x.y);
        MatrixMultiplyAdd(odd, low[2], high[2], low[3], high[3], x.z, x.w);
      }
    }
    const uint32_t scale[2] = {scales[0], scales[8]};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t word = scale[i / 2];
      const auto zero = static_cast<float>(word & 31u);
      sums[i] += (even[i] + odd[i] - zero * in.sums[i % 2]) * __uint_as_float(word & ~31u);
    }
  } else {
    constexpr int kSteps = kWarpColumns<kFormat> * Shape::kElementBytes / 64;
    const int first = warp * kWarpColumns<kFormat>;
    const char* row = slot + g * Shape::kPitch +
                      (k_tile * Shape::kKTileColumns + first) * Shape::kElementBytes + t * 16;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if (first + s * 64 / Shape::kElementBytes >= columns) break;
      const uint4 low = *reinterpret_cast<const uint4*>(row + s * 64);
      const uint4 high = *reinterpret_cast<const uint4*>(row + s * 64 + 8 * Shape::kPitch);
      if constexpr (kFormat == WeightFormat::kBf16) {
        const uint4& x = in.x[s];
        MatrixMultiplyAdd(sums, low.x, high.x, low.y, high.y, x.x, x.y);
        MatrixMultiplyAdd(sums, low.z, high.z, low.w, high.w, x.z, x.w);
      } else {
        const uint32_t lows[4] = {low.x, low.y, low.z, low.w};
        const uint32_t highs[4] = {high.x, high.y, high.z, high.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          uint32_t a[4];
          UnpackFp8(lows[i], a[0], a[2]);
          UnpackFp8(highs[i], a[1], a[3]);
          const uint4& x = in.x[2 * s + i / 2];
          HalfMultiplyAdd(sums, a[0], a[1], a[2], a[3], i % 2 == 0 ? x.x : x.z,
                          i % 2 == 0 ? x.y : x.w);
        }
      }
    }
  }
}

// Multiplies a warp's part of a slot, whose first column is column `first` of the depth. There is
// no branch between K tiles, so that the loads of one overlap with the products of another. `half`
// says whether the slot belongs to the pair's first tile (0) or its second one (1).
template <WeightFormat kFormat, bool kOneRow, typename Scales>
__device__ __forceinline__ void MultiplySlot(const char* slot, int half, int first, int depth,
                                             const KTile<kFormat, kOneRow>* k_tiles, Scales& scales,
                                             float (&sums)[4]) {
  const int columns = depth - first;
  using Shape = Chunk<kFormat>;
  if constexpr (kFormat == WeightFormat::kInt4) {
    float of_slot[4] = {};
    if (columns >= Shape::kColumns) {
#pragma unroll
      for (int i = 0; i < Shape::kKTiles; ++i)
        MultiplyKTile<kFormat, kOneRow, true>(slot, i, columns, k_tiles[i],
                                              kOneRow ? of_slot : sums);
    } else {
#pragma unroll
      for (int i = 0; i < Shape::kKTiles; ++i) {
        MultiplyKTile<kFormat, kOneRow>(slot, i, columns - i * Shape::kKTileColumns, k_tiles[i],
                                        kOneRow ? of_slot : sums);
      }
    }
    if constexpr (kOneRow) {
      sums[0] += of_slot[0] * k_tiles[0].scale;
      sums[2] += of_slot[2] * k_tiles[0].scale;
    }
  } else {
#pragma unroll
    for (int i = 0; i < Shape::kKTiles; ++i) {
      const int left = columns - i * Shape::kKTileColumns;
      if constexpr (kFormat == WeightFormat::kFp8) {
        float products[4] = {};
        MultiplyKTile<kFormat, kOneRow>(slot, i, left, k_tiles[i], products);
        scales.Add(half, first / Shape::kKTileColumns + i, k_tiles[i], products, sums);
      } else {
        MultiplyKTile<kFormat, kOneRow>(slot, i, left, k_tiles[i], sums);
      }
    }
  }
}

// The same for the next slots in the ring: one of each of `count` tiles, one or two.
template <WeightFormat kFormat, bool kOneRow, typename Scales>
__device__ __forceinline__ void MultiplySlots(Consumer& consumer, int count, int first, int depth,
                                              const KTile<kFormat, kOneRow>* k_tiles,
                                              Scales& scales, float (&sums)[2][4]) {
  if constexpr (kFormat == WeightFormat::kInt4 && !kOneRow) {
    // One copy of the code of a slot: two would slow down the fetching of instructions.
    const auto swap = [&] {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float first = sums[0][i];
        sums[0][i] = sums[1][i], sums[1][i] = first;
      }
    };
#pragma unroll 1
    for (int tile = 0; tile < count; ++tile) {
      MultiplySlot<kFormat, kOneRow>(consumer.Wait(), tile, first, depth, k_tiles, scales, sums[0]);
      consumer.Release();
      swap();
    }
    if (count == 1) swap();
  } else {
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      if (tile >= count) break;
      MultiplySlot<kFormat, kOneRow>(consumer.Wait(), tile, first, depth, k_tiles, scales,
                                     sums[tile]);
      consumer.Release();
    }
  }
}

// In a step with several rows, whose input takes too many registers to keep the product's fields in
// registers as well, copies `gemm` to shared memory and returns the copy. In a step with one row,
// returns `gemm` itself. All compute warps call it, and none of them may still read the copy of the
// previous product, which is overwritten.
template <bool kOneRow, typename Gemm>
__device__ __forceinline__ const Gemm& KeepGemm(const Gemm& gemm, SharedState& shared) {
  if constexpr (kOneRow) {
    return gemm;
  } else {
    Gemm& kept = shared.gemm;
    if (threadIdx.x == 0) kept = gemm;
    SyncConsumers();
    return kept;
  }
}

// Epilogue of a pair of tiles. In a step with several rows each thread stores one output of one
// row. In a step with one row a pair has 32 outputs, and one warp stores them, each lane one. The
// warps take turns at this, and those whose turn it is not continue with the next pair at once.
template <StepLayers kLayers, bool kOneRow>
class TilePairEpilogue {
  static constexpr bool kExperts = kLayers == StepLayers::kExperts;
  static constexpr bool kGeneral = kLayers == StepLayers::kGeneral;
  using Gemm = StepGemmOf<kLayers>;

 public:
  // `pair`: the number of this pair of tiles in the product.
  __device__ TilePairEpilogue(const DecodeStepParams& p, const Gemm& gemm, int first_tile,
                              int count, int pair, float output_factor)
      : product_(gemm), pair_(pair), scale_(output_factor) {
    const int thread = threadIdx.x, lane = thread % 32;
    const int half = kOneRow ? lane / 16 : thread / 128;  // which tile
    tile_ = first_tile + half * static_cast<int>(gridDim.x);
    token_ = kOneRow ? 0 : thread % 16 / 4 * 2 + thread % 2;
    place_ = kOneRow ? lane % 16 : thread % 128 / 16 + thread % 4 / 2 * 8;
    stores_ = half < count && token_ < p.num_rows;
    if (kOneRow) stores_ &= FinishesPair();
    row_ = token_ * gemm.out_stride;
    const float* row_scales = gemm.row_scales;
    if (kExperts && stores_ && gemm.experts != nullptr) {
      const int at = tile_ / gemm.tiles_each, rank = gemm.experts->ranks[at][token_];
      tile_ -= at * gemm.tiles_each;
      stores_ = rank >= 0;
      row_ += rank * gemm.tiles_each * (kTileOutputs / 2);
      if (stores_) weight_ = gemm.experts->weights[token_][rank];
      if (row_scales != nullptr) row_scales += gemm.experts->experts[at] * gemm.scale_stride;
    }
    output_ = tile_ * kTileOutputs + place_;
    if (kExperts && gemm.experts == nullptr) stores_ &= output_ < gemm.num_outputs;
    if (stores_ && gemm.addend != nullptr) addend_ = LoadWord(AddendWord());
    if (stores_ && row_scales != nullptr) scale_ *= row_scales[output_];
    if constexpr (kGeneral) {
      if (stores_ && gemm.bias != nullptr) bias_ = __bfloat162float(gemm.bias[output_]);
    }
  }

  __device__ void Finish(const DecodeStepParams& p, SharedState& shared,
                         const float (&sums)[2][4]) {
    float value;
    if (!Sum(shared, sums, value)) return;
    if (!kGeneral && product_.norm != nullptr) {
      float squares = 0.0f;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) squares += shared.squares[token_][w];
      value *= rsqrtf(squares / static_cast<float>(product_.depth) + p.epsilon);
    }
    value *= scale_;
    if constexpr (kGeneral) value += bias_;
    if (product_.output == GemmEpilogue::kFloat) {
      float* const to = static_cast<float*>(product_.out) + row_ + output_;
      if (stores_ && kExperts) StoreWord(to, __float_as_uint(value));
      if (stores_ && !kExperts) *to = value;
      return;
    }
    int column = output_;
    bool stores = stores_;
    const bool is_gated =
        product_.output == (kGeneral ? GemmEpilogue::kGate : GemmEpilogue::kSiluGate);
    if (is_gated) {
      const float up = __shfl_xor_sync(0xffffffffu, value, kOneRow ? 8 : 2);
      if constexpr (kGeneral) {
        value = RuntimeActivation(p.activation)(value) * up;
      } else {
        value = value / (1.0f + __expf(-value)) * up;
      }
      if constexpr (kExperts) value *= weight_;
      column = tile_ * (kTileOutputs / 2) + place_;
      stores &= place_ < kTileOutputs / 2;
    } else if (kGeneral && product_.output == GemmEpilogue::kActivate) {
      value = RuntimeActivation(p.activation)(value);
    } else if (product_.addend != nullptr) {
      if (!product_.addend_is_complete) {
        SpinUntilReady(p, shared, [&] {
          if (stores_ && addend_ == kNotReady) addend_ = LoadWord(AddendWord());
          return addend_ != kNotReady;
        });
      }
      value += output_ % 2 == 0 ? LowBf16(addend_) : HighBf16(addend_);
    }
    const float next = __shfl_xor_sync(0xffffffffu, value, kOneRow ? 1 : 16);  // the next column's
    if (stores && column % 2 == 0)
      StoreWord(static_cast<bf16*>(product_.out) + row_ + column, PackBf16(value, next));
  }

 private:
  // Whether it is this warp's turn to finish the pair, in a step with one row.
  __device__ bool FinishesPair() const {
    return static_cast<int>(threadIdx.x) / 32 == pair_ % kWarps;
  }
  // Adds up the sums that the warps have for this thread's output. Returns false if this thread has
  // no output.
  __device__ bool Sum(SharedState& shared, const float (&sums)[2][4], float& value) const {
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    value = 0.0f;
    if constexpr (kOneRow) {
      float(&all)[kWarps][32] = shared.row_sums[pair_ % kRowBuffers];
      if (lane % 4 == 0) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          all[warp][i / 2 * 16 + i % 2 * 8 + lane / 4] = sums[i / 2][i % 2 * 2];
      }
      const int barrier = kFirstRowBarrier + pair_ % kRowBuffers;
      if (!FinishesPair()) {
        asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"(32 * kWarps) : "memory");
        return false;
      }
      asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(32 * kWarps) : "memory");
#pragma unroll
      for (int w = 0; w < kWarps; ++w) value += all[w][lane];
    } else {
      auto& all = shared.partials[pair_ % 2];
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
        *reinterpret_cast<float4*>(all[warp][tile][lane]) = {sums[tile][0], sums[tile][1],
                                                             sums[tile][2], sums[tile][3]};
      }
      SyncConsumers();
#pragma unroll
      for (int w = 0; w < kWarps; ++w) value += all[w][thread / 128][thread % 128 / 4][thread % 4];
    }
    return true;
  }
  __device__ const bf16* AddendWord() const {
    return product_.addend + token_ * product_.addend_stride + output_ / 2 * 2;
  }

  const Gemm& product_;
  const int pair_;
  int tile_, place_, output_, token_, row_;  // place_: of the output in the tile
  bool stores_;
  uint32_t addend_ = 0;  // two columns of the addend
  float scale_, weight_ = 1.0f, bias_ = 0.0f;
};

template <StepLayers kLayers, WeightFormat kFormat, int kResident, bool kOneRow>
__device__ __forceinline__ void MultiplyLoaded(
    const DecodeStepParams& p, const StepGemmOf<kLayers>& gemm, Consumer& consumer,
    const ResidentInput<kFormat, kResident, kOneRow>& input) {
  using Shape = Chunk<kFormat>;
  constexpr int kKTiles = ResidentInput<kFormat, kResident, kOneRow>::kKTiles;
  static_assert(kKTiles % Shape::kKTiles == 0);
  const auto& k_tiles = input.k_tiles;
  const int depth = gemm.depth, grid = static_cast<int>(gridDim.x);
  const int num_tiles = (gemm.num_outputs + kTileOutputs - 1) / kTileOutputs;
  PairScales<kFormat, kLayers == StepLayers::kExperts> scales(gemm, consumer.shared().experts, 1);
  int pair = 0;
  for (int first = blockIdx.x; first < num_tiles; first += 2 * grid, ++pair) {
    const int count = first + grid < num_tiles ? 2 : 1;
    scales.Begin(first, 0, 0);
    TilePairEpilogue<kLayers, kOneRow> epilogue(p, gemm, first, count, pair,
                                                kOutputFactor<kFormat, kOneRow>);
    float sums[2][4] = {};
#pragma unroll
    for (int chunk = 0; chunk < kKTiles / Shape::kKTiles; ++chunk) {
      if (chunk * Shape::kColumns >= depth) break;
      MultiplySlots<kFormat, kOneRow>(consumer, count, chunk * Shape::kColumns, depth,
                                      k_tiles + chunk * Shape::kKTiles, scales, sums);
    }
    epilogue.Finish(p, consumer.shared(), sums);
  }
}

// For a depth of up to kResident columns.
template <WeightFormat kFormat, int kResident, StepLayers kLayers, bool kOneRow>
__device__ void MultiplyResident(const DecodeStepParams& p, const StepGemmOf<kLayers>& gemm,
                                 Consumer& consumer) {
  ResidentInput<kFormat, kResident, kOneRow> input;
  LoadResident(p, gemm, consumer, input);
  MultiplyLoaded<kLayers>(p, gemm, consumer, input);
}

// For any depth, without a norm. The input is read again for each pair of tiles, some K tiles
// ahead. The first pair starts with the columns that are ready. StepLayers::kExperts: the depth is
// that of one selected expert after the other, and a row that has not selected an expert has zeros
// there.
template <WeightFormat kFormat, StepLayers kLayers, bool kOneRow>
__device__ void MultiplyDeep(const DecodeStepParams& p, const StepGemmOf<kLayers>& gemm,
                             Consumer& consumer) {
  constexpr bool kExperts = kLayers == StepLayers::kExperts;
  using Shape = Chunk<kFormat>;
  using Input = ChunkInput<kFormat, kOneRow>;
  // In chunks.
  constexpr int kAhead = kFormat == WeightFormat::kBf16 ? 2048 / Shape::kColumns : 1;
  const int depth = gemm.depth, grid = static_cast<int>(gridDim.x);
  const SelectedExperts& selected = consumer.shared().experts;
  const int num_parts = kExperts ? selected.count : 1;
  const bf16* const first_row = Input::Row(p, gemm);
  struct Position {
    int part = 0, column = 0;
  };
  Input ahead[kAhead];
  Position next;
  const auto load_at = [&](Position from, Input& to) {
    const bf16* row = first_row;
    if constexpr (kExperts) {
      const int rank = row != nullptr ? selected.ranks[from.part][Input::RowIndex()] : -1;
      row = rank < 0 ? nullptr : row + rank * depth;
    }
    to.Load(depth, row, from.column);
  };
  const auto after = [&](Position position) {
    position.column += Shape::kColumns;
    if (position.column >= depth) {
      position.column = 0;
      if (kExperts && ++position.part == num_parts) position.part = 0;
    }
    return position;
  };
  const auto load = [&](Input& to) {
    load_at(next, to);
    next = after(next);
  };
  if (num_parts > 0) {
#pragma unroll
    for (Input& input : ahead) load(input);
  }
  const int num_tiles = gemm.num_outputs / kTileOutputs;
  PairScales<kFormat, kExperts> scales(gemm, selected, num_parts);
  int pair = 0;
  for (int first = blockIdx.x; first < num_tiles; first += 2 * grid, ++pair) {
    const int count = first + grid < num_tiles ? 2 : 1;
    TilePairEpilogue<kLayers, kOneRow> epilogue(p, gemm, first, count, pair,
                                                kOutputFactor<kFormat, Input::kIsByRow>);
    float sums[2][4] = {};
    Position at;
    const int num_chunks = num_parts * ((depth + Shape::kColumns - 1) / Shape::kColumns);
    for (int chunk = 0; chunk < num_chunks; ++chunk, at = after(at)) {
      scales.BeginChunk(first, at.part, at.column);
      Input now = ahead[0];
#pragma unroll
      for (int i = 1; i < kAhead; ++i) ahead[i - 1] = ahead[i];
      load(ahead[kAhead - 1]);
      if (!__all_sync(0xffffffffu, now.is_ready())) {
        SpinUntilReady(p, consumer.shared(), [&] {
          load_at(at, now);
          return now.is_ready();
        });
        next = after(at);  // the loads in flight were issued too early as well
#pragma unroll
        for (Input& input : ahead) load(input);
      }
      typename Input::KTiles k_tiles;
      now.Prepare(consumer.shared(), k_tiles);
      MultiplySlots<kFormat, Input::kIsByRow>(consumer, count, at.column, depth, k_tiles.all,
                                              scales, sums);
    }
    epilogue.Finish(p, consumer.shared(), sums);
  }
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step
