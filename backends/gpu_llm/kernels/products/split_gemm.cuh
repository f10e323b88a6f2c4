// What the products of split_gemm.h share. A block has 256 outputs and kRows rows of the input:
// four groups of four warps with 64 outputs each, which are rows of wgmma's operand a, and a group
// more of which a thread has the input copied to shared memory, operand b. Of a tile's depth each
// block of a cluster takes a part; then each adds up the parts of some of the tile's rows, which
// the others have sent to its shared memory.
//
// Of an H200's memory bandwidth (4.65 TB/s), at 32 rows: gate and up of an 8B shape 83 % in bf16,
// 82 % in fp8, 41 % in int4; of its tensor cores' rate (790 and 1,580 TFLOP/s), at 256 rows: 71 %
// in fp8, 79 % in int4; the narrow products 60 to 80 % of that. Some 5 us a launch do not depend
// on the size.
// Device code alone.
#pragma once

#include "backends/gpu_llm/kernels/device/cluster.cuh"
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/tensor_copy.cuh"
#include "backends/gpu_llm/kernels/device/wgmma.cuh"
#include "backends/gpu_llm/kernels/device/wgmma_fp8.cuh"
#include "backends/gpu_llm/kernels/products/split_gemm_instance.h"

namespace nereid::gpu::split_gemm {

constexpr int kGroups = kOutputs / 64, kWarps = 4 * kGroups;
constexpr int kConsumers = 128 * kGroups, kThreads = kConsumers + 128;

__device__ __forceinline__ void ConsumersSync() {
  asm volatile("bar.sync 1, %0;" ::"n"(kConsumers) : "memory");
}

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

// Where the sums of a thread go: of each column of 8 tokens it has d[0 .. 3], of outputs g and g +
// 8 of its warp's tile and tokens 2 t and 2 t + 1. Of two neighbours, which hold outputs g and g +
// 1 of two tokens, each takes one token.
class Destination {
 public:
  // `in_factors`: of the rows from first_row on, in shared memory, with fp8 weights.
  __device__ __forceinline__ Destination(const SplitGemmParams& p, int tile, int first_row,
                                         const float* in_factors)
      : out_(p.out),
        output_(p.output),
        is_fp8_(p.weights.format == WeightFormat::kFp8),
        is_even_(threadIdx.x / 4 % 2 == 0) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int token = first_row + 2 * t + g % 2;
    const bool gates = output_ == StreamOutput::kSiluGate;
    const int row_size = gates ? p.weights.num_outputs / 2 : p.weights.num_outputs;
    rows_left_ = p.num_rows - token;
    at_ =
        int64_t{token} * row_size + tile * (gates ? kInt4TileRows / 2 : kInt4TileRows) + g / 2 * 2;
    column_size_ = 8 * row_size;
    if (!is_fp8_) return;
    in_factors_ = in_factors + 2 * t;
    const int row = tile * kInt4TileRows + g;
    factors_[0] = __ldg(p.weights.row_scales + row);
    factors_[1] = __ldg(p.weights.row_scales + row + 8);
  }

  // What is there before sums are added to it: of two outputs each, the second ones 8 behind.
  __device__ __forceinline__ void LoadBefore(int column, uint32_t (&before)[2]) const {
    before[0] = before[1] = 0;
    if (output_ != StreamOutput::kAdd || 8 * column >= rows_left_) return;
    const auto* out = static_cast<const bf16*>(out_) + At(column);
    before[0] = *reinterpret_cast<const uint32_t*>(out);
    before[1] = *reinterpret_cast<const uint32_t*>(out + 8);
  }

  __device__ __forceinline__ void Store(int column, const uint32_t (&before)[2],
                                        float (&d)[4]) const {
    if (is_fp8_) {
      const float2 in = *reinterpret_cast<const float2*>(in_factors_ + 8 * column);
      d[0] *= in.x * factors_[0], d[1] *= in.y * factors_[0];
      d[2] *= in.x * factors_[1], d[3] *= in.y * factors_[1];
    }
    const bool is_there = 8 * column < rows_left_;
    if (output_ == StreamOutput::kSiluGate) {
#pragma unroll
      for (int b = 0; b < 2; ++b) d[b] = __fdividef(d[b], 1.0f + __expf(-d[b])) * d[2 + b];
      const float2 pair = Swap(d[0], d[1]);
      if (is_there) Write(static_cast<bf16*>(out_) + At(column), pair, 0);
      return;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float2 pair = Swap(d[2 * half], d[2 * half + 1]);
      if (!is_there) continue;
      const int64_t at = At(column) + 8 * half;
      if (output_ == StreamOutput::kFloat) {
        *reinterpret_cast<float2*>(static_cast<float*>(out_) + at) = pair;
      } else {
        Write(static_cast<bf16*>(out_) + at, pair, before[half]);
      }
    }
  }

 private:
  __device__ __forceinline__ int64_t At(int column) const {
    return at_ + int64_t{column} * column_size_;
  }
  // Of this thread's token, the outputs of both neighbours.
  __device__ __forceinline__ float2 Swap(float first, float second) const {
    const float other = __shfl_xor_sync(0xffffffffu, is_even_ ? second : first, 4);
    return is_even_ ? float2{first, other} : float2{other, second};
  }
  static __device__ __forceinline__ void Write(bf16* to, float2 pair, uint32_t before) {
    *reinterpret_cast<uint32_t*>(to) =
        PackBf16(pair.x + LowBf16(before), pair.y + HighBf16(before));
  }

  void* out_;
  StreamOutput output_;
  bool is_fp8_, is_even_;
  int rows_left_;  // from the token of column 0 on
  int column_size_;
  int64_t at_;
  const float* in_factors_ = nullptr;
  float factors_[2] = {1.0f, 1.0f};
};

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
__device__ __forceinline__ void FinishAlone(const Destination& to, int num_columns,
                                            float (&sums)[kRows / 2]) {
  constexpr int kAtOnce = 4;
#pragma unroll
  for (int first = 0; first < kRows / 8; first += kAtOnce) {
    if (first >= num_columns) break;
    uint32_t before[kAtOnce][2];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) to.LoadBefore(first + i, before[i]);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      float* sum = sums + 4 * (first + i);
      float d[4] = {sum[0], sum[1], sum[2], sum[3]};
      to.Store(first + i, before[i], d);
    }
  }
}

// Each block of a cluster gets the parts of some of the rows of the input from the others, in its
// `room`, and adds them up in the order of the depth.
template <int kRows>
__device__ __forceinline__ void FinishShared(const Destination& to, const Part& part, uint32_t room,
                                             int num_columns, bool has_tile,
                                             float (&sums)[kRows / 2]) {
  constexpr int kColumns = kRows / 8;  // of the sums, of 8 rows of the input each
  constexpr int kAtOnce = kColumns < 4 ? kColumns : 4;
  const int per_block = (num_columns + part.split - 1) / part.split;
  ClusterArrive();
  ClusterWait();  // all are through with their rooms
  const uint32_t mine = room + threadIdx.x * 16;
  int owner = 0, in_owner = 0;
  uint32_t there = AddressInBlock(mine + part.rank * per_block * (kConsumers * 16), 0);
#pragma unroll
  for (int j = 0; j < kColumns; ++j) {
    if (j == num_columns) break;
    StoreInCluster(there, {sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]});
    there += kConsumers * 16;
    if (++in_owner == per_block && j + 1 < num_columns) {
      in_owner = 0;
      there = AddressInBlock(mine + part.rank * per_block * (kConsumers * 16), ++owner);
    }
  }
  ClusterArrive();
  const int first_column = part.rank * per_block,
            last_column = min(num_columns, first_column + per_block);
  ClusterWait();
  if (!has_tile) return;
#pragma unroll 1
  for (int first = first_column; first < last_column; first += kAtOnce) {
    uint32_t before[kAtOnce][2];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i < last_column) to.LoadBefore(first + i, before[i]);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i >= last_column) break;
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
      to.Store(first + i, before[i], d);
    }
  }
}

// Threads that registers are shared out for. With more than there are, a block leaves registers to
// a norm's, beside which its weights flow.
template <typename Operand, int kRows>
constexpr int kBound = Operand::kUnpacks || kRows > 64 ? kThreads : kThreads + 128;

// Operand: how the weights come to the tensor cores (split_gemm_int4.cu, shared_operand.cuh):
//   kUnpacks, kBarriers, kStepColumns, kSharedBytes
//   Operand(p, shared, barriers)
//   Init(): of the barriers, by all threads
//   Prefetch(maps, part, first_output): what does not depend on the kernel ahead, by all threads
//   Produce(maps, part, first_output, first_row): by the first thread of the last group
//   Consume(part, sums): by the groups
template <typename Operand, int kRows>
__global__ void __launch_bounds__(kBound<Operand, kRows>, 1)
    SplitGemmKernel(const __grid_constant__ TensorMaps maps, SplitGemmParams p) {
  extern __shared__ char unaligned[];
  __shared__ uint64_t barriers[Operand::kBarriers];
  __shared__ __align__(8) float in_factors[kRows];  // read in pairs
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
    const bool is_fp8 = p.weights.format == WeightFormat::kFp8;
    if (is_fp8 && threadIdx.x < kRows && first_row + threadIdx.x < p.num_rows)
      in_factors[threadIdx.x] = __ldcg(p.in_factors + first_row + threadIdx.x);
    float sums[kRows / 2] = {};
    Pin(sums);
    operand.Consume(part, sums);
    WgmmaWait<0>();
    Pin(sums);
    const int row_tile = first_output / kInt4TileRows + threadIdx.x / 32;
    const bool has_tile = row_tile * kInt4TileRows < p.weights.num_outputs;
    if (is_fp8) ConsumersSync();  // all factors are there
    const Destination to(p, has_tile ? row_tile : 0, first_row, in_factors);
    const int num_columns = min(kRows, p.num_rows - first_row + 7) / 8;
    if (p.split > 1) {
      FinishShared<kRows>(to, part, shared, num_columns, has_tile, sums);
    } else if (has_tile) {
      FinishAlone<kRows>(to, num_columns, sums);
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
