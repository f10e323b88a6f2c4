// The split-K GEMM kernel. A block of threads multiplies kRows rows of the input by the weights of
// 64 to 256 outputs. One to four of its warp groups have 64 outputs each, whose weights are the
// rows of wgmma's operand a. The fifth group copies the input to shared memory as operand b. Each
// block of a cluster handles a slice of the depth (split-K). At the end each block adds the partial
// sums of some of the tile's rows, which the other blocks send to its shared memory.
//
// Share of an H200's memory bandwidth (4.65 TB/s) with 32 rows: gate and up of an 8B model 82 % in
// bf16, 80 % in fp8, 45 % in int4. Share of the tensor cores' rate (790 and 1,580 TFLOP/s) with 256
// rows: 65 % in fp8, 77 % in int4. The other matrices of its layers reach 48 to 99 % of these
// values. Device code only.
#pragma once

#include <cuda.h>

#include "backends/gpu_llm/kernels/device/async_copy.cuh"
#include "backends/gpu_llm/kernels/device/cluster.cuh"
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/wgmma.cuh"
#include "backends/gpu_llm/kernels/device/wgmma_fp8.cuh"
#include "backends/gpu_llm/kernels/gemm/gemm.h"
#include "backends/gpu_llm/kernels/rows/activate.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::split_gemm {

constexpr int kOutputs = 256;        // of a block
constexpr int kStageRowBytes = 128;  // of a row of a stage: the widest swizzle of wgmma
// Of the steps of a product with equal shares times its blocks, which are divided in 32 bits.
constexpr int64_t kMaxShareProduct = int64_t{1} << 31;

// Boxes have the rows of a block and kStageRowBytes columns. `weights` is unused for int4. Of the
// slices of the depth, the first have one step more than the others: divisions are the host's.
struct TensorMaps {
  CUtensorMap in, weights;
  int slice_steps = 0, num_longer_slices = 0;
  int groups = 0;  // of kGroupOutputs outputs each, which a block computes; at most kGroups
};

// Estimated nanoseconds that a block of threads takes on an H200. A step of the depth takes `step`,
// and `group_step` more for each group of outputs. What comes before the first step and after the
// last one takes `ends`, and `group_ends` more for each group.
struct BlockTimes {
  int step, group_step, ends, group_ends;
};

// A compiled kernel, for one weight format and number of rows of a block.
struct KernelVariant {
  void (*kernel)(TensorMaps, SplitGemmParams);
  int rows, threads;
  int step_columns;  // of the depth; slices are multiples of it
  int shared_bytes;
  BlockTimes times;
};

// The variant of a tile's rows. `finishes`: with biases and activations.
KernelVariant Int4Variant(int tile_rows, bool finishes);
KernelVariant Fp8Variant(int tile_rows, bool finishes);
// With block scales, for up to kMaxBlocksRows rows.
KernelVariant Fp8BlocksVariant(int tile_rows, bool finishes);
constexpr int kMaxBlocksRows = 64;
KernelVariant Bf16Variant(int tile_rows, bool finishes);
// With equal shares, for up to kShareRows rows: one block for each multiprocessor, without
// clusters.
KernelVariant Bf16SharesVariant();

constexpr int kGroupOutputs = 64;
constexpr int kGroups = kOutputs / kGroupOutputs, kWarps = 4 * kGroups;
constexpr int kConsumers = 128 * kGroups, kThreads = kConsumers + 128;

__device__ __forceinline__ void StoreShared(uint32_t to, float4 value) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(value.x), "f"(value.y),
               "f"(value.z), "f"(value.w)
               : "memory");
}
__device__ __forceinline__ float4 LoadShared(uint32_t from) {
  float4 value;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "r"(from)
               : "memory");
  return value;
}

__device__ __forceinline__ void ConsumersSync(int num_consumers) {
  asm volatile("bar.sync 1, %0;" ::"r"(num_consumers) : "memory");
}

// A block's slice of the depth, in steps.
struct DepthSlice {
  int rank, split, begin, end;
  __device__ explicit DepthSlice(const TensorMaps& maps)
      : rank(static_cast<int>(blockIdx.x)),
        split(static_cast<int>(gridDim.x)),
        begin(rank * maps.slice_steps + min(rank, maps.num_longer_slices)),
        end(begin + maps.slice_steps + (rank < maps.num_longer_slices ? 1 : 0)) {}
  __device__ int length() const { return end - begin; }
};

// Position in the ring of stages.
template <int kStages>
struct StageRing {
  int stage = 0, parity = 0;
  __device__ __forceinline__ void Advance() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

// The 16 outputs that a warp multiplies. `exists`: the matrix has them; a warp beyond the last
// output reads tile 0 in their place.
struct WarpTile {
  int tile;
  bool exists;
  __device__ __forceinline__ WarpTile(const SplitGemmParams& p, int first_output)
      : tile(first_output / kInt4TileRows + static_cast<int>(threadIdx.x) / 32),
        exists(tile * kInt4TileRows < p.weights.num_outputs) {
    if (!exists) tile = 0;
  }
};

// What a kernel does with its sums before it stores them is a class. This one is for products
// without bias and activation, except SiLU's gate. It is short, because a launch runs these
// instructions once, and loading them takes time as well.
class PlainEnd {
 public:
  __device__ __forceinline__ PlainEnd(const SplitGemmParams&, int) {}
  __device__ __forceinline__ bool Gates(GemmEpilogue output) const {
    return output == GemmEpilogue::kSiluGate;
  }
  // Of outputs g (twice) and g + 8 (twice). With a gate, d[0] x d[2] and d[1] x d[3] are its
  // results.
  __device__ __forceinline__ void Apply(GemmEpilogue output, float (&d)[4]) const {
    if (output != GemmEpilogue::kSiluGate) return;
#pragma unroll
    for (int b = 0; b < 2; ++b) d[b] = __fdividef(d[b], 1.0f + __expf(-d[b]));
  }
};

// Any end. The biases of outputs g and g + 8 of a warp's tile are loaded while the weights arrive.
class FullEnd {
 public:
  __device__ __forceinline__ FullEnd(const SplitGemmParams& p, int first_output)
      : activation_(p.output == GemmEpilogue::kSiluGate ? llm::Activation::kSilu : p.activation) {
    if (p.bias == nullptr) return;
    const int first = WarpTile(p, first_output).tile * kInt4TileRows;
    const bf16* bias = p.bias + first + threadIdx.x % 32 / 4;
    biases_ = __halves2bfloat162(bias[0], bias[8]);
  }
  __device__ __forceinline__ bool Gates(GemmEpilogue output) const {
    return output == GemmEpilogue::kSiluGate || output == GemmEpilogue::kGate;
  }
  __device__ __forceinline__ void Apply(GemmEpilogue output, float (&d)[4]) const {
    const float low = __low2float(biases_), high = __high2float(biases_);
    d[0] += low, d[1] += low, d[2] += high, d[3] += high;
    const int times = Gates(output) ? 1 : output == GemmEpilogue::kActivate ? 2 : 0;
#pragma unroll 1
    for (int i = 0; i < times; ++i) {
      const float first = activation_(d[0]), second = activation_(d[1]);
      d[0] = d[2], d[1] = d[3], d[2] = first, d[3] = second;
    }
  }

 private:
  RuntimeActivation activation_;
  __nv_bfloat162 biases_ = __floats2bfloat162_rn(0.0f, 0.0f);
};

// Stores a thread's sums. For each column of 8 tokens the thread has d[0 .. 3]: outputs g and g + 8
// of its warp's tile for tokens 2 t and 2 t + 1. Lane pairs with outputs g and g + 1 exchange
// values, so that each lane stores two adjacent outputs of one token.
template <typename End>
class Epilogue {
 public:
  // `in_scales`: scales of the input rows from first_row on, in shared memory; with fp8 weights.
  __device__ __forceinline__ Epilogue(const SplitGemmParams& p, int tile, int first_row,
                                      const float* in_scales, const End& end)
      : out_(p.out),
        output_(p.output),
        end_(end),
        is_fp8_(p.weights.format == WeightFormat::kFp8),
        is_even_(threadIdx.x / 4 % 2 == 0) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int token = first_row + 2 * t + g % 2;
    const bool gates = end_.Gates(output_);
    const int row_size = gates ? p.weights.num_outputs / 2 : p.weights.num_outputs;
    rows_left_ = p.num_rows - token;
    at_ =
        int64_t{token} * row_size + tile * (gates ? kInt4TileRows / 2 : kInt4TileRows) + g / 2 * 2;
    column_size_ = 8 * row_size;
    if (!is_fp8_) return;
    in_scales_ = in_scales + 2 * t;
    const int row = tile * kInt4TileRows + g;
    weight_scales_[0] = __ldg(p.weights.row_scales + row);
    weight_scales_[1] = __ldg(p.weights.row_scales + row + 8);
  }

  // Loads the old values for kAdd: two adjacent outputs, and the two outputs 8 further on.
  __device__ __forceinline__ void LoadBefore(int column, uint32_t (&before)[2]) const {
    before[0] = before[1] = 0;
    if (output_ != GemmEpilogue::kAdd || 8 * column >= rows_left_) return;
    const auto* out = static_cast<const bf16*>(out_) + At(column);
    before[0] = *reinterpret_cast<const uint32_t*>(out);
    before[1] = *reinterpret_cast<const uint32_t*>(out + 8);
  }

  __device__ __forceinline__ void Store(int column, const uint32_t (&before)[2],
                                        float (&d)[4]) const {
    if (is_fp8_) {
      const float2 in = *reinterpret_cast<const float2*>(in_scales_ + 8 * column);
      d[0] *= in.x * weight_scales_[0], d[1] *= in.y * weight_scales_[0];
      d[2] *= in.x * weight_scales_[1], d[3] *= in.y * weight_scales_[1];
    }
    const bool is_valid = 8 * column < rows_left_;
    end_.Apply(output_, d);
    if (end_.Gates(output_)) {
      const float2 pair = Swap(d[0] * d[2], d[1] * d[3]);
      if (is_valid) Write(static_cast<bf16*>(out_) + At(column), pair, 0);
      return;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float2 pair = Swap(d[2 * half], d[2 * half + 1]);
      if (!is_valid) continue;
      const int64_t at = At(column) + 8 * half;
      if (output_ == GemmEpilogue::kFloat) {
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
  // Returns two adjacent outputs of this thread's token.
  __device__ __forceinline__ float2 Swap(float first, float second) const {
    const float other = __shfl_xor_sync(0xffffffffu, is_even_ ? second : first, 4);
    return is_even_ ? float2{first, other} : float2{other, second};
  }
  static __device__ __forceinline__ void Write(bf16* to, float2 pair, uint32_t before) {
    *reinterpret_cast<uint32_t*>(to) =
        PackBf16(pair.x + LowBf16(before), pair.y + HighBf16(before));
  }

  void* out_;
  GemmEpilogue output_;
  End end_;
  bool is_fp8_, is_even_;
  int rows_left_;  // from the token of column 0 on
  int column_size_;
  int64_t at_;
  const float* in_scales_ = nullptr;
  float weight_scales_[2] = {1.0f, 1.0f};
};

// Bytes of shared memory that receive the partial sums of the cluster's blocks.
template <int kRows>
constexpr int ExchangeBytes(int split) {
  return split * ((kRows / 8 + split - 1) / split) * kConsumers * 16;
}
template <int kRows>
constexpr int MaxExchangeBytes() {
  int max_bytes = 0;
  for (int split = 1; split <= kMaxSplit; ++split) {
    if (ExchangeBytes<kRows>(split) > max_bytes) max_bytes = ExchangeBytes<kRows>(split);
  }
  return max_bytes;
}

// Each block of a cluster receives the partial sums of some input rows in its `exchange` memory,
// adds them in the order of the depth, and stores them. A block whose depth is not split does the
// same with its own sums: a loop over shared memory is much shorter than one that is unrolled for
// registers, and instructions that run once must first be loaded. `received`: a barrier that is
// initialized with one arrival. Called by the block's `num_consumers` consumers.
template <int kRows, typename End>
__device__ __forceinline__ void StoreTile(const Epilogue<End>& to, const DepthSlice& slice,
                                          uint32_t exchange, uint64_t* received, int num_columns,
                                          int num_consumers, bool has_tile,
                                          float (&sums)[kRows / 2]) {
  constexpr int kColumns = kRows / 8;  // of the sums, each for 8 input rows
  constexpr int kColumnBytes = kConsumers * 16;
  constexpr int kAhead = kColumns < 4 ? kColumns : 4;  // columns whose old values are loaded early
  const bool is_split = slice.split > 1;
  const int per_block = (num_columns + slice.split - 1) / slice.split;
  const int first_column = slice.rank * per_block,
            last_column = min(num_columns, first_column + per_block);
  const uint32_t mine = exchange + threadIdx.x * 16;
  // All blocks have finished with the stages that the exchange memory reuses.
  if (is_split) {
    if (threadIdx.x == 0)
      BarrierExpect(received,
                    max(0, last_column - first_column) * slice.split * num_consumers * 16);
    ClusterArriveRelaxed();
    ClusterWait();
  } else {
    ConsumersSync(num_consumers);
  }
  int owner = 0, in_owner = 0;
  uint32_t at = mine + first_column * kColumnBytes;
  const uint32_t slots = at, barrier = SharedAddress(received);
  uint32_t there = 0, signal = 0;
#pragma unroll
  for (int j = 0; j < kColumns; ++j) {
    if (j == num_columns) break;
    const float4 four = {sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]};
    if (is_split) {
      if (in_owner == 0)
        there = MapToClusterBlock(slots, owner), signal = MapToClusterBlock(barrier, owner);
      StoreInCluster(there, four, signal);
      there += kColumnBytes;
      if (++in_owner == per_block) in_owner = 0, ++owner;
    } else {
      StoreShared(at, four);
      at += kColumnBytes;
    }
  }
  if (!has_tile) return;
  uint32_t before[kAhead][2];  // of the columns from the current one on
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    if (first_column + i < last_column) to.LoadBefore(first_column + i, before[i]);
  }
  if (is_split) BarrierWaitForCluster(received, 0);
#pragma unroll 1
  for (int column = first_column; column < last_column; ++column) {
    float d[4] = {};
#pragma unroll 1
    for (int from = 0; from < slice.split; ++from) {
      const int slot = from * per_block + column - first_column;
      const float4 part = LoadShared(mine + slot * kColumnBytes);
      d[0] += part.x, d[1] += part.y, d[2] += part.z, d[3] += part.w;
    }
    to.Store(column, before[0], d);
#pragma unroll
    for (int i = 1; i < kAhead; ++i)
      before[i - 1][0] = before[i][0], before[i - 1][1] = before[i][1];
    if (column + kAhead < last_column) to.LoadBefore(column + kAhead, before[kAhead - 1]);
  }
}

// Number of threads that registers are allocated for. A larger number leaves registers for a block
// of the preceding norm kernel, so that this kernel's weight copies overlap with it.
template <typename Operand, int kRows>
constexpr int kBound = Operand::kMovesRegisters || kRows > 64 ? kThreads : kThreads + 128;

// Operand: how the weights reach the tensor cores (split_gemm_int4.cu, split_gemm_shared.cu):
//   kBarriers, kStepColumns, kSharedBytes
//   kMovesRegisters: the consumers take registers from the last group
//   Operand(p, shared, barriers)
//   Init(maps): initializes the barriers; called by all threads
//   Prefetch(maps, slice, first_output): what does not depend on the previous kernel; all threads
//   Produce(maps, slice, first_output, first_row): called by the threads of the last group
//   Consume(slice, sums): called by the consumer groups that have outputs
// End: PlainEnd or FullEnd.
template <typename Operand, int kRows, typename End>
__global__ void __launch_bounds__(kBound<Operand, kRows>, 1)
    SplitGemmKernel(const __grid_constant__ TensorMaps maps, SplitGemmParams p) {
  extern __shared__ char unaligned[];
  __shared__ uint64_t barriers[Operand::kBarriers], received;
  __shared__ __align__(8) float in_scales[kRows];  // read in pairs
  const uint32_t shared = (SharedAddress(unaligned) + 1023) & ~1023u;
  LaunchNext();
  if (threadIdx.x == kConsumers) {
    PrefetchMap(&maps.in);
    if (p.weights.format != WeightFormat::kInt4) PrefetchMap(&maps.weights);
  }
  Operand operand(p, shared, barriers);
  operand.Init(maps);
  if (threadIdx.x == kConsumers) BarrierInit(&received, 1);
  BarrierInitFence();
  __syncthreads();
  const DepthSlice slice(maps);
  const int first_output = static_cast<int>(blockIdx.z) * maps.groups * kGroupOutputs,
            first_row = static_cast<int>(blockIdx.y) * kRows;
  operand.Prefetch(maps, slice, first_output);
  WaitForPrevious();
  const int num_consumers = 128 * maps.groups;
  if (static_cast<int>(threadIdx.x) >= num_consumers) {
    if constexpr (Operand::kMovesRegisters) ReleaseRegisters<32>();
    operand.Produce(maps, slice, first_output, first_row);
    __syncwarp();
    if (slice.split > 1) {
      ClusterArriveRelaxed();
      ClusterWait();
    }
  } else {
    if constexpr (Operand::kMovesRegisters) AcquireRegisters<112>();  // each thread starts with 96
    const bool is_fp8 = p.weights.format == WeightFormat::kFp8;
    if (is_fp8 && threadIdx.x < kRows && first_row + threadIdx.x < p.num_rows)
      in_scales[threadIdx.x] = __ldcg(p.in_scales + first_row + threadIdx.x);
    const End end(p, first_output);
    float sums[kRows / 2] = {};
    FenceAccumulators(sums);
    operand.Consume(slice, sums);
    WgmmaWait<0>();
    FenceAccumulators(sums);
    if (is_fp8) ConsumersSync(num_consumers);  // all scales are loaded
    const WarpTile mine(p, first_output);
    const Epilogue<End> to(p, mine.tile, first_row, in_scales, end);
    const int num_columns = min(kRows, p.num_rows - first_row + 7) / 8;
    StoreTile<kRows>(to, slice, shared, &received, num_columns, num_consumers, mine.exists, sums);
  }
}

template <typename Operand, int kRows>
KernelVariant MakeVariant(bool finishes, const BlockTimes& times) {
  static_assert(MaxExchangeBytes<kRows>() <= Operand::kSharedBytes);
  return {finishes ? SplitGemmKernel<Operand, kRows, FullEnd>
                   : SplitGemmKernel<Operand, kRows, PlainEnd>,
          kRows,
          kThreads,
          Operand::kStepColumns,
          Operand::kSharedBytes + 1024,
          times};
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::split_gemm
