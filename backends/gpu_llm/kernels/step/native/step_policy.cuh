// Hopper: one warp fills the ring by bulk copies, and gives its registers to the warps that
// compute. One instruction converts two fp8 weights. Only CUDA files include this file.
#pragma once

#include "backends/gpu_llm/kernels/device/async_copy.cuh"
#include "backends/gpu_llm/kernels/gemm/weight_format.h"
#include "backends/gpu_llm/kernels/step/decode_step.h"

namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step {

constexpr int kCopyWarps = 1;
constexpr int kMaxSlots = 6, kSlotBytes = 34816;
// Slots that are filled at the same time. More do not increase the bandwidth, fewer reduce it.
constexpr int kMaxInFlight = 2;
// Bytes of a row of bf16 or fp8 weights in a slot, and K tiles of int4 weights in a slot.
constexpr int kSlotRowBytes = 2048, kSlotInt4KTiles = 4;
constexpr int kFullArrivals = 1;  // at the barrier of a slot

// Returns the number of slots of the ring, which is the same on all devices.
inline int ChooseNumSlots() {
  return kMaxSlots;
}
__device__ __forceinline__ int NumSlots(const DecodeStepParams& /*p*/) {
  return kMaxSlots;
}

// Attention keeps two halves of a unit's queries in registers.
constexpr bool kKeepsQueriesOfTwoHalves = true;

__device__ __forceinline__ void FenceSlotBarriers() {
  BarrierInitFence();
}
__device__ __forceinline__ void WaitForSlot(uint64_t* barrier, uint32_t parity) {
  BarrierWait(barrier, parity);
}
__device__ __forceinline__ void TakeRegisters() {
  AcquireRegisters<224>();
}
__device__ __forceinline__ void GiveRegisters() {
  ReleaseRegisters<56>();
}

// Converts the four e4m3 codes of a word to fp16 values: `first` has those of bytes 0 and
// kFp8PairStride, `second` the others. The codes' values are larger by kFp8Unit.
constexpr int kFp8PairStride = 1;
constexpr float kFp8Unit = 1.0f;
__device__ __forceinline__ void UnpackFp8(uint32_t word, uint32_t& first, uint32_t& second) {
  asm("{ .reg .b16 low, high;\n"
      "mov.b32 {low, high}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, low;\n"
      "cvt.rn.f16x2.e4m3x2 %1, high; }"
      : "=r"(first), "=r"(second)
      : "r"(word));
}

// Copies to one slot after the other; called by all threads of the copying warps.
class SlotCopy {
 public:
  __device__ SlotCopy() {
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(evict_first_policy_));
  }
  // `full` receives its arrivals when `bytes` of copies are complete.
  __device__ __forceinline__ void Begin(uint64_t* full, int bytes) {
    full_ = full;
    if (threadIdx.x % 32 == 0) BarrierExpect(full, bytes);
    __syncwarp();
  }
  // `rows` of kRows rows of `bytes`, which lie `stride` bytes apart in global memory.
  template <int kRows, int kPitch>
  __device__ __forceinline__ void CopyRows(char* to, const char* from, int64_t stride, int bytes,
                                           int rows) {
    const int row = static_cast<int>(threadIdx.x) % 32;
    if (row < rows) Copy(to + row * kPitch, from + row * stride, bytes);
  }
  // Contiguous bytes, in pieces of kPieceBytes.
  template <int kPieceBytes>
  __device__ __forceinline__ void CopyBytes(char* to, const char* from, int bytes) {
    const int at = static_cast<int>(threadIdx.x) % 32 * kPieceBytes;
    if (at < bytes) Copy(to + at, from + at, min(kPieceBytes, bytes - at));
  }
  __device__ __forceinline__ void End() {}
  __device__ __forceinline__ void WaitForAll() {}

 private:
  __device__ __forceinline__ void Copy(char* to, const char* from, int bytes) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
        "[%1], %2, [%3], %4;" ::"r"(SharedAddress(to)),
        "l"(from), "r"(bytes), "r"(SharedAddress(full_)), "l"(evict_first_policy_)
        : "memory");
  }

  uint64_t* full_ = nullptr;
  uint64_t evict_first_policy_;  // L2 policy of data that is read once
};

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step
