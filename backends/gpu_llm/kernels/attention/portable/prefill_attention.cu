// Prefill attention on every GPU from compute capability 8.0. A block of eight warps handles a tile
// of kQueryRows rows of one key/value head, 16 rows a warp: row r is query head r % group of token
// r / group. All warps copy the KV blocks to a ring in shared memory by 16-byte asynchronous
// copies; a quantized block is unpacked there to the bf16 layout. The accumulators have the layout
// of wgmma's, so that the softmax is the one of the native form. Bound by the tensor cores.
#include <algorithm>

#include "backends/gpu_llm/kernels/attention/attention.h"
#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/kernels/attention/head_dims.h"
#include "backends/gpu_llm/kernels/attention/partial_attention.cuh"
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

template <int kHeadDim, CacheFormat kFormat>
struct Shape {
  static constexpr bool kUnpacks = kFormat != CacheFormat::kBf16;
  static constexpr int kBlockBytes = static_cast<int>(HeadBytes(kHeadDim));
  static constexpr int kCopyBytes = static_cast<int>(HeadBytes(kHeadDim, kFormat));
  static constexpr int kStages = portable_shape::PrefillStages(kHeadDim);
  // Queries of larger heads are read again for each block.
  static constexpr bool kKeepsQueries = kHeadDim <= 128;
  static constexpr int kSharedBytes = portable_shape::PrefillSharedBytes(kHeadDim, kFormat);
};

__device__ __forceinline__ void LoadMatrices(uint32_t (&to)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

// The queries of this thread's two rows as operand a.
template <int kHeadDim, bool kKeeps>
struct Queries {
  const bf16* rows[2];
  uint32_t registers[kKeeps ? kHeadDim / 16 : 1][4];

  __device__ __forceinline__ void Load(int step, uint32_t (&to)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bf16* row = rows[i % 2];
      to[i] = row == nullptr ? 0
                             : __ldg(reinterpret_cast<const uint32_t*>(row + 16 * step + i / 2 * 8 +
                                                                       threadIdx.x % 4 * 2));
    }
  }
  __device__ __forceinline__ void Keep() {
    if constexpr (kKeeps) {
#pragma unroll
      for (int s = 0; s < kHeadDim / 16; ++s) Load(s, registers[s]);
    }
  }
};

// A matrix load has 16 tokens of 16 columns. A lane's byte offsets in a KV block: of the keys of
// the first 16 tokens, for each 16 columns of a panel; of the values of the first 16 columns, for
// each 16 tokens.
template <int kHeadDim>
struct LaneOffsets {
  static constexpr int kPanelColumns = KeyPanelColumns(kHeadDim);
  uint32_t keys[kPanelColumns / 16], values[kBlockTokens / 16];

  __device__ __forceinline__ LaneOffsets() {
    const int lane = threadIdx.x % 32;
    const int row = lane / 16 * 8 + lane % 8, column = lane / 8 % 2 * 8;
#pragma unroll
    for (int s = 0; s < kPanelColumns / 16; ++s)
      keys[s] = KeyOffset<kHeadDim>(row, 16 * s + column);
#pragma unroll
    for (int s = 0; s < kBlockTokens / 16; ++s)
      values[s] =
          static_cast<uint32_t>(TileBytes(kHeadDim)) + ValueOffset<kHeadDim>(16 * s + column, row);
  }
  // Of 16 columns from 16 s on, and of 16 tokens from 16 n on.
  __device__ __forceinline__ uint32_t Keys(int s, int n) const {
    constexpr int kSteps = kPanelColumns / 16, kRowBytes = 2 * kPanelColumns;
    return keys[s % kSteps] + s / kSteps * kBlockTokens * kRowBytes + n * 16 * kRowBytes;
  }
  // Of 16 tokens from 16 s on, and of 16 columns from 16 n on.
  __device__ __forceinline__ uint32_t Values(int s, int n) const {
    return values[s] + n * 16 * (kBlockTokens * 2);
  }
};

// scores = queries x keys^T. The next keys are read while these are multiplied.
template <int kHeadDim, bool kKeeps>
__device__ __forceinline__ void Multiply(const Queries<kHeadDim, kKeeps>& queries, uint32_t block,
                                         const LaneOffsets<kHeadDim>& offsets,
                                         float (&scores)[32]) {
  constexpr int kSteps = kHeadDim / 16, kLoads = kBlockTokens / 16;
  uint32_t keys[2][kLoads][4];
  const auto read = [&](int s) {
#pragma unroll
    for (int n = 0; n < kLoads; ++n) LoadMatrices(keys[s % 2][n], block + offsets.Keys(s, n));
  };
#pragma unroll
  for (float& score : scores) score = 0.0f;
  read(0);
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    uint32_t q[4];
    if constexpr (kKeeps) {
#pragma unroll
      for (int i = 0; i < 4; ++i) q[i] = queries.registers[s][i];
    } else {
      queries.Load(s, q);
    }
    if (s + 1 < kSteps) read(s + 1);
#pragma unroll
    for (int n = 0; n < 2 * kLoads; ++n) {
      auto& d = *reinterpret_cast<float(*)[4]>(&scores[4 * n]);
      const uint32_t* b = &keys[s % 2][n / 2][n % 2 * 2];
      MatrixMultiplyAdd(d, q[0], q[1], q[2], q[3], b[0], b[1]);
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
      for (int n = 0; n < 2 * kLoads; ++n) {
        auto& d = *reinterpret_cast<float(*)[4]>(&out[4 * (unit % kUnits * 2 * kLoads + n)]);
        const uint32_t* b = &values_[unit % 2][n / 2][n % 2 * 2];
        MatrixMultiplyAdd(d, weights[4 * s], weights[4 * s + 1], weights[4 * s + 2],
                          weights[4 * s + 3], b[0], b[1]);
      }
    }
  }

 private:
  __device__ __forceinline__ void Read(int unit) {
#pragma unroll
    for (int n = 0; n < kLoads; ++n) {
      LoadMatrices(values_[unit % 2][n],
                   block_ + offsets_.Values(unit / kUnits, unit % kUnits * kLoads + n));
    }
  }

  uint32_t block_;
  const LaneOffsets<kHeadDim>& offsets_;
  uint32_t values_[2][kLoads][4];
};

// The KV blocks of one tile.
template <int kHeadDim, CacheFormat kFormat>
class Blocks {
 public:
  using BlockShape = Shape<kHeadDim, kFormat>;

  __device__ Blocks(const PrefillAttentionParams& p, const PrefillWork<1>& work, char* shared)
      : table_(p.words + work.tile.table_offset),
        cache_(static_cast<const char*>(p.cache) + work.kv_head * int64_t{BlockShape::kCopyBytes}),
        stride_(p.num_kv_heads * int64_t{BlockShape::kCopyBytes}),
        blocks_(work.steps),
        num_last_(work.num_last),
        ring_(BlockShape::kUnpacks ? shared + BlockShape::kBlockBytes : shared),
        unpacked_(shared) {
    if (BlockShape::kStages > 1) Copy(0);
  }

  // Block i in the bf16 layout. Values after the end of the context are zero.
  __device__ __forceinline__ char* Wait(int i) {
    // After the barrier, all warps have used block i - 1, which the copy overwrites.
    if constexpr (BlockShape::kStages > 1) {
      AsyncCopyWaitGroups<0>();
      __syncthreads();
      Copy(i + 1);
    } else {
      __syncthreads();
      Copy(i);
      AsyncCopyWaitGroups<0>();
      __syncthreads();
    }
    char* const block = ring_ + i % BlockShape::kStages * BlockShape::kCopyBytes;
    const bool is_cut = i == blocks_.count() - 1 && num_last_ < kBlockTokens;
    const auto thread = static_cast<int>(threadIdx.x);
    if constexpr (BlockShape::kUnpacks) {
      if (is_cut) {
        auto* scales = reinterpret_cast<float*>(block + QuantizedScalesOffset(kHeadDim));
        if (thread >= num_last_ && thread < kBlockTokens) scales[kBlockTokens + thread] = 0.0f;
        __syncthreads();
      }
      if (thread < kUnpackThreads)
        UnpackBlock<kHeadDim, kFormat>(block, unpacked_, unpacked_ + TileBytes(kHeadDim));
      __syncthreads();
      return unpacked_;
    } else {
      if (is_cut) {
        ClearValues<kHeadDim, kBlockTokens>(block + TileBytes(kHeadDim), 0, 0, num_last_, thread,
                                            kThreads);
        __syncthreads();
      }
      return block;
    }
  }

 private:
  __device__ __forceinline__ void Copy(int i) {
    if (i < blocks_.count()) {
      const char* from = cache_ + table_[blocks_[i]] * stride_;
      char* to = ring_ + i % BlockShape::kStages * BlockShape::kCopyBytes;
      for (int at = static_cast<int>(threadIdx.x) * 16; at < BlockShape::kCopyBytes;
           at += kThreads * 16) {
        AsyncCopy16(to + at, from + at);
      }
    }
    AsyncCopyCommit();
  }

  const int32_t* table_;
  const char* cache_;
  int64_t stride_;
  VisibleBlocks blocks_;
  int num_last_;
  char *ring_, *unpacked_;
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
  Queries<kHeadDim, Shape<kHeadDim, kFormat>::kKeepsQueries> queries;
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
  queries.Keep();
  const int warp_first = tile.num_cached + warp_index / group;
  const int warp_last = tile.num_cached + (warp_index + 15) / group;
  float out[kHeadDim / 2] = {};
  SoftmaxState state = {{kNegativeInfinity, kNegativeInfinity}, {0.0f, 0.0f}};
  const LaneOffsets<kHeadDim> offsets;
  Blocks<kHeadDim, kFormat> blocks(p, work, shared);
  for (int i = 0; i < work.num_steps(); ++i) {
    const uint32_t block = SharedAddress(blocks.Wait(i));
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
  constexpr int kShared = Shape<kHeadDim, kFormat>::kSharedBytes;
  (void)cudaFuncSetAttribute(PrefillAttentionKernel<kHeadDim, kFormat>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  Launch(PrefillAttentionKernel<kHeadDim, kFormat>, p.num_tiles * p.num_kv_heads, kThreads, kShared,
         stream, p);
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
