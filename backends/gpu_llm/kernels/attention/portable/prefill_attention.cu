// Prefill attention on every GPU from compute capability 8.0: prefill_two_groups.cuh, and here for
// heads of more than 128 columns, whose sums leave no registers for 32 rows a warp. A block of
// eight warps handles a tile of kQueryRows rows of one key/value head, 16 rows a warp: row r is
// query head r % group of token r / group. All warps copy a KV block to shared memory by 16-byte
// asynchronous copies and use it; a quantized block is unpacked there to the bf16 layout.
// Accumulators have the layout of wgmma's, so that both forms share one softmax
// (prefill_softmax.cuh).
#include <algorithm>

#include "backends/gpu_llm/kernels/attention/attention.h"
#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/kernels/attention/head_dims.h"
#include "backends/gpu_llm/kernels/attention/partial_attention.cuh"
#include "backends/gpu_llm/kernels/attention/portable/block_matrices.cuh"
#include "backends/gpu_llm/kernels/attention/portable/prefill_two_groups.cuh"
#include "backends/gpu_llm/kernels/attention/prefill_producer.cuh"
#include "backends/gpu_llm/kernels/attention/prefill_softmax.cuh"
#include "backends/gpu_llm/kernels/attention/prefill_work.cuh"
#include "backends/gpu_llm/kernels/device/async_copy.cuh"
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/portable/shared_bytes.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

using namespace prefill_attention;

constexpr int kWarps = kQueryRows / 16, kThreads = 32 * kWarps;
static_assert(kThreads == portable_shape::kPrefillThreads);

// The queries of this thread's two rows as operand a. They are read again for each block.
struct Queries {
  const bf16* rows[2];

  __device__ __forceinline__ void Load(int step, uint32_t (&to)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bf16* row = rows[i % 2];
      to[i] = row == nullptr ? 0
                             : __ldg(reinterpret_cast<const uint32_t*>(row + 16 * step + i / 2 * 8 +
                                                                       threadIdx.x % 4 * 2));
    }
  }
};

// scores = queries x keys^T. The next keys are read while these are multiplied.
template <int kHeadDim>
__device__ __forceinline__ void Multiply(const Queries& queries, uint32_t block,
                                         const LaneOffsets<kHeadDim>& offsets,
                                         float (&scores)[32]) {
  constexpr int kSteps = kHeadDim / 16, kLoads = kBlockTokens / 16;
  uint4 keys[2][kLoads];
  const auto read = [&](int s) {
#pragma unroll
    for (int n = 0; n < kLoads; ++n) keys[s % 2][n] = LoadMatrices(block + offsets.Keys(s, n));
  };
#pragma unroll
  for (float& score : scores) score = 0.0f;
  read(0);
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    uint32_t q[4];
    queries.Load(s, q);
    if (s + 1 < kSteps) read(s + 1);
#pragma unroll
    for (int n = 0; n < kLoads; ++n) {
      const uint4& b = keys[s % 2][n];
      MatrixMultiplyAdd(Sums(scores, 2 * n), q[0], q[1], q[2], q[3], b.x, b.y);
      MatrixMultiplyAdd(Sums(scores, 2 * n + 1), q[0], q[1], q[2], q[3], b.z, b.w);
    }
  }
}

// out += weights x values. The first values are read by the constructor, the next ones while some
// are multiplied.
template <int kHeadDim>
class Values {
  static constexpr int kColumnLoads = kHeadDim / 16;
  static constexpr int kLoads = kColumnLoads <= 5 ? kColumnLoads : kColumnLoads % 4 == 0 ? 4 : 3;
  static constexpr int kUnits = kColumnLoads / kLoads, kSteps = kBlockTokens / 16;
  static_assert(kColumnLoads % kLoads == 0);

 public:
  __device__ __forceinline__ Values(uint32_t block, const LaneOffsets<kHeadDim>& offsets)
      : block_(block), offsets_(offsets) {
    Read(0);
  }
  __device__ __forceinline__ void MultiplyAdd(float (&out)[kHeadDim / 2],
                                              const uint32_t (&weights)[16]) {
#pragma unroll
    for (int unit = 0; unit < kSteps * kUnits; ++unit) {
      if (unit + 1 < kSteps * kUnits) Read(unit + 1);
      const int s = unit / kUnits;
#pragma unroll
      for (int n = 0; n < kLoads; ++n) {
        const uint4& b = values_[unit % 2][n];
        const int at = 2 * (unit % kUnits * kLoads + n);
        MatrixMultiplyAdd(Sums(out, at), weights[4 * s], weights[4 * s + 1], weights[4 * s + 2],
                          weights[4 * s + 3], b.x, b.y);
        MatrixMultiplyAdd(Sums(out, at + 1), weights[4 * s], weights[4 * s + 1], weights[4 * s + 2],
                          weights[4 * s + 3], b.z, b.w);
      }
    }
  }

 private:
  __device__ __forceinline__ void Read(int unit) {
#pragma unroll
    for (int n = 0; n < kLoads; ++n) {
      values_[unit % 2][n] =
          LoadMatrices(block_ + offsets_.Values(unit / kUnits, unit % kUnits * kLoads + n));
    }
  }

  uint32_t block_;
  const LaneOffsets<kHeadDim>& offsets_;
  uint4 values_[2][kLoads];
};

// The KV blocks of one tile.
template <int kHeadDim, CacheFormat kFormat>
class Blocks {
  static constexpr bool kUnpacks = kFormat != CacheFormat::kBf16;
  static constexpr int kBlockBytes = static_cast<int>(HeadBytes(kHeadDim));
  static constexpr int kCopyBytes = static_cast<int>(HeadBytes(kHeadDim, kFormat));

 public:
  __device__ Blocks(const PrefillAttentionParams& p, const PrefillWork<1>& work, char* shared)
      : table_(p.words + work.tile.table_offset),
        cache_(static_cast<const char*>(p.cache) + work.kv_head * int64_t{kCopyBytes}),
        stride_(p.num_kv_heads * int64_t{kCopyBytes}),
        blocks_(work.steps),
        num_last_(work.num_last),
        block_(shared),
        copied_(kUnpacks ? shared + kBlockBytes : shared) {}

  // Block i in the bf16 layout. Values after the end of the context are zero.
  __device__ __forceinline__ char* Read(int i) {
    __syncthreads();  // all warps have used the last block
    const char* from = cache_ + table_[blocks_[i]] * stride_;
    const auto thread = static_cast<int>(threadIdx.x);
    for (int at = thread * 16; at < kCopyBytes; at += kThreads * 16)
      AsyncCopy16(copied_ + at, from + at);
    AsyncCopyWaitAll();
    __syncthreads();
    const bool is_cut = i == blocks_.count() - 1 && num_last_ < kBlockTokens;
    if constexpr (kUnpacks) {
      if (is_cut) {
        auto* scales = reinterpret_cast<float*>(copied_ + QuantizedScalesOffset(kHeadDim));
        if (thread >= num_last_ && thread < kBlockTokens) scales[kBlockTokens + thread] = 0.0f;
        __syncthreads();
      }
      if (thread < kUnpackThreads)
        UnpackBlock<kHeadDim, kFormat>(copied_, block_, block_ + TileBytes(kHeadDim));
      __syncthreads();
    } else if (is_cut) {
      ClearValues<kHeadDim, kBlockTokens>(block_ + TileBytes(kHeadDim), 0, num_last_, thread,
                                          kThreads);
      __syncthreads();
    }
    return block_;
  }

 private:
  const int32_t* table_;
  const char* cache_;
  int64_t stride_;
  VisibleBlocks blocks_;
  int num_last_;
  char *block_, *copied_;
};

template <int kHeadDim, CacheFormat kFormat>
__global__ void __launch_bounds__(kThreads, 1) PrefillAttentionKernel(PrefillAttentionParams p) {
  extern __shared__ __align__(128) char shared[];
  PrefillWork<1> work;
  // One tile for each block of threads, longest first.
  if (!GetPrefillWork(p, 0, work)) return;
  const PrefillTile& tile = work.tile;
  const int group = p.num_heads / p.num_kv_heads;
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const int warp_index = tile.tile * kQueryRows + warp * 16;
  Queries queries;
  int index[2], position[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    index[half] = warp_index + g + 8 * half;
    position[half] = tile.num_cached + index[half] / group;
    queries.rows[half] = index[half] >= tile.num_tokens * group
                             ? nullptr
                             : p.qkv +
                                   int64_t{tile.first_row + index[half] / group} * p.qkv_stride +
                                   (work.kv_head * group + index[half] % group) * kHeadDim;
  }
  const int warp_first = tile.num_cached + warp_index / group;
  const int warp_last = tile.num_cached + (warp_index + 15) / group;
  float out[kHeadDim / 2] = {};
  SoftmaxState state = {{kNegativeInfinity, kNegativeInfinity}, {0.0f, 0.0f}};
  const LaneOffsets<kHeadDim> offsets;
  Blocks<kHeadDim, kFormat> blocks(p, work, shared);
  for (int i = 0; i < work.num_steps(); ++i) {
    const uint32_t block = SharedAddress(blocks.Read(i));
    const int first_token = work.Block(i, 0) * kBlockTokens;
    if (first_token > warp_last) continue;  // no row of the warp sees the block
    float scores[32], rescale[2];
    uint32_t weights[16];
    Multiply(queries, block, offsets, scores);
    Values<kHeadDim> values(block, offsets);
    const bool masks = first_token + kBlockTokens - 1 > warp_first ||
                       (p.window > 0 && first_token + p.window <= warp_last);
    ScoresToWeights<1>(p, scores, state, rescale, {first_token}, position, masks);
    Rescale(out, rescale);
    PackWeights(scores, weights);
    values.MultiplyAdd(out, weights);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = state.sum[half];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    if (index[half] >= tile.num_tokens * group) continue;
    bf16* to = p.out + int64_t{tile.first_row + index[half] / group} * p.out_stride +
               (work.kv_head * group + index[half] % group) * kHeadDim;
    const float scale = 1.0f / sum;
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; ++n) {
      *reinterpret_cast<uint32_t*>(to + 8 * n + 2 * t) =
          PackBf16(out[4 * n + 2 * half] * scale, out[4 * n + 2 * half + 1] * scale);
    }
  }
}

template <int kHeadDim, CacheFormat kFormat>
void LaunchAs(const PrefillAttentionParams& p, cudaStream_t stream) {
  if constexpr (kHeadDim <= 128) {
    prefill_two_groups::LaunchTiles<kHeadDim, kFormat>(p, stream);
  } else {
    constexpr int kShared = portable_shape::PrefillSharedBytes(kHeadDim, kFormat);
    (void)cudaFuncSetAttribute(PrefillAttentionKernel<kHeadDim, kFormat>,
                               cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
    Launch(PrefillAttentionKernel<kHeadDim, kFormat>, p.num_tiles * p.num_kv_heads, kThreads,
           kShared, stream, p);
  }
}

template <int kHeadDim>
void LaunchFor(const PrefillAttentionParams& p, cudaStream_t stream) {
  switch (p.format) {
    case CacheFormat::kBf16:
      return LaunchAs<kHeadDim, CacheFormat::kBf16>(p, stream);
    case CacheFormat::kFp8:
      return LaunchAs<kHeadDim, CacheFormat::kFp8>(p, stream);
    case CacheFormat::kInt8:
      return LaunchAs<kHeadDim, CacheFormat::kInt8>(p, stream);
  }
}

}  // namespace

void PrefillAttention(const PrefillAttentionParams& params, cudaStream_t stream) {
  ForHeadDim(params.head_dim, [&](auto head_dim) { LaunchFor<head_dim.value>(params, stream); });
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
