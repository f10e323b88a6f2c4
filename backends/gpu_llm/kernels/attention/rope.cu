// Rotary embedding and cache writes. Each warp handles query and key heads of a row
// (rope_heads.cuh) or values (rope_values.cuh). Bound by the memory sectors that a single token's
// values touch (bench/results/gpu_llm.csv). 8,192 rows of one prompt: 80 % of an H200's 4.65 TB/s;
// 512 rows of 512 sequences: 9 %.
#include <algorithm>

#include "backends/gpu_llm/kernels/attention/head_dims.h"
#include "backends/gpu_llm/kernels/attention/rope.h"
#include "backends/gpu_llm/kernels/attention/rope_heads.cuh"
#include "backends/gpu_llm/kernels/attention/rope_values.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

using namespace rope;

constexpr int kWarps = 8;
constexpr int kLongPasses = 5;  // of a warp in long steps, maximum
constexpr int kLongStep = 512;  // rows; in shorter steps a warp has one pass or one value

// How warps share the work: first the warps of queries and keys, then those of values.
struct RopeWork {
  int passes_a_warp, warps_a_row;  // for queries and keys
  int rotating_blocks;
  bool has_windows;  // of values; otherwise a warp handles one value
};

template <int kHeadDim, bool kIsQuantized, bool kIsLong>
__global__ void __launch_bounds__(32 * kWarps) RopeWriteKernel(RopeWriteParams p, RopeWork work) {
  LaunchNext();
  const int block = static_cast<int>(blockIdx.x) - work.rotating_blocks;
  if (block < 0) {
    const int warp = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
    const int row = warp / work.warps_a_row;
    const int first_pass = warp % work.warps_a_row * work.passes_a_warp;
    if (row < p.num_rows) {
      RotateHeads<kHeadDim, kIsQuantized, kIsLong ? kLongPasses : 1>(p, row, first_pass,
                                                                     work.passes_a_warp);
    }
    return;
  }
  const int warp = block * kWarps + static_cast<int>(threadIdx.x) / 32;
  const int unit = warp / p.num_kv_heads, kv_head = warp % p.num_kv_heads;
  if constexpr (kIsLong && !kIsQuantized) {
    if (work.has_windows) {
      if (unit * kWindow < p.num_rows) WriteWindow<kHeadDim>(p, unit * kWindow, kv_head);
      return;
    }
  }
  if (unit >= p.num_rows) return;
  const int slot = p.cache_slots[unit];
  WaitForPrevious();
  if (slot >= 0) WriteValue<kHeadDim, kIsQuantized>(p, unit, slot, kv_head);
}

template <int kHeadDim>
void LaunchFor(const RopeWriteParams& p, cudaStream_t stream) {
  const auto parts = [](int whole, int part) { return (whole + part - 1) / part; };
  const bool is_quantized = p.format != CacheFormat::kBf16;
  const bool uses_long_rope = p.num_rows >= kLongStep && p.rope_dim / 2 % kChunkColumns == 0;
  const int passes = parts(p.num_heads + p.num_kv_heads, HeadLanes<kHeadDim>::kHeads);
  RopeWork work = {};
  work.warps_a_row = uses_long_rope ? parts(passes, kLongPasses) : passes;
  work.passes_a_warp = parts(passes, work.warps_a_row);
  work.rotating_blocks = parts(p.num_rows * work.warps_a_row, kWarps);
  work.has_windows = uses_long_rope && !is_quantized && !p.rows_are_independent;
  const int units = work.has_windows ? parts(p.num_rows, kWindow) : p.num_rows;
  const int blocks = work.rotating_blocks + parts(units * p.num_kv_heads, kWarps);
  const auto launch = [&](auto kernel) { Launch(kernel, blocks, 32 * kWarps, 0, stream, p, work); };
  if (uses_long_rope) {
    launch(is_quantized ? RopeWriteKernel<kHeadDim, true, true>
                        : RopeWriteKernel<kHeadDim, false, true>);
  } else {
    launch(is_quantized ? RopeWriteKernel<kHeadDim, true, false>
                        : RopeWriteKernel<kHeadDim, false, false>);
  }
}

__global__ void RopeTableKernel(const float* inv_freq, int half_dim, int64_t count, float magnitude,
                                float2* cos_sin) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float angle = static_cast<float>(i / half_dim) * inv_freq[i % half_dim];
  cos_sin[i] = {cosf(angle) * magnitude, sinf(angle) * magnitude};
}

}  // namespace

void RopeWrite(const RopeWriteParams& params, cudaStream_t stream) {
  ForHeadDim(params.head_dim, [&](auto head_dim) { LaunchFor<head_dim.value>(params, stream); });
}

void FillRopeTable(const float* inv_freq, int half_dim, int max_positions, float magnitude,
                   float2* cos_sin, cudaStream_t stream) {
  const int64_t count = int64_t{half_dim} * max_positions;
  RopeTableKernel<<<static_cast<unsigned>((count + 255) / 256), 256, 0, stream>>>(
      inv_freq, half_dim, count, magnitude, cos_sin);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
