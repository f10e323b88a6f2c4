// Hopper: an additional warp fills the ring by bulk copies. Blocks that no kernel may still write
// (DecodeItem::first_new) are copied before the previous kernel has ended. Device code only.
#pragma once

#include "backends/gpu_llm/kernels/attention/attention.h"
#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/kernels/attention/visible_blocks.cuh"
#include "backends/gpu_llm/kernels/device/async_copy.cuh"
#include "backends/gpu_llm/kernels/device/device.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::decode_attention {

inline constexpr int kCopyWarps = 1;

constexpr int NumStages(int stage_bytes) {
  const int fit = 100 * 1024 / stage_bytes;
  return fit < 2 ? 2 : fit > 8 ? 8 : fit;
}

// How many parts of a KV block have stages of their own. Keys and values are two parts if, in one
// stage, they would need so much shared memory that a multiprocessor could not hold two blocks of
// threads.
constexpr int BlockParts(int block_bytes) {
  return block_bytes > 48 * 1024 ? 2 : 1;
}

// The parts of the visible KV blocks of an item, in order. The constructor and Start() are called
// by all threads, Wait() and Release() by the kWarps warps that compute.
template <int kStages, int kStageBytes, int kWarps, int kParts = 1>
class KvRing {
 public:
  struct Barriers {  // in shared memory
    uint64_t full[kStages], empty[kStages];
  };

  __device__ KvRing(char* stages, Barriers& barriers) : stages_(stages), barriers_(barriers) {
    if (threadIdx.x == 0) {
      for (int stage = 0; stage < kStages; ++stage) {
        BarrierInit(barriers.full + stage, 1);
        BarrierInit(barriers.empty + stage, kWarps);
      }
      BarrierInitFence();
    }
    __syncthreads();
  }

  // Returns after the previous kernel has ended.
  __device__ void Start(const DecodeAttentionParams& p, const DecodeItem& item,
                        const VisibleBlocks& blocks) {
    if (threadIdx.x == 32 * kWarps) Produce(p, item, blocks);
    if (threadIdx.x / 32 == kWarps) __syncwarp();
    WaitForPrevious();
  }

  // Part i of the item's blocks.
  __device__ __forceinline__ char* Wait(int i) {
    BarrierWait(barriers_.full + i % kStages, i / kStages & 1);
    return stages_ + i % kStages * kStageBytes;
  }
  __device__ __forceinline__ void Release(int i) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) BarrierArrive(barriers_.empty + i % kStages);
  }

 private:
  __device__ void Produce(const DecodeAttentionParams& p, const DecodeItem& item,
                          const VisibleBlocks& blocks) {
    constexpr int64_t kHeadBytes = int64_t{kParts} * kStageBytes;
    const char* cache = static_cast<const char*>(p.cache) + blockIdx.y * kHeadBytes;
    const int64_t block_bytes = p.num_kv_heads * kHeadBytes;
    const auto copy = [&](int i) {
      const int stage = i % kStages;
      BarrierExpect(barriers_.full + stage, kStageBytes);
      BulkCopy(stages_ + stage * kStageBytes,
               cache + p.words[item.table_offset + blocks[i / kParts]] * block_bytes +
                   i % kParts * kStageBytes,
               kStageBytes, barriers_.full + stage);
    };
    const int written = item.first_new / kBlockTokens;  // the first block that a kernel may write
    const int count = kParts * blocks.count();
    int early = 0;
    for (; early < min(count, kStages) && blocks[early / kParts] < written; ++early) copy(early);
    WaitForPrevious();
    for (int i = early; i < count; ++i) {
      if (i >= kStages) BarrierWait(barriers_.empty + i % kStages, (i / kStages - 1) & 1);
      copy(i);
    }
  }

  char* stages_;
  Barriers& barriers_;
};

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::decode_attention
