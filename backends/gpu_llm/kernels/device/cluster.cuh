// Thread block clusters: barriers and access to the shared memory of other blocks of the cluster.
// Device code only.
#pragma once

#include <cstdint>

#include "backends/gpu_llm/kernels/device/async_copy.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {

// Called by all threads of all blocks of the cluster. Writes made before the arrive are visible
// after the wait.
__device__ __forceinline__ void ClusterArrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void ClusterWait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// Without the visibility of writes, which costs about a microsecond.
__device__ __forceinline__ void ClusterArriveRelaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
// Maps an address in this block's shared memory to the same offset in block `rank` of the cluster.
__device__ __forceinline__ uint32_t MapToClusterBlock(uint32_t address, int rank) {
  uint32_t remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
  return remote;
}
__device__ __forceinline__ void StoreInCluster(uint32_t address, float4 values) {
  asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(values.x),
               "f"(values.y), "f"(values.z), "f"(values.w)
               : "memory");
}
// The store signals a barrier of the block that has the address, as a copy of 16 bytes does.
__device__ __forceinline__ void StoreInCluster(uint32_t address, float4 values, uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(address),
      "f"(values.x), "f"(values.y), "f"(values.z), "f"(values.w), "r"(barrier)
      : "memory");
}
// Waits for such signals, and sees what was stored.
__device__ __forceinline__ void BarrierWaitForCluster(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{ .reg .pred done;\n"
      "wait: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra wait; }" ::"r"(SharedAddress(barrier)),
      "r"(parity)
      : "memory");
}
__device__ __forceinline__ void StoreInCluster(uint32_t address, float value) {
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
