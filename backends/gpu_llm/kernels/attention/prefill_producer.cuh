// Copies the KV blocks of prefill_attention.cu to shared memory. One thread copies a bf16 cache as
// it is. For a quantized cache a group of four warps unpacks the blocks to the bf16 layout. Device
// code only.
#pragma once

#include "backends/gpu_llm/kernels/attention/prefill_work.cuh"
#include "backends/gpu_llm/kernels/attention/unpack_block.cuh"
#include "backends/gpu_llm/kernels/device/async_copy.cuh"
#include "backends/gpu_llm/kernels/device/device.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::prefill_attention {

// Copies the KV blocks of all tiles to the ring, in order. Called by one thread.
template <int kHeadDim>
__device__ void Produce(const PrefillAttentionParams& p, char* stages, uint64_t* full,
                        uint64_t* empty) {
  constexpr int kStages = PrefillShape<kHeadDim, CacheFormat::kBf16>::kStages;
  constexpr auto kBytes = static_cast<uint32_t>(HeadBytes(kHeadDim));
  const char* cache = static_cast<const char*>(p.cache);
  int n = 0;
  for (BlockCursor cursor(p); cursor.has_block(); cursor.Advance(), ++n) {
    const int stage = n % kStages;
    if (n >= kStages) BarrierWait(empty + stage, (n / kStages - 1) & 1);
    BarrierExpect(full + stage, kBytes);
    BulkCopy(stages + stage * kBytes, cache + cursor.head() * kBytes, kBytes, full + stage);
  }
}

// The same for a quantized cache, with unpacking. Called by 128 threads.
template <int kHeadDim, CacheFormat kFormat>
__device__ void ProduceUnpacked(const PrefillAttentionParams& p, char* stages, uint64_t* full,
                                uint64_t* empty, uint64_t* arrived, char* packed) {
  using Shape = PrefillShape<kHeadDim, kFormat>;
  const char* cache = static_cast<const char*>(p.cache);
  BlockCursor ahead(p);
  const auto copy = [&](int n) {
    if (threadIdx.x != 0 || !ahead.has_block()) return;
    uint64_t* barrier = arrived + n % Shape::kPackedStages;
    BarrierExpect(barrier, Shape::kPackedBytes);
    BulkCopy(packed + n % Shape::kPackedStages * Shape::kPackedBytes,
             cache + ahead.head() * Shape::kPackedBytes, Shape::kPackedBytes, barrier);
    ahead.Advance();
  };
  for (int n = 0; n < Shape::kPackedStages; ++n) copy(n);
  int n = 0;
  for (BlockCursor now(p); now.has_block(); now.Advance(), ++n) {
    const int stage = n % Shape::kStages;
    char* from = packed + n % Shape::kPackedStages * Shape::kPackedBytes;
    if (n >= Shape::kStages) BarrierWait(empty + stage, (n / Shape::kStages - 1) & 1);
    BarrierWait(arrived + n % Shape::kPackedStages, n / Shape::kPackedStages & 1);
    if (now.is_last() && now.work().num_last < kBlockTokens) {
      auto* scales = reinterpret_cast<float*>(from + QuantizedScalesOffset(kHeadDim));
      const auto token = static_cast<int>(threadIdx.x);
      if (token >= now.work().num_last && token < kBlockTokens) scales[kBlockTokens + token] = 0.0f;
      asm volatile("bar.sync 4, 128;" ::: "memory");
    }
    UnpackBlock<kHeadDim, kFormat>(from, stages + stage * HeadBytes(kHeadDim));
    ProxyFence();
    BarrierArrive(full + stage);
    asm volatile("bar.sync 4, 128;" ::
                     : "memory");  // all threads have read what the next copy overwrites
    copy(n + Shape::kPackedStages);
  }
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::prefill_attention
