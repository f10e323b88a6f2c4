// Weight formats of the tile GEMM. A slice of a format is some columns of tiles of 16 outputs in
// shared memory, and the same columns of the rows; its parts are 32 columns. A format says how
// lanes copy a slice and how they read a part. Operand a of the mma for a part are eight registers;
// the order of the depth within a part is free as long as both operands agree. Device code only.
#pragma once

#include "backends/gpu_llm/kernels/device/async_copy.cuh"
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/operand_loads.cuh"
#include "backends/gpu_llm/kernels/gemm/fp8_to_bf16.cuh"
#include "backends/gpu_llm/kernels/gemm/int4_subnormal.cuh"
#include "backends/gpu_llm/kernels/gemm/weight_format.h"

namespace nereid::gpu::NEREID_KERNEL_FORM::tile_gemm {

__device__ __forceinline__ uint4 LoadShared(uint32_t address) {
  uint4 to;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(to.x), "=r"(to.y), "=r"(to.z), "=r"(to.w)
               : "r"(address)
               : "memory");
  return to;
}

// Where a lane copies weights from: copy i from `from` + i `stride` bytes on, if i is below
// `count`. Outputs after the last one are zero.
struct WeightSource {
  const char* from;
  int stride, count;
};
// Of weights that lie row by row, from tile `tile` of the matrix at `base` on. Each copy of a warp
// has 16 bytes for each lane, of `rows` outputs together.
__device__ __forceinline__ WeightSource RowsOf(const WeightMatrix& w, const char* base, int tile,
                                               int rows, int element_bytes) {
  const int lane = threadIdx.x % 32, lanes = 32 / rows;
  const int first = 16 * tile + lane / lanes;
  return {base + int64_t{first} * w.depth * element_bytes + lane % lanes * 16,
          rows * w.depth * element_bytes, (w.num_outputs - first + rows - 1) / rows};
}

// A format. kScales: for int4, the most scales that a block has; for fp8, 2 if the weights have
// block scales, else 1. The input's columns of a row lie in chunks of 16 bytes, chunk i at i ^
// Swizzle(row), so that reads have no bank conflicts. Members:
//   kParts: of 32 columns in a slice
//   SourceOf(), Copy(): where a lane copies from; the columns from `first` on of kTiles tiles
//   RowOffset(), ChunkOffset(), ReadRows(): a part of 8 rows of the input as operand b
//   Packed, Read(), Unpack(): a part of a tile's weights as a lane reads it, and as operand a
//   ReadScales(): what else Unpack() needs of a slice, from global memory. `scales`: the tile's
//     first word of block scales. `column`: the slice's first one.
// `part` is the number of a part in the slice, `i` its number among those of the warp.
template <WeightFormat kFormat, int kScales>
struct SliceOf;

// 64 columns. Both operands are read as matrices, in the order of their columns.
template <>
struct SliceOf<WeightFormat::kBf16, 1> {
  static constexpr int kParts = 2;

  // The outputs of a tile lie like the rows of the input.
  static __device__ __forceinline__ int Swizzle(int row) { return row % 8; }
  static __device__ __forceinline__ WeightSource SourceOf(const WeightMatrix& w, const char* base,
                                                          int tile) {
    return RowsOf(w, base, tile, 4, 2);
  }
  template <int kTiles, int kTileBytes>
  static __device__ __forceinline__ void Copy(uint32_t to, const WeightMatrix& w,
                                              const WeightSource& source, int first) {
    const int lane = threadIdx.x % 32;
    const char* from = source.from + int64_t{2} * first;
    const bool is_valid = first + lane % 8 * 8 < w.depth;
#pragma unroll
    for (int i = 0; i < 4 * kTiles; ++i) {
      const int row = lane / 8 + i % 2 * 4;
      CopyOrZero(to + i * 512 + lane / 8 * 128 + ((lane % 8) ^ Swizzle(row)) * 16,
                 from + int64_t{i} * source.stride, is_valid && i < source.count);
    }
  }

  static __device__ __forceinline__ uint32_t RowOffset() {
    return threadIdx.x % 8 * 128;
  }
  static __device__ __forceinline__ uint32_t ChunkOffset(int part) {
    const int lane = threadIdx.x % 32;
    return ((4 * part + lane / 8) ^ Swizzle(lane)) * 16;
  }
  static __device__ __forceinline__ uint4 ReadRows(uint32_t address) {
    return LoadMatrices(address);
  }

  struct Packed {
    uint4 halves[2];
  };
  static __device__ __forceinline__ void ReadScales(const WeightMatrix&, const uint32_t*, int,
                                                    Packed&) {}
  static __device__ __forceinline__ void Read(uint32_t tile, const WeightMatrix&, int part, int,
                                              Packed& packed) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int chunk = (4 * part + 2 * half + lane / 16) ^ Swizzle(lane);
      packed.halves[half] = LoadMatrices(tile + lane % 16 * 128 + chunk * 16);
    }
  }
  static __device__ __forceinline__ void Unpack(const Packed& packed, int, int, uint32_t (&a)[8]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      a[4 * half] = packed.halves[half].x, a[4 * half + 1] = packed.halves[half].y;
      a[4 * half + 2] = packed.halves[half].z, a[4 * half + 3] = packed.halves[half].w;
    }
  }
};

// 64 columns. Lane 4 g + t has columns [16 t, + 16) of outputs g and g + 8, for both parts.
template <int kScales>
struct SliceOf<WeightFormat::kFp8, kScales> {
  static constexpr int kParts = 2;

  static __device__ __forceinline__ int Swizzle(int row) { return row % 2 * 5; }
  static __device__ __forceinline__ WeightSource SourceOf(const WeightMatrix& w, const char* base,
                                                          int tile) {
    return RowsOf(w, base, tile, 8, 1);
  }
  template <int kTiles, int kTileBytes>
  static __device__ __forceinline__ void Copy(uint32_t to, const WeightMatrix& w,
                                              const WeightSource& source, int first) {
    const int lane = threadIdx.x % 32;
    const char* from = source.from + first;
    const bool is_valid = first + lane % 4 * 16 < w.depth;
#pragma unroll
    for (int i = 0; i < 2 * kTiles; ++i) {
      CopyOrZero(to + i * 512 + lane * 16, from + int64_t{i} * source.stride,
                 is_valid && i < source.count);
    }
  }

  static __device__ __forceinline__ uint32_t RowOffset() {
    return threadIdx.x % 32 / 4 * 128;
  }
  static __device__ __forceinline__ uint32_t ChunkOffset(int part) {
    const int lane = threadIdx.x % 32;
    return ((lane % 4 * 2 + part) ^ Swizzle(lane / 4)) * 16;
  }
  static __device__ __forceinline__ uint4 ReadRows(uint32_t address) {
    return LoadShared(address);
  }

  struct Packed {
    uint4 low, high;                 // of outputs g and g + 8
    uint32_t scales = kFp8NoScales;  // their block scales
  };
  static __device__ __forceinline__ void ReadScales(const WeightMatrix& w, const uint32_t* scales,
                                                    int column, Packed& packed) {
    if (kScales == 1 || column >= w.depth) return;
    packed.scales = __ldg(scales + int64_t{column / kFp8BlockColumns} * NumFp8Tiles(w.num_outputs));
  }
  static __device__ __forceinline__ void Read(uint32_t tile, const WeightMatrix&, int, int i,
                                              Packed& packed) {
    if (i > 0) return;
    const uint32_t from = tile + threadIdx.x % 32 * 16;
    packed.low = LoadShared(from), packed.high = LoadShared(from + 512);
  }
  static __device__ __forceinline__ void Unpack(const Packed& packed, int part, int,
                                                uint32_t (&a)[8]) {
    const uint4 &low = packed.low, &high = packed.high;
    uint32_t factors[2] = {kFp8Factor, kFp8Factor};
    if constexpr (kScales > 1)
      factors[0] = Fp8FactorOf(packed.scales, 0), factors[1] = Fp8FactorOf(packed.scales, 1);
    Convert(part == 0 ? low.x : low.z, factors[0], a[0], a[2]);
    Convert(part == 0 ? high.x : high.z, factors[1], a[1], a[3]);
    Convert(part == 0 ? low.y : low.w, factors[0], a[4], a[6]);
    Convert(part == 0 ? high.y : high.w, factors[1], a[5], a[7]);
  }

 private:
  // Converts four values; the result holds them as two pairs of adjacent values.
  static __device__ __forceinline__ void Convert(uint32_t word, uint32_t factor, uint32_t& first,
                                                 uint32_t& second) {
    Fp8ToBf16(__byte_perm(word, 0, 0x3120), factor, first, second);
  }
};

// A block of 128 columns (weight_format.h).
template <int kScales>
struct SliceOf<WeightFormat::kInt4, kScales> {
  static constexpr int kParts = 4;

  static __device__ __forceinline__ int Swizzle(int row) { return row % 2 * 5; }
  static __device__ __forceinline__ WeightSource SourceOf(const WeightMatrix& w, const char* base,
                                                          int tile) {
    const auto tile_bytes = static_cast<int>(Int4TileBytes(w.depth, w.scales_per_block));
    return {base + int64_t{tile} * tile_bytes + threadIdx.x % 32 * 16, tile_bytes,
            (w.num_outputs + kInt4TileRows - 1) / kInt4TileRows - tile};
  }
  template <int kTiles, int kTileBytes>
  static __device__ __forceinline__ void Copy(uint32_t to, const WeightMatrix& w,
                                              const WeightSource& source, int first) {
    const int lane = threadIdx.x % 32;
    const char* block =
        source.from + first / kInt4BlockColumns * Int4BlockBytes(w.scales_per_block);
    const bool has_scales = lane < 4 * (kScales == 1 ? 1 : w.scales_per_block);
    to += lane * 16;
#pragma unroll
    for (int i = 0; i < kTiles; ++i, to += kTileBytes) {
      const char* from = block + int64_t{i} * source.stride;
      const bool is_valid = first < w.depth && i < source.count;
      CopyOrZero(to, from, is_valid);
      CopyOrZero(to + 512, from + 512, is_valid);
      if (has_scales) CopyOrZero(to + kInt4ValueBytes, from + kInt4ValueBytes, is_valid);
    }
  }

  static __device__ __forceinline__ uint32_t RowOffset() {
    return threadIdx.x % 32 / 4 * (2 * kInt4BlockColumns);
  }
  static __device__ __forceinline__ uint32_t ChunkOffset(int part) {
    const int lane = threadIdx.x % 32;
    return ((4 * part + lane % 4) ^ Swizzle(lane / 4)) * 16;
  }
  static __device__ __forceinline__ uint4 ReadRows(uint32_t address) {
    return LoadShared(address);
  }

  struct Packed {
    uint4 words;         // of two parts
    uint32_t scales[2];  // of outputs g and g + 8
    __nv_bfloat162 negative_zeros[2], factors[2];
  };
  static __device__ __forceinline__ void ReadScales(const WeightMatrix&, const uint32_t*, int,
                                                    Packed&) {}
  static __device__ __forceinline__ void Read(uint32_t tile, const WeightMatrix& w, int part, int i,
                                              Packed& packed) {
    const int lane = threadIdx.x % 32;
    if (i % 2 == 0) packed.words = LoadShared(tile + part / 2 * 512 + lane * 16);
    if (i > 0 && kScales == 1) return;
    const int index = kScales == 1 ? 0 : part * w.scales_per_block / kParts;
    const uint32_t from = tile + kInt4ValueBytes + (index * kInt4TileRows + lane / 4) * 4;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      asm volatile("ld.shared.u32 %0, [%1];"
                   : "=r"(packed.scales[row])
                   : "r"(from + 32 * row)
                   : "memory");
    }
  }
  static __device__ __forceinline__ void Unpack(Packed& packed, int, int i, uint32_t (&a)[8]) {
    const bool is_even = i % 2 == 0;
    const uint32_t words[2] = {is_even ? packed.words.x : packed.words.z,
                               is_even ? packed.words.y : packed.words.w};
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      __nv_bfloat162 &negative_zeros = packed.negative_zeros[row], &factors = packed.factors[row];
      if (i == 0 || kScales > 1) {
        const uint32_t word = packed.scales[row];
        negative_zeros = __float2bfloat162_rn(-static_cast<float>(word & 31u) * kUnit);
        factors = __float2bfloat162_rn(__uint_as_float(word & ~31u) / kUnit);
      }
      uint32_t pairs[4];
      UnpackInt4Subnormal(words[row], pairs);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        // Neither is rounded: the values are subnormal, and the difference is small.
        const __nv_bfloat162 value =
            __hfma2(*reinterpret_cast<const __nv_bfloat162*>(&pairs[j]),
                    __float2bfloat162_rn(j % 2 == 0 ? kEvenFactor : kOddFactor), negative_zeros);
        const __nv_bfloat162 weight = __hmul2(value, factors);
        a[2 * j + row] = *reinterpret_cast<const uint32_t*>(&weight);
      }
    }
  }

 private:
  // What the factors make of a weight of 1, which is subnormal: 2^127 is the largest power of two.
  static constexpr float kUnit = 0x1p-6f, kEvenFactor = 0x1p127f, kOddFactor = 0x1p123f;
};

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::tile_gemm
