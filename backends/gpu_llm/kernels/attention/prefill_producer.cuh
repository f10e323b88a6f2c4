// Copies the KV blocks of prefill_attention.cu to shared memory. One thread copies a bf16 cache as
// it is. For a quantized cache a group of four warps unpacks the blocks to the bf16 layout. Device
// code only.
#pragma once

#include "backends/gpu_llm/kernels/attention/prefill_work.cuh"
#include "backends/gpu_llm/kernels/attention/unpack_block.cuh"
#include "backends/gpu_llm/kernels/device/async_copy.cuh"
#include "backends/gpu_llm/kernels/device/device.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::prefill_attention {

// Copies the KV blocks of all tiles to the ring, step by step. Called by one thread.
template <int kHeadDim>
__device__ void Produce(const PrefillAttentionParams& p, char* stages,
                        const PrefillBarriers& barriers) {
  using Shape = PrefillShape<kHeadDim, CacheFormat::kBf16>;
  constexpr int kBlocks = Shape::kBlocks;
  // All of a single block, or the rows of a panel.
  constexpr int kPieceBytes = kBlocks == 1 ? Shape::kTileBytes : kBlockTokens * Shape::kPanelBytes;
  const char* cache = static_cast<const char*>(p.cache);
  PrefillWork<kBlocks> work;
  for (int turn = 0, n = 0; GetPrefillWork(p, turn, work); ++turn) {
    for (int step = 0; step < work.num_steps(); ++step, ++n) {
      const int stage = n % Shape::kStages;
      const uint32_t empty_parity = (n / Shape::kStages - 1) & 1;
      char* to = stages + stage * Shape::kStageBytes;
      const char* from[kBlocks];
#pragma unroll
      for (int part = 0; part < kBlocks; ++part) {
        from[part] = cache + work.HeadOf(p, work.LoadedBlock(step, part)) * 2 * Shape::kTileBytes;
      }
      if (n >= Shape::kStages) BarrierWait(barriers.empty_keys + stage, empty_parity);
      BarrierExpect(barriers.full_keys + stage, kBlocks * Shape::kTileBytes);
#pragma unroll
      for (int part = 0; part < kBlocks; ++part) {
#pragma unroll
        for (int piece = 0; piece < Shape::kTileBytes / kPieceBytes; ++piece) {
          BulkCopy(to + (piece * kBlocks + part) * kPieceBytes, from[part] + piece * kPieceBytes,
                   kPieceBytes, barriers.full_keys + stage);
        }
      }
      if (n >= Shape::kStages) BarrierWait(barriers.empty_values + stage, empty_parity);
      BarrierExpect(barriers.full_values + stage, kBlocks * Shape::kTileBytes);
#pragma unroll
      for (int part = 0; part < kBlocks; ++part) {
        BulkCopy(to + Shape::ValuesOffset(part), from[part] + Shape::kTileBytes, Shape::kTileBytes,
                 barriers.full_values + stage);
      }
    }
  }
}

// The same for a quantized cache, with unpacking. Called by 128 threads.
template <int kHeadDim, CacheFormat kFormat>
__device__ void ProduceUnpacked(const PrefillAttentionParams& p, char* stages,
                                const PrefillBarriers& barriers, char* packed) {
  using Shape = PrefillShape<kHeadDim, kFormat>;
  constexpr int kBlocks = Shape::kBlocks;
  const char* cache = static_cast<const char*>(p.cache);
  BlockCursor<kBlocks> ahead(p);
  const auto copy = [&](int n) {
    if (threadIdx.x != 0 || !ahead.has_block()) return;
    uint64_t* barrier = barriers.arrived + n % Shape::kPackedStages;
    BarrierExpect(barrier, Shape::kPackedBytes);
    BulkCopy(packed + n % Shape::kPackedStages * Shape::kPackedBytes,
             cache + ahead.head() * Shape::kPackedBytes, Shape::kPackedBytes, barrier);
    ahead.Advance();
  };
  for (int n = 0; n < Shape::kPackedStages; ++n) copy(n);
  int n = 0;
  for (BlockCursor<kBlocks> now(p); now.has_block(); now.Advance(), ++n) {
    const int step = n / kBlocks, part = n % kBlocks, stage = step % Shape::kStages;
    char* from = packed + n % Shape::kPackedStages * Shape::kPackedBytes;
    char* to = stages + stage * Shape::kStageBytes;
    if (part == 0 && step >= Shape::kStages) {
      BarrierWait(barriers.empty_keys + stage, (step / Shape::kStages - 1) & 1);
      BarrierWait(barriers.empty_values + stage, (step / Shape::kStages - 1) & 1);
    }
    BarrierWait(barriers.arrived + n % Shape::kPackedStages, n / Shape::kPackedStages & 1);
    if (now.is_last() && now.work().num_last < kBlockTokens) {
      auto* scales = reinterpret_cast<float*>(from + QuantizedScalesOffset(kHeadDim));
      const auto token = static_cast<int>(threadIdx.x);
      if (token >= now.work().num_last && token < kBlockTokens) scales[kBlockTokens + token] = 0.0f;
      asm volatile("bar.sync 4, 128;" ::: "memory");
    }
    UnpackBlock<kHeadDim, kFormat, kBlocks>(from, to + part * kBlockTokens * Shape::kPanelBytes,
                                            to + Shape::ValuesOffset(part));
    ProxyFence();
    if (part == kBlocks - 1) {
      BarrierArrive(barriers.full_keys + stage);
      BarrierArrive(barriers.full_values + stage);
    }
    asm volatile("bar.sync 4, 128;" ::
                     : "memory");  // all threads have read what the next copy overwrites
    copy(n + Shape::kPackedStages);
  }
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::prefill_attention
