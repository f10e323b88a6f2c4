// Blocks that start together and reach each other's shared memory. Device code alone.
#pragma once

#include <cstdint>

namespace nereid::gpu {

// All threads of all blocks of the cluster; what was written before is seen behind the wait.
__device__ __forceinline__ void ClusterArrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void ClusterWait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// Where block `rank` of the cluster has what this one has at an address in shared memory.
__device__ __forceinline__ uint32_t AddressInBlock(uint32_t address, int rank) {
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}
__device__ __forceinline__ void StoreInCluster(uint32_t address, float4 values) {
  asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(values.x),
               "f"(values.y), "f"(values.z), "f"(values.w)
               : "memory");
}
__device__ __forceinline__ void StoreInCluster(uint32_t address, float value) {
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}

}  // namespace nereid::gpu
