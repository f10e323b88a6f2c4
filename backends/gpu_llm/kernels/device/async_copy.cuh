// Barriers in shared memory that copies arrive at, and the bulk copy engine. Device code alone.
#pragma once

#include <cstdint>

namespace nereid::gpu {

__device__ __forceinline__ uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void BarrierInit(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(SharedAddress(barrier)),
               "r"(arrivals)
               : "memory");
}
// After the inits, before other threads or the copy engine use them.
__device__ __forceinline__ void BarrierInitFence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void BarrierArrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(SharedAddress(barrier)) : "memory");
}
// Arrives, and announces so many bytes of copies.
__device__ __forceinline__ void BarrierExpect(uint64_t* barrier, uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(SharedAddress(barrier)),
      "r"(bytes)
      : "memory");
}
__device__ __forceinline__ void BarrierWait(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{ .reg .pred done;\n"
      "wait: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra wait; }" ::"r"(SharedAddress(barrier)),
      "r"(parity)
      : "memory");
}

// `bytes`: a multiple of 16, as are the addresses.
__device__ __forceinline__ void BulkCopy(uint32_t to, const void* from, uint32_t bytes,
                                         uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(SharedAddress(barrier))
      : "memory");
}
__device__ __forceinline__ void BulkCopy(void* to, const void* from, uint32_t bytes,
                                         uint64_t* barrier) {
  BulkCopy(SharedAddress(to), from, bytes, barrier);
}
// 16 bytes a thread, past L1; a barrier gets one of the arrivals that it waits for from each thread
// that asks so, once the copies that this thread has begun are there.
__device__ __forceinline__ void AsyncCopy16(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(SharedAddress(to)),
               "l"(from)
               : "memory");
}
__device__ __forceinline__ void AsyncCopyArrive(uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(SharedAddress(barrier))
               : "memory");
}
__device__ __forceinline__ void AsyncCopyWaitAll() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}
// What this thread wrote to shared memory becomes visible to the copy engine and to wgmma.
__device__ __forceinline__ void ProxyFence() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

template <int kRegisters>
__device__ __forceinline__ void GiveRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace nereid::gpu
