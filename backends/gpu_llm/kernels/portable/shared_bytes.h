// Shared memory and threads of the portable kernels that need more than the 48 KB that every launch
// may have. Free of CUDA, so that tests compare them with GPUs that the machine does not have.
#pragma once

#include <algorithm>

#include "backends/gpu_llm/kernels/attention/cache_layout.h"

namespace nereid::gpu::portable_shape {

inline constexpr int kHeadDims[] = {16, 32, 64, 80, 96, 128, 256};

inline constexpr int kDecodeThreads = 128;
inline constexpr int kPrefillThreads = 256;

// Blocks of a ring of decode attention over a bf16 cache: at most 96 KB, so that it fits into the
// 99 KB that a block of threads may have on GPUs of 8.6, 8.9 and 12.0. One stage: a block is copied
// after the previous one has been used.
constexpr int DecodeStages(int stage_bytes) {
  return std::clamp(96 * 1024 / stage_bytes, 1, 6);
}
// Of a quantized cache: up to three blocks of threads share a multiprocessor's memory where it has
// 228 KB.
constexpr int QuantizedDecodeStages(int stage_bytes) {
  return std::clamp(68 * 1024 / stage_bytes, 2, 8);
}
// Partial results of four warps with 16 query heads, in the memory of the ring.
constexpr int DecodePartialsBytes(int head_dim) {
  return 4 * 4 * 16 * (head_dim + 4);
}
constexpr int DecodeSharedBytes(int head_dim, CacheFormat format) {
  const int stage = static_cast<int>(HeadBytes(head_dim, format));
  const int stages =
      format == CacheFormat::kBf16 ? DecodeStages(stage) : QuantizedDecodeStages(stage);
  return std::max(stages * stage, DecodePartialsBytes(head_dim));
}

// Heads up to 128: the queries, and a KV block in bf16 for each of two groups of warps. Wider ones:
// a block as it is in the cache; if that is quantized, also one in bf16.
constexpr int PrefillSharedBytes(int head_dim, CacheFormat format) {
  if (head_dim <= 128) return 6 * static_cast<int>(TileBytes(head_dim));
  const int block = static_cast<int>(HeadBytes(head_dim, format));
  return format == CacheFormat::kBf16 ? block : block + static_cast<int>(HeadBytes(head_dim));
}

// A head of a quantized KV block, unpacked to bf16, in the shared memory of a block of threads.
inline constexpr int kUnpackThreads = 128;

// The grouped GEMM of batch-invariant steps: the ring of 64 rows by 64 outputs, and of 16 by 32.
inline constexpr int kGroupedGemmSharedBytes = std::max(4 * (64 + 64) * 128, 8 * (16 + 32) * 128);
inline constexpr int kGroupedGemmThreads = 128;

}  // namespace nereid::gpu::portable_shape
