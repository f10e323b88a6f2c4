// Copies of boxes of a matrix that a tensor map describes, and barriers by their addresses. Device
// code alone.
#pragma once

#include <cstdint>

#include "backends/gpu_llm/kernels/device/async_copy.cuh"

namespace nereid::gpu {

__device__ __forceinline__ void PrefetchMap(const void* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
// The box whose first element is at (column, row), swizzled as the map says.
__device__ __forceinline__ void TensorCopy(uint32_t to, const void* map, int column, int row,
                                           uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
      "{%2, %3}], [%4];" ::"r"(to),
      "l"(map), "r"(column), "r"(row), "r"(SharedAddress(barrier))
      : "memory");
}

__device__ __forceinline__ void BarrierArrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void BarrierWait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{ .reg .pred done;\n"
      "wait: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra wait; }" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

}  // namespace nereid::gpu
