// Weight formats of the tile GEMM. A slice of a format is kColumns columns of a tile of 16 outputs
// in shared memory, in the order in which the lanes of a warp copy and read it. Operand a of the
// mma for 32 columns are eight registers: the order of the depth is free as long as both operands
// agree, so that a lane has 8 contiguous columns of outputs g and g + 8. Device code only.
#pragma once

#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/gemm/fp8_to_bf16.cuh"
#include "backends/gpu_llm/kernels/gemm/int4_subnormal.cuh"
#include "backends/gpu_llm/kernels/gemm/weight_format.h"

namespace nereid::gpu::NEREID_KERNEL_FORM::tile_gemm {

// Copies 16 bytes, or writes zeros.
__device__ __forceinline__ void CopyOrZero(char* to, const void* from, bool is_valid) {
  const int bytes = is_valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(to))),
               "l"(from), "r"(bytes)
               : "memory");
}

template <WeightFormat kFormat>
struct SliceOf;

template <>
struct SliceOf<WeightFormat::kBf16> {
  static constexpr int kParts = 2;
  struct Scales {};

  // Copies columns [first, first + 64) of outputs [16 tile, 16 tile + 16). `base`: of the matrix.
  static __device__ __forceinline__ void Copy(char* to, const WeightMatrix& w, const char* base,
                                              int tile, int first) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int output = 16 * tile + g + i % 2 * 8, column = first + i / 2 * 32 + 8 * t;
      const bool is_valid = output < w.num_outputs && column < w.depth;
      const int64_t at = is_valid ? int64_t{output} * w.depth + column : 0;
      CopyOrZero(to + i * 512 + lane * 16, base + 2 * at, is_valid);
    }
  }
  // 16-byte chunk of a row's slice that this lane multiplies in a part.
  static __device__ __forceinline__ int ChunkOf(int part) {
    return 4 * part + threadIdx.x % 4;
  }
  static __device__ __forceinline__ void Read(const char* slice, const WeightMatrix&, int part,
                                              bool, Scales&, uint32_t (&a)[8]) {
    const auto* chunks = reinterpret_cast<const uint4*>(slice) + 64 * part + threadIdx.x % 32;
    const uint4 low = chunks[0], high = chunks[32];
    a[0] = low.x, a[1] = high.x, a[2] = low.y, a[3] = high.y;
    a[4] = low.z, a[5] = high.z, a[6] = low.w, a[7] = high.w;
  }
};

template <>
struct SliceOf<WeightFormat::kFp8> {
  static constexpr int kParts = 2;
  struct Scales {};

  static __device__ __forceinline__ void Copy(char* to, const WeightMatrix& w, const char* base,
                                              int tile, int first) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int output = 16 * tile + g + 8 * i, column = first + 16 * t;
      const bool is_valid = output < w.num_outputs && column < w.depth;
      const int64_t at = is_valid ? int64_t{output} * w.depth + column : 0;
      CopyOrZero(to + i * 512 + lane * 16, base + at, is_valid);
    }
  }
  static __device__ __forceinline__ int ChunkOf(int part) {
    return threadIdx.x % 4 * 2 + part;
  }
  static __device__ __forceinline__ void Read(const char* slice, const WeightMatrix&, int part,
                                              bool, Scales&, uint32_t (&a)[8]) {
    const auto* chunks = reinterpret_cast<const uint4*>(slice) + threadIdx.x % 32;
    const uint4 low = chunks[0], high = chunks[32];
    Unpack(part == 0 ? low.x : low.z, a[0], a[2]);
    Unpack(part == 0 ? high.x : high.z, a[1], a[3]);
    Unpack(part == 0 ? low.y : low.w, a[4], a[6]);
    Unpack(part == 0 ? high.y : high.w, a[5], a[7]);
  }
  // Converts four values; the result holds them as two pairs of adjacent values.
  static __device__ __forceinline__ void Unpack(uint32_t word, uint32_t& first, uint32_t& second) {
    Fp8ToBf16(__byte_perm(word, 0, 0x3120), first, second);
  }
};

template <>
struct SliceOf<WeightFormat::kInt4> {
  static constexpr int kParts = 4;

  static __device__ __forceinline__ void Copy(char* to, const WeightMatrix& w, const char* base,
                                              int tile, int first) {
    const int lane = threadIdx.x % 32;
    const bool is_valid = 16 * tile < w.num_outputs && first < w.depth;
    const char* from = base;
    if (is_valid) {
      from += tile * Int4TileBytes(w.depth, w.scales_per_block) +
              first / kInt4BlockColumns * Int4BlockBytes(w.scales_per_block);
    }
    CopyOrZero(to + lane * 16, from + lane * 16, is_valid);
    CopyOrZero(to + 512 + lane * 16, from + 512 + lane * 16, is_valid);
    if (lane < 4 * w.scales_per_block) {
      CopyOrZero(to + kInt4ValueBytes + lane * 16, from + kInt4ValueBytes + lane * 16, is_valid);
    }
  }
  static __device__ __forceinline__ int ChunkOf(int part) { return 4 * part + threadIdx.x % 4; }

  // The zeros and scales of the outputs g and g + 8 of a tile, which a lane unpacks.
  struct Scales {
    __nv_bfloat162 negative_zeros[2], factors[2];

    __device__ __forceinline__ void Load(const char* slice, int index) {
      const auto* from = reinterpret_cast<const uint32_t*>(slice + kInt4ValueBytes) +
                         index * kInt4TileRows + threadIdx.x % 32 / 4;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint32_t word = from[8 * i];
        const auto zero = static_cast<float>(word & 31u);
        negative_zeros[i] = __float2bfloat162_rn(-zero * kUnit);
        factors[i] = __float2bfloat162_rn(__uint_as_float(word & ~31u) / kUnit);
      }
    }
  };
  // `scales`: unless the part is a warp's first one, those of the part before in the slice. They
  // are loaded again where they change.
  static __device__ __forceinline__ void Read(const char* slice, const WeightMatrix& w, int part,
                                              bool is_first, Scales& scales, uint32_t (&a)[8]) {
    const uint4 half = reinterpret_cast<const uint4*>(slice)[part / 2 * 32 + threadIdx.x % 32];
    if (is_first || w.scales_per_block > 1) scales.Load(slice, part * w.scales_per_block / kParts);
    const uint32_t words[2] = {part % 2 == 0 ? half.x : half.z, part % 2 == 0 ? half.y : half.w};
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      uint32_t pairs[4];
      UnpackInt4Subnormal(words[row], pairs);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        // Neither is rounded: the values are subnormal, and the difference is small.
        const __nv_bfloat162 value =
            __hfma2(*reinterpret_cast<const __nv_bfloat162*>(&pairs[i]),
                    __float2bfloat162_rn(i % 2 == 0 ? kEvenFactor : kOddFactor),
                    scales.negative_zeros[row]);
        const __nv_bfloat162 weight = __hmul2(value, scales.factors[row]);
        a[2 * i + row] = *reinterpret_cast<const uint32_t*>(&weight);
      }
    }
  }

 private:
  // What the factors make of a weight of 1, which is subnormal: 2^127 is the largest power of two.
  static constexpr float kUnit = 0x1p-6f, kEvenFactor = 0x1p127f, kOddFactor = 0x1p123f;
};

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::tile_gemm
