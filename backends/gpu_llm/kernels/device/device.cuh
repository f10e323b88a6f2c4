// Helpers that every kernel file uses: bf16 conversions, warp reductions, the form's policy. Device
// code only.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "backends/gpu_llm/kernels/device/policy.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {

using bf16 = __nv_bfloat16;

constexpr float kNegativeInfinity = -__builtin_huge_valf();

// Global timer, common to all multiprocessors.
__device__ __forceinline__ uint64_t NowNs() {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

__device__ __forceinline__ float WarpSum(float value) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) value += __shfl_xor_sync(0xffffffffu, value, lane);
  return value;
}

// Returns the sum over the block to all of its threads. `scratch` has 32 floats.
__device__ __forceinline__ float BlockSum(float value, float* scratch) {
  value = WarpSum(value);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  const int num_warps = (blockDim.x + 31) / 32;
  return WarpSum(static_cast<int>(threadIdx.x % 32) < num_warps ? scratch[threadIdx.x % 32] : 0.0f);
}

// Starts to bring the line of an address to the L2 cache; for memory that no kernel writes.
__device__ __forceinline__ void PrefetchToL2(const void* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
}

__device__ __forceinline__ uint32_t PackBf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ __forceinline__ float LowBf16(uint32_t pair) {
  return __uint_as_float(pair << 16);
}
__device__ __forceinline__ float HighBf16(uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000u);
}

__device__ __forceinline__ void Unpack8(uint4 packed, float* values) {
  values[0] = LowBf16(packed.x), values[1] = HighBf16(packed.x);
  values[2] = LowBf16(packed.y), values[3] = HighBf16(packed.y);
  values[4] = LowBf16(packed.z), values[5] = HighBf16(packed.z);
  values[6] = LowBf16(packed.w), values[7] = HighBf16(packed.w);
}
__device__ __forceinline__ uint4 Pack8(const float* values) {
  return {PackBf16(values[0], values[1]), PackBf16(values[2], values[3]),
          PackBf16(values[4], values[5]), PackBf16(values[6], values[7])};
}

// For data that is read once: not kept in L1.
__device__ __forceinline__ uint4 LoadStreaming(const void* address) {
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(address));
  return value;
}

// d += a x b, shape m16n8k16, bf16 operands. With lane = 4 * g + t the fragments are:
//   a: {row g, k 2t..}, {row g + 8, k 2t..}, {row g, k 2t + 8..}, {row g + 8, k 2t + 8..}
//   b: {k 2t.., column g}, {k 2t + 8.., column g}
//   d: {row g, columns 2t, 2t + 1}, {row g + 8, columns 2t, 2t + 1}
__device__ __forceinline__ void MatrixMultiplyAdd(float (&d)[4], uint32_t a0, uint32_t a1,
                                                  uint32_t a2, uint32_t a3, uint32_t b0,
                                                  uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
// The same of bytes: d (16 x 8) += a (16 x 32, unsigned, row major) * b (32 x 8, signed, column
// major). A word has the bytes of four columns of a, or of four rows of b.
__device__ __forceinline__ void ByteMultiplyAdd(int32_t (&d)[4], uint32_t a0, uint32_t a1,
                                                uint32_t a2, uint32_t a3, uint32_t b0,
                                                uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
