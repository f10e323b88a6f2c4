// How kernels of several GPUs reach each other: by packets that say themselves that they have come,
// and by meetings of blocks. Device code, and the choice between the two.
#pragma once

#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/rows/peer.h"

namespace nereid::gpu {

constexpr int kMailValues = 4;                                    // of a packet
constexpr int kChunkValues = 8;                                   // of a load of 16 bytes
constexpr int64_t kMailBox = int64_t{kMailTiles} * kPeerThreads;  // packets of one sender and turn
constexpr int kSpinsALook = 4096;

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

// Spins until is_ready(); false when the others are not to be waited for any more.
template <typename Ready>
__device__ __forceinline__ bool WaitUntil(const Peers& p, Ready is_ready) {
  for (int spins = 0; spins < kSpinsALook; ++spins) {
    if (is_ready()) return true;
  }
  const uint64_t start = NowNs();
  volatile PeerControl* control = p.control;
  while (true) {
    for (int spins = 0; spins < kSpinsALook; ++spins) {
      if (is_ready()) return true;
    }
    if (control->stops != 0) return false;
    if (NowNs() - start > p.limit_ns) {
      control->was_late[p.rank] = 1;
      control->stops = 1;
      return false;
    }
  }
}

// Blocks of the same number on all GPUs wait for each other. What any of them wrote before can be
// read after.
__device__ __forceinline__ void Meet(const Peers& p, uint32_t turn) {
  __syncthreads();
  const int sender = static_cast<int>(threadIdx.x);
  if (sender < p.count && sender != p.rank) {
    __threadfence_system();
    StoreRelease(p.flags[sender] + blockIdx.x * p.count + p.rank, turn);
    const uint32_t* flag = p.flags[p.rank] + blockIdx.x * p.count + sender;
    // The other may be one turn ahead already.
    WaitUntil(p, [&] { return static_cast<int32_t>(LoadAcquire(flag) - turn) >= 0; });
  }
  __syncthreads();
}

// A meeting costs two trips and moves each byte twice over, mail four times to every other.
inline SumPath ChoosePath(const Peers& peers, int64_t count) {
  return count * (peers.count - 1) <= PeerMailElements() ? SumPath::kMail : SumPath::kMeet;
}
// `path`, but what no mail box has room for never goes by mail.
inline SumPath Possible(const Peers& peers, int64_t count, SumPath path) {
  if (path == SumPath::kAuto) path = ChoosePath(peers, count);
  return count <= PeerMailElements() ? path : SumPath::kMeet;
}

}  // namespace nereid::gpu
