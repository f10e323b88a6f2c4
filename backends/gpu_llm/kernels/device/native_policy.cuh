// Hopper: programmatic dependent launch, and conversions of e4m3. Device code only.
#pragma once

#include <cstdint>

#include "backends/gpu_llm/kernels/device/form.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {

inline constexpr bool kUsesDependentLaunch = true;

// Programmatic dependent launch. The next kernel's blocks may start when all blocks of this kernel
// have called LaunchNext() or have ended. Every kernel calls it at its start.
__device__ __forceinline__ void LaunchNext() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
// Waits until the previous kernel has ended and its writes are visible. Every block of every kernel
// calls it before it reads or writes memory that another kernel touches. So the end of the previous
// kernel implies the end of all earlier kernels.
__device__ __forceinline__ void WaitForPrevious() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

// Makes this thread's writes to shared memory visible to the copy engine and to wgmma.
__device__ __forceinline__ void ProxyFence() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Codes of two floats, saturated; `low` is in the low byte.
__device__ __forceinline__ uint32_t EncodeE4m3(float low, float high) {
  uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
  return codes;
}
// Converts two codes in the low half of a word to two fp16 values.
__device__ __forceinline__ uint32_t DecodeE4m3(uint32_t codes) {
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(codes)));
  return halves;
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
