// Every GPU from compute capability 8.0: the warps that compute also fill the ring, by 16-byte
// asynchronous copies. Device code only.
#pragma once

#include "backends/gpu_llm/kernels/attention/attention.h"
#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/kernels/attention/visible_blocks.cuh"
#include "backends/gpu_llm/kernels/device/async_copy.cuh"
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/portable/shared_bytes.h"

namespace nereid::gpu::NEREID_KERNEL_FORM::decode_attention {

inline constexpr int kCopyWarps = 0;

constexpr int NumStages(int stage_bytes) {
  return portable_shape::DecodeStages(stage_bytes);
}

constexpr int BlockParts(int) {
  return 1;
}

// The visible KV blocks of an item, in order. All functions are called by all threads.
template <int kStages, int kStageBytes, int kWarps, int kParts = 1>
class KvRing {
  static_assert(kParts == 1);

 public:
  struct Barriers {};

  __device__ KvRing(char* stages, Barriers&) : stages_(stages) {}

  __device__ void Start(const DecodeAttentionParams& p, const DecodeItem& item,
                        const VisibleBlocks& blocks) {
    cache_ = static_cast<const char*>(p.cache) + blockIdx.y * int64_t{kStageBytes};
    block_bytes_ = p.num_kv_heads * int64_t{kStageBytes};
    table_ = p.words + item.table_offset;
    blocks_ = blocks;
    for (int i = 0; i < kStages - 1; ++i) Copy(i);
  }

  // Block i of the item.
  __device__ __forceinline__ char* Wait(int i) {
    if constexpr (kStages > 1) {
      AsyncCopyWaitGroups<kStages - 2>();
      __syncthreads();  // also: all warps have used block i - 1
      Copy(i + kStages - 1);
    } else {
      __syncthreads();
      Copy(i);
      AsyncCopyWaitGroups<0>();
      __syncthreads();
    }
    return stages_ + i % kStages * kStageBytes;
  }
  __device__ __forceinline__ void Release(int) {}

 private:
  // Copies of one block are one group; blocks after the last one are empty groups.
  __device__ __forceinline__ void Copy(int i) {
    if (i < blocks_.count()) {
      const char* from = cache_ + table_[blocks_[i]] * block_bytes_;
      char* to = stages_ + i % kStages * kStageBytes;
      for (int at = static_cast<int>(threadIdx.x) * 16; at < kStageBytes; at += 32 * kWarps * 16)
        AsyncCopy16(to + at, from + at);
    }
    AsyncCopyCommit();
  }

  char* stages_;
  const char* cache_ = nullptr;
  const int32_t* table_ = nullptr;
  int64_t block_bytes_ = 0;
  VisibleBlocks blocks_;
};

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::decode_attention
