// Every GPU from compute capability 8.0: several warps fill the ring by 16-byte asynchronous
// copies. A slot has half of the native form's bytes, so that a ring of four fits into the 99 KB
// that a block of threads may have on GPUs of 8.6, 8.9 and 12.0; where a block may have 163 KB,
// the ring has eight. fp8 weights are converted by integer operations. Only CUDA files include this
// file.
#pragma once

#include "backends/gpu_llm/kernels/device/async_copy.cuh"
#include "backends/gpu_llm/kernels/gemm/weight_format.h"
#include "backends/gpu_llm/kernels/portable/decode_step_shape.h"
#include "backends/gpu_llm/kernels/step/decode_step.h"

namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step {

using portable_shape::kCopyWarps;
constexpr int kMaxSlots = portable_shape::kMaxStepSlots;
constexpr int kSlotBytes = portable_shape::kStepSlotBytes;
constexpr int kMaxInFlight = kMaxSlots;  // all slots may be filled at the same time
constexpr int kSlotRowBytes = 1024, kSlotInt4KTiles = 2;
constexpr int kFullArrivals = 32 * kCopyWarps;

// Returns the number of slots of the ring on the current device.
inline int ChooseNumSlots() {
  int device = 0, shared_bytes = 0;
  (void)cudaGetDevice(&device);
  (void)cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  return portable_shape::NumStepSlots(shared_bytes);
}
__device__ __forceinline__ int NumSlots(const DecodeStepParams& p) {
  return p.num_slots;
}

// Attention has too few registers for two halves of a unit's queries.
constexpr bool kKeepsQueriesOfTwoHalves = false;

__device__ __forceinline__ void FenceSlotBarriers() {}
// A warp that waits for a slot sleeps for 20 ns between two polls of its barrier, which leaves more
// cycles to the warps that copy and compute.
__device__ __forceinline__ void WaitForSlot(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{ .reg .pred done;\n"
      "wait: mbarrier.test_wait.parity.shared.b64 done, [%0], %1;\n"
      "@done bra ready;\n"
      "nanosleep.u32 20;\n"
      "bra wait;\n"
      "ready: }" ::"r"(SharedAddress(barrier)),
      "r"(parity)
      : "memory");
}
__device__ __forceinline__ void TakeRegisters() {}
__device__ __forceinline__ void GiveRegisters() {}

// Sign, exponent and mantissa move to their positions in fp16, whose exponents are larger by 8.
constexpr int kFp8PairStride = 2;
constexpr float kFp8Unit = 256.0f;
__device__ __forceinline__ void UnpackFp8(uint32_t word, uint32_t& first, uint32_t& second) {
  first = (word << 8 & 0x80008000u) | (word << 7 & 0x3f803f80u);
  second = (word & 0x80008000u) | (word >> 1 & 0x3f803f80u);
}

// Copies to one slot after the other; called by all threads of the copying warps, which are the
// first after the block's `kFirst` threads.
template <int kFirst>
class ThreadsCopy {
 public:
  __device__ ThreadsCopy() : thread_(static_cast<int>(threadIdx.x) - kFirst) {
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(evict_first_policy_));
  }
  __device__ __forceinline__ void Begin(uint64_t* full, int /*bytes*/) { full_ = full; }
  template <int kRows, int kPitch>
  __device__ __forceinline__ void CopyRows(char* to, const char* from, int64_t stride, int bytes,
                                           int rows) {
    constexpr int kPieces = kSlotRowBytes / 16, kThreads = 32 * kCopyWarps;
    static_assert(kPieces % kThreads == 0 || kThreads % kPieces == 0);
    if constexpr (kThreads <= kPieces) {
#pragma unroll
      for (int column = 0; column < kSlotRowBytes; column += 16 * kThreads) {
        const int at = column + thread_ * 16;
        if (at >= bytes) continue;
#pragma unroll
        for (int row = 0; row < kRows; ++row) {
          if (row < rows) Copy(to + row * kPitch + at, from + row * stride + at);
        }
      }
    } else {
      const int at = thread_ % kPieces * 16;
      if (at >= bytes) return;
#pragma unroll
      for (int row = 0; row < kRows; row += kThreads / kPieces) {
        const int r = row + thread_ / kPieces;
        if (r < rows) Copy(to + r * kPitch + at, from + r * stride + at);
      }
    }
  }
  template <int kPieceBytes>
  __device__ __forceinline__ void CopyBytes(char* to, const char* from, int bytes) {
#pragma unroll 4
    for (int at = thread_ * 16; at < bytes; at += 16 * 32 * kCopyWarps) Copy(to + at, from + at);
  }
  __device__ __forceinline__ void End() {
    AsyncCopyArrive(full_);
  }
  // A thread that exits with copies in flight would leave them incomplete.
  __device__ __forceinline__ void WaitForAll() {
    AsyncCopyWaitAll();
  }

 private:
  __device__ __forceinline__ void Copy(char* to, const char* from) {
    asm volatile(
        "cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(SharedAddress(to)),
        "l"(from), "l"(evict_first_policy_)
        : "memory");
  }

  int thread_;
  uint64_t* full_ = nullptr;
  uint64_t evict_first_policy_;  // L2 policy of data that is read once
};
using SlotCopy = ThreadsCopy<32 * 8>;

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step
