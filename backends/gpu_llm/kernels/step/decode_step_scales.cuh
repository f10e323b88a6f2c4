// Scales of fp8 weights that are not equal along the depth of a product of a fused decode step:
// those of blocks and, where a product has the depth of several experts, those of each expert's
// rows. A warp multiplies its products of a K tile by them before it adds them to its sums. Device
// code only.
#pragma once

#include "backends/gpu_llm/kernels/gemm/fp8_to_bf16.cuh"
#include "backends/gpu_llm/kernels/step/decode_step_input.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step {

// The scales of a pair of tiles of outputs. A format without such scales has an empty class.
template <WeightFormat kFormat, bool kExperts>
class PairScales {
 public:
  __device__ __forceinline__ PairScales(const StepGemm&, const SelectedExperts&, int) {}
  __device__ __forceinline__ void Begin(int, int, int) {}
  __device__ __forceinline__ void BeginChunk(int, int, int) {}
};

// A part of the depth is that of a selected expert, or all. A group is kKTiles K tiles of a part.
// The scales of a group are loaded while the group before it is multiplied.
template <bool kExperts>
class PairScales<WeightFormat::kFp8, kExperts> {
  static constexpr int kKTiles = 16, kKTileColumns = Chunk<WeightFormat::kFp8>::kKTileColumns;
  static_assert(kWarpColumns<WeightFormat::kFp8> == kFp8BlockColumns);
  static_assert(kTileOutputs == kFp8TileRows && kKTiles % Chunk<WeightFormat::kFp8>::kKTiles == 0);

 public:
  __device__ __forceinline__ PairScales(const StepGemm& gemm, const SelectedExperts& selected,
                                        int num_parts)
      : gemm_(gemm), selected_(selected), num_parts_(num_parts) {
    if (num_parts > 0) next_ = Load(static_cast<int>(blockIdx.x), 0, 0);
  }
  // Called for each group of each part of each pair, in order. `first_tile`: the pair's first one.
  __device__ __forceinline__ void Begin(int first_tile, int part, int group) {
    now_ = next_;
    if (++group * kKTiles * kKTileColumns >= gemm_.depth) group = 0, ++part;
    if (part == num_parts_) part = 0, first_tile += 2 * static_cast<int>(gridDim.x);
    next_ = Load(first_tile, part, group);
  }
  // The same for each chunk, which begins at a column of the part.
  __device__ __forceinline__ void BeginChunk(int first_tile, int part, int column) {
    const int k_tile = column / kKTileColumns;
    if (k_tile % kKTiles == 0) Begin(first_tile, part, k_tile / kKTiles);
  }
  // sums += the products of a K tile of the part, scaled. `half`: which tile of the pair.
  template <bool kOneRow>
  __device__ __forceinline__ void Add(int half, int k_tile,
                                      const KTile<WeightFormat::kFp8, kOneRow>& in,
                                      const float (&products)[4], float (&sums)[4]) const {
    const uint32_t word = __shfl_sync(0xffffffffu, now_.blocks, half * kKTiles + k_tile % kKTiles);
    float scales[2] = {LowBf16(word), HighBf16(word)};
    if constexpr (kExperts) scales[0] *= now_.rows[half][0], scales[1] *= now_.rows[half][1];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      sums[i] += products[i] * (scales[i / 2] * in.scales[kOneRow ? 0 : i % 2]);
  }

 private:
  struct Loaded {
    uint32_t blocks = kFp8NoScales;  // of the lane's K tile, and of one tile of the pair
    float rows[2][2] = {{1.0f, 1.0f}, {1.0f, 1.0f}};  // of both tiles, for outputs g and g + 8
  };
  __device__ __forceinline__ Loaded Load(int first_tile, int part, int group) const {
    Loaded loaded;
    if (gemm_.block_scales != nullptr) loaded.blocks = LoadBlocks(first_tile, part, group);
    if (kExperts && gemm_.part_scales != nullptr) {
      const float* from = gemm_.part_scales + selected_.experts[part] * gemm_.scale_stride;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int tile = first_tile + half * static_cast<int>(gridDim.x);
        if (tile * kTileOutputs >= gemm_.num_outputs) continue;
        const int output = tile * kTileOutputs + static_cast<int>(threadIdx.x) % 32 / 4;
        loaded.rows[half][0] = __ldg(from + output);
        loaded.rows[half][1] = __ldg(from + output + 8);
      }
    }
    return loaded;
  }
  // Returns a word of block scales, of one K tile of the group in each lane: lanes 0 to 15 load
  // those of the pair's first tile, lanes 16 to 31 those of its second tile.
  __device__ __forceinline__ uint32_t LoadBlocks(int first_tile, int part, int group) const {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    int tile = first_tile + lane / kKTiles * static_cast<int>(gridDim.x);
    const int column = (group * kKTiles + lane % kKTiles) * kKTileColumns + warp * kFp8BlockColumns;
    if (tile * kTileOutputs >= gemm_.num_outputs || column >= gemm_.depth) return kFp8NoScales;
    int num_tiles = gemm_.num_outputs / kTileOutputs;
    const uint32_t* from = gemm_.block_scales;
    if constexpr (kExperts) {
      int expert = part;  // its number among the selected ones
      if (gemm_.experts != nullptr)
        num_tiles = gemm_.tiles_each, expert = tile / num_tiles, tile %= num_tiles;
      if (gemm_.scale_stride > 0) from += selected_.experts[expert] * gemm_.scale_stride;
    }
    return __ldg(from + column / kFp8BlockColumns * num_tiles + tile);
  }

  const StepGemm& gemm_;
  const SelectedExperts& selected_;
  int num_parts_;
  Loaded now_, next_;
};

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step
