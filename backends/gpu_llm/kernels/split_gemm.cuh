// What the products of split_gemm.h share. A block has 256 outputs and kRows rows of the input:
// four groups of four warps with 64 outputs each, which are rows of wgmma's operand a, and a group
// more of which a thread has the input copied to shared memory, operand b. Of a tile's depth each
// block of a cluster takes a part; then each adds up the parts of some of the tile's rows, which
// the others have sent to its shared memory.
//
// Of an H200's memory bandwidth (4.65 TB/s), at 32 rows: gate and up of an 8B shape 80 % in fp8,
// 41 % in int4; of its tensor cores' rate (790 and 1,580 TFLOP/s), at 256 rows: 61 % in fp8, 73 %
// in int4; the narrow products about half of that. Some 7 us a launch do not depend on the size.
// Device code alone.
#pragma once

#include "gpu_llm/kernels/cluster.cuh"
#include "gpu_llm/kernels/device.cuh"
#include "gpu_llm/kernels/split_gemm_instance.h"
#include "gpu_llm/kernels/tensor_copy.cuh"
#include "gpu_llm/kernels/wgmma.cuh"
#include "gpu_llm/kernels/wgmma_fp8.cuh"

namespace nereid::gpu::split_gemm {

constexpr int kGroups = kOutputs / 64, kWarps = 4 * kGroups;
constexpr int kConsumers = 128 * kGroups, kThreads = kConsumers + 128;

// The part of the depth, in steps, that a block has.
struct Part {
  int rank, split, begin, end;
  __device__ Part(int num_steps, int split_)
      : rank(static_cast<int>(blockIdx.x) % split_),
        split(split_),
        begin(rank * num_steps / split_),
        end((rank + 1) * num_steps / split_) {}
  __device__ int length() const { return end - begin; }
};

// Where the ring of stages is.
template <int kStages>
struct StageRing {
  int stage = 0, parity = 0;
  __device__ __forceinline__ void Advance() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

// Where in `out` the sums of a j go, which are d[0 .. 3] of a thread: of outputs g and g + 8 of its
// warp's tile, tokens 8 j + 2 t and + 1. Of two neighbours, which hold outputs g and g + 1 of two
// tokens, each takes one token.
struct Place {
  int token;
  int64_t at;  // of the first of two outputs; the others lie 8 behind
};
__device__ __forceinline__ Place PlaceOf(const SplitGemmParams& p, int tile, int first_token) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int token = first_token + 2 * t + g % 2;
  const int64_t num_outputs = p.weights.num_outputs;
  const int64_t row = p.output == StreamOutput::kSiluGate
                          ? token * (num_outputs / 2) + tile * (kInt4TileRows / 2)
                          : token * num_outputs + tile * kInt4TileRows;
  return {token, row + g / 2 * 2};
}
// What is there before sums are added to it.
__device__ __forceinline__ void LoadBefore(const SplitGemmParams& p, const Place& place,
                                           uint32_t (&before)[2]) {
  before[0] = before[1] = 0;
  if (p.output != StreamOutput::kAdd || place.token >= p.num_rows) return;
  const auto* out = static_cast<const bf16*>(p.out) + place.at;
  before[0] = *reinterpret_cast<const uint32_t*>(out);
  before[1] = *reinterpret_cast<const uint32_t*>(out + 8);
}
__device__ __forceinline__ void Store(const SplitGemmParams& p, const Place& place, int first_token,
                                      const float (&factors)[2], const uint32_t (&before)[2],
                                      float (&d)[4]) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const bool gates = p.output == StreamOutput::kSiluGate;
  if (p.weights.format == WeightFormat::kFp8) {
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      const int token = first_token + 2 * t + b;
      const float factor = token < p.num_rows ? __ldcg(p.in_factors + token) : 0.0f;
      d[b] *= factor * factors[0], d[2 + b] *= factor * factors[1];
    }
  }
  if (gates) {
#pragma unroll
    for (int b = 0; b < 2; ++b) d[b] = d[b] / (1.0f + __expf(-d[b])) * d[2 + b];
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (half == 1 && gates) break;
    const float other = __shfl_xor_sync(0xffffffffu, g % 2 == 0 ? d[2 * half + 1] : d[2 * half], 4);
    const float low = g % 2 == 0 ? d[2 * half] : other, high = g % 2 == 0 ? other : d[2 * half + 1];
    if (place.token >= p.num_rows) continue;
    const int64_t at = place.at + 8 * half;
    if (p.output == StreamOutput::kFloat) {
      *reinterpret_cast<float2*>(static_cast<float*>(p.out) + at) = {low, high};
    } else {
      *reinterpret_cast<uint32_t*>(static_cast<bf16*>(p.out) + at) =
          PackBf16(low + LowBf16(before[half]), high + HighBf16(before[half]));
    }
  }
}

// In shared memory, what the blocks of a cluster send to one of them.
template <int kRows>
constexpr int RoomBytes(int split) {
  return split == 1 ? 0 : split * ((kRows / 8 + split - 1) / split) * kConsumers * 16;
}
template <int kRows>
constexpr int MostRoomBytes() {
  int most = 0;
  for (int split = 1; split <= kMaxSplit; ++split) {
    if (RoomBytes<kRows>(split) > most) most = RoomBytes<kRows>(split);
  }
  return most;
}

// The sums of a tile whose depth is not split go to `out`.
template <int kRows>
__device__ __forceinline__ void FinishAlone(const SplitGemmParams& p, int tile, int first_row,
                                            const float (&factors)[2], float (&sums)[kRows / 2]) {
#pragma unroll
  for (int j = 0; j < kRows / 8; ++j) {
    const int first_token = first_row + 8 * j;
    if (first_token >= p.num_rows) break;
    const Place place = PlaceOf(p, tile, first_token);
    uint32_t before[2];
    LoadBefore(p, place, before);
    float d[4] = {sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]};
    Store(p, place, first_token, factors, before, d);
  }
}

// Each block of a cluster gets the parts of some of the rows of the input from the others, in its
// `room`, and adds them up in the order of the depth.
template <int kRows>
__device__ __forceinline__ void FinishShared(const SplitGemmParams& p, const Part& part,
                                             uint32_t room, int tile, int first_row, bool has_tile,
                                             const float (&factors)[2], float (&sums)[kRows / 2]) {
  constexpr int kColumns = kRows / 8;  // of the sums, of 8 rows of the input each
  constexpr int kAtOnce = kColumns < 4 ? kColumns : 4;
  const int per_block = (kColumns + part.split - 1) / part.split;
  ClusterArrive();
  ClusterWait();  // all are through with their rooms
  const uint32_t mine = room + threadIdx.x * 16;
  int owner = 0, in_owner = 0;
  uint32_t there = AddressInBlock(mine + part.rank * per_block * (kConsumers * 16), 0);
#pragma unroll
  for (int j = 0; j < kColumns; ++j) {
    StoreInCluster(there, {sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]});
    there += kConsumers * 16;
    if (++in_owner == per_block && j + 1 < kColumns) {
      in_owner = 0;
      there = AddressInBlock(mine + part.rank * per_block * (kConsumers * 16), ++owner);
    }
  }
  ClusterArrive();
  const int first_column = part.rank * per_block,
            last_column = min(kColumns, first_column + per_block);
  ClusterWait();
  if (!has_tile) return;
#pragma unroll 1
  for (int first = first_column; first < last_column; first += kAtOnce) {
    uint32_t before[kAtOnce][2];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i < last_column)
        LoadBefore(p, PlaceOf(p, tile, first_row + 8 * (first + i)), before[i]);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int first_token = first_row + 8 * (first + i);
      if (first + i >= last_column || first_token >= p.num_rows) break;
      float d[4] = {};
      for (int from = 0; from < part.split; ++from) {
        const int slot = from * per_block + first + i - first_column;
        float4 value;
        asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
                     : "r"(mine + slot * (kConsumers * 16))
                     : "memory");
        d[0] += value.x, d[1] += value.y, d[2] += value.z, d[3] += value.w;
      }
      Store(p, PlaceOf(p, tile, first_token), first_token, factors, before[i], d);
    }
  }
}

// Operand: how the weights come to the tensor cores (split_gemm_int4.cu, shared_operand.cuh):
//   kUnpacks, kBarriers, kStepColumns, kSharedBytes
//   Operand(p, shared, barriers)
//   Init(): of the barriers, by all threads
//   Prefetch(maps, part, first_output): what does not depend on the kernel ahead, by all threads
//   Produce(maps, part, first_output, first_row): by the first thread of the last group
//   Consume(part, sums): by the groups
template <typename Operand, int kRows>
__global__ void __launch_bounds__(kThreads, 1)
    SplitGemmKernel(const __grid_constant__ TensorMaps maps, SplitGemmParams p) {
  extern __shared__ char unaligned[];
  __shared__ uint64_t barriers[Operand::kBarriers];
  const uint32_t shared = (SharedAddress(unaligned) + 1023) & ~1023u;
  LaunchNext();
  if (threadIdx.x == kConsumers) {
    PrefetchMap(&maps.in);
    if (p.weights.format != WeightFormat::kInt4) PrefetchMap(&maps.weights);
  }
  Operand operand(p, shared, barriers);
  operand.Init();
  BarrierInitFence();
  __syncthreads();
  const int num_row_tiles = (p.num_rows + kRows - 1) / kRows;
  const Part part((p.weights.depth + Operand::kStepColumns - 1) / Operand::kStepColumns, p.split);
  const int tile = static_cast<int>(blockIdx.x) / p.split;
  const int first_output = tile / num_row_tiles * kOutputs,
            first_row = tile % num_row_tiles * kRows;
  operand.Prefetch(maps, part, first_output);
  WaitForPrevious();
  if (threadIdx.x >= kConsumers) {
    if constexpr (Operand::kUnpacks) GiveRegisters<24>();
    if (threadIdx.x == kConsumers) operand.Produce(maps, part, first_output, first_row);
    __syncwarp();
    if (p.split > 1) {
      ClusterArrive();
      ClusterWait();
      ClusterArrive();
      ClusterWait();
    }
  } else {
    if constexpr (Operand::kUnpacks) TakeRegisters<112>();  // of the 96 that all start with
    float sums[kRows / 2] = {};
    Pin(sums);
    operand.Consume(part, sums);
    WgmmaWait<0>();
    Pin(sums);
    const int row_tile = first_output / kInt4TileRows + threadIdx.x / 32;
    const bool has_tile = row_tile * kInt4TileRows < p.weights.num_outputs;
    float factors[2] = {1.0f, 1.0f};
    if (p.weights.format == WeightFormat::kFp8 && has_tile) {
      const int output = row_tile * kInt4TileRows + threadIdx.x % 32 / 4;
      factors[0] = __ldg(p.weights.row_scales + output);
      factors[1] = __ldg(p.weights.row_scales + output + 8);
    }
    if (p.split > 1) {
      FinishShared<kRows>(p, part, shared, row_tile, first_row, has_tile, factors, sums);
    } else if (has_tile) {
      FinishAlone<kRows>(p, row_tile, first_row, factors, sums);
    }
  }
}

template <typename Operand, int kRows>
Instance MakeInstance(int step_cycles) {
  static_assert(MostRoomBytes<kRows>() <= Operand::kSharedBytes);
  return {SplitGemmKernel<Operand, kRows>, kRows,      kThreads, Operand::kStepColumns,
          Operand::kSharedBytes + 1024,    step_cycles};
}

}  // namespace nereid::gpu::split_gemm
