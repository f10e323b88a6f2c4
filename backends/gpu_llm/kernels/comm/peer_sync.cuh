// Synchronisation between kernels on several GPUs: volatile packets, and barriers of blocks with
// the same index. Device code, and the host's choice of the all-reduce algorithm.
#pragma once

#include "backends/gpu_llm/kernel_registry.h"
#include "backends/gpu_llm/kernels/comm/all_reduce.h"
#include "backends/gpu_llm/kernels/device/device.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {

constexpr int kPacketValues = 4;  // of a packet
constexpr int kChunkValues = 8;   // of a 16-byte load
constexpr int64_t kPacketsPerSender =
    int64_t{kPacketTiles} * kPeerThreads;  // packets of one sender and epoch
constexpr int kSpinsPerPoll = 4096;

__device__ __forceinline__ uint4 LoadVolatile(const void* address) {
  uint4 value;
  asm volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(address)
               : "memory");
  return value;
}
__device__ __forceinline__ void StoreVolatile(void* address, uint4 value) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(address), "r"(value.x),
               "r"(value.y), "r"(value.z), "r"(value.w)
               : "memory");
}
__device__ __forceinline__ void StoreRelease(uint32_t* address, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}
__device__ __forceinline__ uint32_t LoadAcquire(const uint32_t* address) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}

// Spins until is_ready(). Returns false if the group has stopped or the timeout has passed.
template <typename Ready>
__device__ __forceinline__ bool WaitUntil(const Peers& p, Ready is_ready) {
  for (int spins = 0; spins < kSpinsPerPoll; ++spins) {
    if (is_ready()) return true;
  }
  const uint64_t start = NowNs();
  volatile PeerControl* control = p.control;
  while (true) {
    for (int spins = 0; spins < kSpinsPerPoll; ++spins) {
      if (is_ready()) return true;
    }
    if (control->is_stopped != 0) return false;
    if (NowNs() - start > p.timeout_ns) {
      control->timed_out[p.rank] = 1;
      control->is_stopped = 1;
      return false;
    }
  }
}

// Barrier of the blocks with the same index on all GPUs. Writes made before it are visible after
// it.
__device__ __forceinline__ void SyncPeers(const Peers& p, uint32_t epoch) {
  __syncthreads();
  const int sender = static_cast<int>(threadIdx.x);
  if (sender < p.count && sender != p.rank) {
    __threadfence_system();
    StoreRelease(p.flags[sender] + blockIdx.x * p.count + p.rank, epoch);
    const uint32_t* flag = p.flags[p.rank] + blockIdx.x * p.count + sender;
    // A peer may already be one epoch ahead.
    WaitUntil(p, [&] { return static_cast<int32_t>(LoadAcquire(flag) - epoch) >= 0; });
  }
  __syncthreads();
}

// Replaces kAuto, and one-shot if the packet buffers are too small.
inline AllReduceAlgorithm ResolveAlgorithm(const Peers& peers, int64_t count,
                                           AllReduceAlgorithm algorithm) {
  if (algorithm == AllReduceAlgorithm::kAuto) {
    algorithm = SumsInOneShot(peers.count, count, MaxOneShotElements())
                    ? AllReduceAlgorithm::kOneShot
                    : AllReduceAlgorithm::kTwoShot;
  }
  return count <= MaxOneShotElements() ? algorithm : AllReduceAlgorithm::kTwoShot;
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
