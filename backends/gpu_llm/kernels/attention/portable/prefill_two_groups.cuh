// Prefill attention for heads of at most 128 columns. A block of threads handles a tile of
// kQueryRows rows of one key/value head with two groups of four warps. A group has every second KV
// block, so that one group multiplies while the other one computes weights; a warp has 32 rows, so
// that it reads keys and values half as often as with 16. In the end the second group passes its
// sums to the first one. The result of a row does not depend on its tile: the blocks of a group are
// those with even or odd numbers. A quantized block is unpacked to the bf16 layout. Bound by the
// tensor cores. Device code only.
#pragma once

#include "backends/gpu_llm/kernels/attention/attention.h"
#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/kernels/attention/partial_attention.cuh"
#include "backends/gpu_llm/kernels/attention/portable/block_matrices.cuh"
#include "backends/gpu_llm/kernels/attention/prefill_softmax.cuh"
#include "backends/gpu_llm/kernels/attention/prefill_work.cuh"
#include "backends/gpu_llm/kernels/attention/unpack_block.cuh"
#include "backends/gpu_llm/kernels/device/async_copy.cuh"
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/device/operand_loads.cuh"
#include "backends/gpu_llm/kernels/portable/shared_bytes.h"

namespace nereid::gpu::NEREID_KERNEL_FORM::prefill_two_groups {

using prefill_attention::GetPrefillWork;
using prefill_attention::PrefillWork;

constexpr int kGroups = 2, kGroupThreads = 128, kThreads = kGroups * kGroupThreads;
static_assert(kThreads == portable_shape::kPrefillThreads);
constexpr int kWarpRows = 32, kRowTiles = kWarpRows / 16;
static_assert(kGroupThreads / 32 * kWarpRows == kQueryRows);

// The queries of a tile in shared memory, in the layout of the keys of two blocks.
template <int kHeadDim>
__device__ __forceinline__ uint32_t QueryOffset(int row, int column) {
  return row / kBlockTokens * static_cast<uint32_t>(TileBytes(kHeadDim)) +
         KeyOffset<kHeadDim>(row % kBlockTokens, column);
}

template <int kHeadDim>
__device__ __forceinline__ void CopyQueries(const PrefillAttentionParams& p,
                                            const PrefillWork<1>& work, uint32_t to) {
  constexpr int kChunks = kHeadDim / 8;
  const PrefillTile& tile = work.tile;
  const int group = p.num_heads / p.num_kv_heads;
#pragma unroll 4
  for (int at = threadIdx.x; at < kQueryRows * kChunks; at += kThreads) {
    const int row = at / kChunks, column = at % kChunks * 8;
    const int index = tile.tile * kQueryRows + row;
    const bool exists = index < tile.num_tokens * group;
    const bf16* from = p.qkv;
    if (exists) {
      from += int64_t{tile.first_row + index / group} * p.qkv_stride +
              (work.kv_head * group + index % group) * kHeadDim + column;
    }
    CopyOrZero(to + QueryOffset<kHeadDim>(row, column), reinterpret_cast<const char*>(from),
               exists);
  }
}

// One group's keys and values in shared memory: a tile of each. The group copies the one while it
// uses the other one.
template <int kHeadDim, CacheFormat kFormat>
class GroupBlocks {
  static constexpr bool kUnpacks = kFormat != CacheFormat::kBf16;
  static constexpr int kTileBytes = static_cast<int>(TileBytes(kHeadDim));
  static constexpr int64_t kHeadBytes = HeadBytes(kHeadDim, kFormat);
  static_assert(kGroupThreads == kUnpackThreads);

 public:
  // `shared`: of the group.
  __device__ GroupBlocks(const PrefillAttentionParams& p, const PrefillWork<1>& work, int group,
                         char* shared)
      : work_(work),
        table_(p.words + work.tile.table_offset),
        cache_(static_cast<const char*>(p.cache) + work.kv_head * kHeadBytes),
        stride_(p.num_kv_heads * kHeadBytes),
        group_(group),
        shared_(shared) {}

  // The first step from `step` on that belongs to the group.
  __device__ __forceinline__ int StepFrom(int step) const {
    while (step < work_.num_steps() && work_.steps[step] % kGroups != group_) ++step;
    return step;
  }
  // Starts to copy the keys of a step, if there is one.
  __device__ __forceinline__ void Begin(int step) const {
    if constexpr (!kUnpacks) Copy(step, 0);
  }
  // Waits for the keys of a step.
  __device__ __forceinline__ void WaitForKeys(int step) const {
    Wait();  // all warps of the group have used the last values, too
    if constexpr (kUnpacks) {
      UnpackBlock<kHeadDim, kFormat>(From(step), shared_, shared_ + kTileBytes);
      Wait();
      ClearEnd(step);
    } else {
      Copy(step, kTileBytes);
    }
  }
  // Waits for the values of a step, and starts to copy the keys of the `next` one.
  __device__ __forceinline__ void WaitForValues(int step, int next) const {
    if constexpr (!kUnpacks) {
      Wait();  // all warps of the group have used the keys, too
      Copy(next, 0);
      ClearEnd(step);
    }
  }
  __device__ __forceinline__ uint32_t address() const { return SharedAddress(shared_); }

 private:
  // Waits for the thread's copies, and for the group's other threads.
  __device__ __forceinline__ void Wait() const {
    AsyncCopyWaitGroups<0>();
    Join();
  }
  __device__ __forceinline__ void Join() const {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + group_), "n"(kGroupThreads) : "memory");
  }
  __device__ __forceinline__ const char* From(int step) const {
    return cache_ + table_[work_.steps[step]] * stride_;
  }
  __device__ __forceinline__ void Copy(int step, int offset) const {
    if (step < work_.num_steps()) {
      const char* from = From(step) + offset;
#pragma unroll
      for (int at = 0; at < kTileBytes; at += kGroupThreads * 16) {
        const int mine = at + static_cast<int>(threadIdx.x) % kGroupThreads * 16;
        AsyncCopy16(shared_ + offset + mine, from + mine);
      }
    }
    AsyncCopyCommit();
  }
  // Makes the values after the end of the context zero.
  __device__ __forceinline__ void ClearEnd(int step) const {
    if (step < work_.num_steps() - 1 || work_.num_last == kBlockTokens) return;
    ClearValues<kHeadDim, kBlockTokens>(shared_ + kTileBytes, 0, work_.num_last,
                                        static_cast<int>(threadIdx.x) % kGroupThreads,
                                        kGroupThreads);
    Join();
  }

  const PrefillWork<1>& work_;
  const int32_t* table_;
  const char* cache_;
  int64_t stride_;
  int group_;
  char* shared_;
};

// What a thread has of a warp's 32 rows: for each tile of 16 rows, two rows.
template <int kHeadDim>
struct WarpResult {
  float out[kRowTiles][kHeadDim / 2];
  SoftmaxState state[kRowTiles];
};

// scores = queries x keys^T.
template <int kHeadDim>
__device__ __forceinline__ void Multiply(const uint32_t (&queries)[KeyPanelColumns(kHeadDim) / 16],
                                         uint32_t block, const LaneOffsets<kHeadDim>& offsets,
                                         float (&scores)[kRowTiles][32]) {
  constexpr int kPanelSteps = KeyPanelColumns(kHeadDim) / 16;
  constexpr int kRowBytes = 2 * KeyPanelColumns(kHeadDim);
#pragma unroll
  for (auto& row_scores : scores) {
#pragma unroll
    for (float& score : row_scores) score = 0.0f;
  }
#pragma unroll
  for (int s = 0; s < kHeadDim / 16; ++s) {
    uint4 q[kRowTiles];
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      q[r] = LoadMatrices(queries[s % kPanelSteps] + s / kPanelSteps * kBlockTokens * kRowBytes +
                          r * 16 * kRowBytes);
    }
#pragma unroll
    for (int n = 0; n < kBlockTokens / 16; ++n) {
      const uint4 b = LoadMatrices(block + offsets.Keys(s, n));
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        MatrixMultiplyAdd(Sums(scores[r], 2 * n), q[r].x, q[r].y, q[r].z, q[r].w, b.x, b.y);
        MatrixMultiplyAdd(Sums(scores[r], 2 * n + 1), q[r].x, q[r].y, q[r].z, q[r].w, b.z, b.w);
      }
    }
  }
}

// out += weights x values.
template <int kHeadDim>
__device__ __forceinline__ void AddValues(float (&out)[kRowTiles][kHeadDim / 2],
                                          const uint32_t (&weights)[kRowTiles][16], uint32_t block,
                                          const LaneOffsets<kHeadDim>& offsets) {
#pragma unroll
  for (int s = 0; s < kBlockTokens / 16; ++s) {
#pragma unroll
    for (int n = 0; n < kHeadDim / 16; ++n) {
      const uint4 b = LoadMatrices(block + offsets.Values(s, n));
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        const uint32_t* a = &weights[r][4 * s];
        MatrixMultiplyAdd(Sums(out[r], 2 * n), a[0], a[1], a[2], a[3], b.x, b.y);
        MatrixMultiplyAdd(Sums(out[r], 2 * n + 1), a[0], a[1], a[2], a[3], b.z, b.w);
      }
    }
  }
}

// The second group writes its results to shared memory, and the first one adds them to its own.
// `factor`: of scores, to powers of two.
template <int kHeadDim>
__device__ __forceinline__ void AddGroups(int group, float factor, float* shared,
                                          WarpResult<kHeadDim>& result) {
  constexpr int kFloats = kHeadDim / 2;
  const int thread = static_cast<int>(threadIdx.x) % kGroupThreads;
  auto* values = reinterpret_cast<float4*>(shared) + thread;
  auto* states = reinterpret_cast<float4*>(shared + kGroupThreads * kRowTiles * kFloats) + thread;
  __syncthreads();  // both groups have used the memory
  if (group == 1) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      const SoftmaxState& state = result.state[r];
      states[r * kGroupThreads] = {state.max[0], state.max[1], state.sum[0], state.sum[1]};
#pragma unroll
      for (int i = 0; i < kFloats / 4; ++i) {
        const float* from = &result.out[r][4 * i];
        values[(r * (kFloats / 4) + i) * kGroupThreads] = {from[0], from[1], from[2], from[3]};
      }
    }
  }
  __syncthreads();
  if (group == 1) return;
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
    SoftmaxState& state = result.state[r];
    const float4 other = states[r * kGroupThreads];
    const float other_max[2] = {other.x, other.y}, other_sum[2] = {other.z, other.w};
    float own_scale[2], other_scale[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float max = fmaxf(state.max[half], other_max[half]);
      const bool is_empty = max == kNegativeInfinity;
      own_scale[half] = is_empty ? 0.0f : Exp2((state.max[half] - max) * factor);
      other_scale[half] = is_empty ? 0.0f : Exp2((other_max[half] - max) * factor);
      state.sum[half] = state.sum[half] * own_scale[half] + other_sum[half] * other_scale[half];
    }
#pragma unroll
    for (int i = 0; i < kFloats / 4; ++i) {
      const float4 from = values[(r * (kFloats / 4) + i) * kGroupThreads];
      float* to = &result.out[r][4 * i];
      to[0] = to[0] * own_scale[0] + from.x * other_scale[0];
      to[1] = to[1] * own_scale[0] + from.y * other_scale[0];
      to[2] = to[2] * own_scale[1] + from.z * other_scale[1];
      to[3] = to[3] * own_scale[1] + from.w * other_scale[1];
    }
  }
}

template <int kHeadDim>
__device__ __forceinline__ void Store(const PrefillAttentionParams& p, const PrefillWork<1>& work,
                                      int first_index, const WarpResult<kHeadDim>& result) {
  const PrefillTile& tile = work.tile;
  const int group = p.num_heads / p.num_kv_heads, t = threadIdx.x % 4;
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = result.state[r].sum[half];
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      const int index = first_index + 16 * r + 8 * half + static_cast<int>(threadIdx.x % 32 / 4);
      if (index >= tile.num_tokens * group) continue;
      bf16* to = p.out + int64_t{tile.first_row + index / group} * p.out_stride +
                 (work.kv_head * group + index % group) * kHeadDim;
      const float scale = 1.0f / sum;
#pragma unroll
      for (int n = 0; n < kHeadDim / 8; ++n) {
        const float* from = &result.out[r][4 * n + 2 * half];
        *reinterpret_cast<uint32_t*>(to + 8 * n + 2 * t) =
            PackBf16(from[0] * scale, from[1] * scale);
      }
    }
  }
}

template <int kHeadDim, CacheFormat kFormat>
__global__ void __launch_bounds__(kThreads, 1)
    PrefillAttentionKernel(const __grid_constant__ PrefillAttentionParams p) {
  constexpr int kQueryBytes = kQueryRows * kHeadDim * 2;
  extern __shared__ __align__(128) char shared[];
  PrefillWork<1> work;
  // One tile for each block of threads, longest first.
  if (!GetPrefillWork(p, 0, work)) return;
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  const int first_row = static_cast<int>(threadIdx.x) % kGroupThreads / 32 * kWarpRows;
  const int first_index = work.tile.tile * kQueryRows + first_row;
  const GroupBlocks<kHeadDim, kFormat> blocks(p, work, group,
                                              shared + kQueryBytes + group * HeadBytes(kHeadDim));
  CopyQueries<kHeadDim>(p, work, SharedAddress(shared));
  int step = blocks.StepFrom(0);
  blocks.Begin(step);
  AsyncCopyWaitGroups<0>();
  __syncthreads();  // the queries are copied by both groups

  const int heads = p.num_heads / p.num_kv_heads, lane = threadIdx.x % 32;
  uint32_t queries[KeyPanelColumns(kHeadDim) / 16];
#pragma unroll
  for (int s = 0; s < KeyPanelColumns(kHeadDim) / 16; ++s)
    queries[s] = SharedAddress(shared) +
                 QueryOffset<kHeadDim>(first_row + lane % 16, 16 * s + lane / 16 * 8);
  const LaneOffsets<kHeadDim> offsets;
  int position[kRowTiles][2];
  WarpResult<kHeadDim> result = {};
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
    result.state[r] = {{kNegativeInfinity, kNegativeInfinity}, {0.0f, 0.0f}};
#pragma unroll
    for (int half = 0; half < 2; ++half)
      position[r][half] =
          work.tile.num_cached + (first_index + 16 * r + 8 * half + lane / 4) / heads;
  }
  const int warp_first = work.tile.num_cached + first_index / heads;
  const int warp_last = work.tile.num_cached + (first_index + kWarpRows - 1) / heads;
  const uint32_t block = blocks.address();
  while (step < work.num_steps()) {
    blocks.WaitForKeys(step);
    const int first_token = work.steps[step] * kBlockTokens;
    const bool is_seen = first_token <= warp_last;  // by any row of the warp
    float scores[kRowTiles][32];
    if (is_seen) Multiply<kHeadDim>(queries, block, offsets, scores);
    const int next = blocks.StepFrom(step + 1);
    blocks.WaitForValues(step, next);
    if (is_seen) {
      const bool masks = first_token + kBlockTokens - 1 > warp_first ||
                         (p.window > 0 && first_token + p.window <= warp_last);
      uint32_t weights[kRowTiles][16];
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        float rescale[2];
        ScoresToWeights<1>(p, scores[r], result.state[r], rescale, {first_token}, position[r],
                           masks);
        Rescale(result.out[r], rescale);
        PackWeights(scores[r], weights[r]);
      }
      AddValues<kHeadDim>(result.out, weights, block, offsets);
    }
    step = next;
  }
  AsyncCopyWaitAll();
  constexpr float kLog2E = 1.4426950408889634f;
  AddGroups<kHeadDim>(group, p.soft_cap > 0.0f ? kLog2E : p.scale * kLog2E,
                      reinterpret_cast<float*>(shared), result);
  if (group == 0) Store<kHeadDim>(p, work, first_index, result);
}

template <int kHeadDim, CacheFormat kFormat>
void LaunchTiles(const PrefillAttentionParams& p, cudaStream_t stream) {
  constexpr int kShared = portable_shape::PrefillSharedBytes(kHeadDim, kFormat);
  static_assert(kShared >= kQueryRows * kHeadDim * 2 + kGroups * HeadBytes(kHeadDim));
  (void)cudaFuncSetAttribute(PrefillAttentionKernel<kHeadDim, kFormat>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  Launch(PrefillAttentionKernel<kHeadDim, kFormat>, p.num_tiles * p.num_kv_heads, kThreads, kShared,
         stream, p);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::prefill_two_groups
