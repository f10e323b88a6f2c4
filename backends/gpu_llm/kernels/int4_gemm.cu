// Weights are operand a of wgmma, in registers: a warp unpacks a tile of 16 outputs
// (weight_format.h) from a ring of its own, which copies fill from before the kernel ahead has
// ended. The input is operand b, in shared memory. The order of the depth within 32 columns is the
// one in which lanes hold the weights; stmatrix brings the input into it on its way to shared
// memory.
//
// The work, tiles of outputs and rows times steps of the depth, is cut into as many equal ranges as
// there are processors. Where a range ends within a tile, sums go to memory, and the last block of
// a tile adds them up in the order of the depth.
//
// Of an H200's memory bandwidth (4.65 TB/s): gate and up of an 8B shape 37 % at 32 rows, 29 % at 64
// (328 TFLOP/s), 20 % at 128 (445 TFLOP/s), 486 TFLOP/s at 256; the narrow products 6 to 18 %. Some
// 9 us a launch are lost to its start and to sums of parts; within, instructions issue in 38 % of
// the cycles: warps wait for what they unpack.
#include "gpu_llm/kernels/async_copy.cuh"
#include "gpu_llm/kernels/device.cuh"
#include "gpu_llm/kernels/int4_gemm.h"
#include "gpu_llm/kernels/launch.h"
#include "gpu_llm/kernels/wgmma.cuh"

namespace nereid::gpu {
namespace {

constexpr int kUnitColumns = 2 * kInt4BlockColumns;  // of the depth: what a range is made of
constexpr int kStageColumns = 64;                    // of the input in shared memory
constexpr int kUnitStages = kUnitColumns / kStageColumns;
constexpr int kMaxUnitBytes = 2 * Int4BlockBytes(4);  // of a tile's weights
constexpr int kMaxTileRows = 128;

template <int kRows>
struct Shape {
  static constexpr int kGroups = kRows <= 64 ? 4 : 3;  // of 64 outputs
  static constexpr int kWarps = 4 * kGroups;
  static constexpr int kThreads = 128 * (kGroups + 1);
  static constexpr int kOutputs = 64 * kGroups;
  static constexpr int kStageBytes = kRows * kStageColumns * 2;
  static constexpr int kStages = kRows <= 64 ? 8 : 6;
  static constexpr int kRingUnits = 3;
  static constexpr int kSharedBytes =
      kStages * kStageBytes + kWarps * kRingUnits * kMaxUnitBytes + 1024;
  static constexpr int kSumBytes = kOutputs * kRows * 4;
  // Stages that the producers have on their way at a time: 16 registers of 16 bytes a thread.
  static constexpr int kBatch = kRows <= 64 ? kUnitStages : 2;
  static constexpr int kConsumerRegisters = kRows <= 64 ? 96 : 136;
  static constexpr int kProducerRegisters = kRows <= 64 ? 96 : 104;
};

// A block's range of the work.
struct Work {
  int num_units;  // of a tile
  int num_row_tiles;
  int total;

  __host__ __device__ Work(int depth, int num_outputs, int num_rows, int tile_outputs,
                           int tile_rows)
      : num_units((depth + kUnitColumns - 1) / kUnitColumns),
        num_row_tiles((num_rows + tile_rows - 1) / tile_rows),
        total(num_units * num_row_tiles * ((num_outputs + tile_outputs - 1) / tile_outputs)) {}
  __device__ int Begin(int block) const {
    return static_cast<int>(int64_t{block} * total / gridDim.x);
  }
  __device__ int BlockOf(int unit) const {
    return static_cast<int>(((int64_t{unit} + 1) * gridDim.x - 1) / total);
  }
};

// Four registers of matrices of 8 x 8, of whose row g lane 4 g + t holds values 2 t and 2 t + 1;
// lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void StoreMatrices(uint32_t address, uint4 values) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(values.x), "r"(values.y), "r"(values.z), "r"(values.w)
               : "memory");
}

__device__ __forceinline__ uint4 LoadShared16(uint32_t address) {
  uint4 value;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(address)
               : "memory");
  return value;
}
__device__ __forceinline__ uint32_t LoadShared4(uint32_t address) {
  uint32_t value;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}

// Keeps the stages of the input filled.
template <int kRows>
__device__ void Produce(const Int4GemmParams& p, const Work& work, uint32_t stages, uint64_t* full,
                        uint64_t* empty) {
  using S = Shape<kRows>;
  constexpr int kPieces = kRows / 16;  // of 8 rows and 32 columns, of a warp and stage
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int depth = p.weights.depth;
  int stage = 0, turn = 0;
  const int end = work.Begin(blockIdx.x + 1);
  for (int unit = work.Begin(blockIdx.x); unit < end; ++unit) {
    const int first_row = unit / work.num_units % work.num_row_tiles * kRows;
    const int first_column = unit % work.num_units * kUnitColumns;
#pragma unroll
    for (int batch = 0; batch < kUnitStages / S::kBatch; ++batch) {
      uint4 values[S::kBatch][kPieces];
#pragma unroll
      for (int b = 0; b < S::kBatch; ++b) {
#pragma unroll
        for (int i = 0; i < kPieces; ++i) {
          const int piece = i * 4 + warp, row = first_row + piece / 2 * 8 + g;
          const int column =
              first_column + (batch * S::kBatch + b) * kStageColumns + piece % 2 * 32 + t * 8;
          values[b][i] = {};
          if (row < p.num_rows && column < depth)
            values[b][i] = *reinterpret_cast<const uint4*>(p.in + int64_t{row} * depth + column);
        }
      }
#pragma unroll
      for (int b = 0; b < S::kBatch; ++b) {
        if (turn > 0) BarrierWait(empty + stage, (turn - 1) & 1);
        const uint32_t to = stages + stage * S::kStageBytes;
#pragma unroll
        for (int i = 0; i < kPieces; ++i) {
          const int piece = i * 4 + warp, row = piece / 2 * 8 + lane % 8;
          const int chunk = (piece % 2 * 4 + lane / 8) ^ (row % 8);
          StoreMatrices(to + row * 128 + chunk * 16, values[b][i]);
        }
        ProxyFence();
        __syncwarp();
        if (lane == 0) BarrierArrive(full + stage);
        if (++stage == S::kStages) stage = 0, ++turn;
      }
    }
  }
}

// Eight values of a word as bf16 in pairs: less their zero, times their scale.
__device__ __forceinline__ void Unpack(uint32_t word, uint32_t biased_zero, uint32_t scale,
                                       uint32_t mask, uint32_t bias, uint32_t (&pairs)[4]) {
  const auto zero = *reinterpret_cast<const __nv_bfloat162*>(&biased_zero);
  const auto factor = *reinterpret_cast<const __nv_bfloat162*>(&scale);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    uint32_t biased;  // 128 + value: a bf16 whose last bits are the value
    asm("lop3.b32 %0, %1, %2, %3, 0xea;"
        : "=r"(biased)
        : "r"(word >> (4 * i)), "r"(mask), "r"(bias));
    const __nv_bfloat162 value =
        __hmul2(__hsub2(*reinterpret_cast<const __nv_bfloat162*>(&biased), zero), factor);
    pairs[i] = *reinterpret_cast<const uint32_t*>(&value);
  }
}

// The ring of a warp's weights: of its tile of each unit of the block's range, in order.
template <int kRows>
struct WeightRing {
  using S = Shape<kRows>;
  uint32_t bytes;  // its address in shared memory
  uint64_t* full;
  int next, end;   // units of the range
  int tile, unit;  // where `next` is
  int slot = 0, parity = 0;

  // Lane 0: begins the copy of unit `next` to a slot.
  __device__ void Fill(const Int4GemmParams& p, const Work& work, int to) {
    if (next >= end) return;
    const WeightMatrix& w = p.weights;
    const int warp = threadIdx.x / 32, from = unit;
    const int output_tile =
        (work.num_row_tiles == 1 ? tile : tile / work.num_row_tiles) * S::kWarps + warp;
    ++next;
    if (++unit == work.num_units) unit = 0, ++tile;
    if (output_tile * kInt4TileRows >= w.num_outputs) {
      BarrierArrive(full + to);
      return;
    }
    const int block_bytes = Int4BlockBytes(w.scales_per_block);
    const int num_blocks = (w.depth + kInt4BlockColumns - 1) / kInt4BlockColumns;
    const int count = min(2, num_blocks - 2 * from);
    BarrierExpect(full + to, count * block_bytes);
    BulkCopy(bytes + to * kMaxUnitBytes,
             static_cast<const char*>(w.data) +
                 (int64_t{output_tile} * num_blocks + 2 * from) * block_bytes,
             count * block_bytes, full + to);
  }
  __device__ void Advance() {
    if (++slot == S::kRingUnits) slot = 0, parity ^= 1;
  }
};

// Sums of a thread: of outputs `row` and row + 8 of its warp's tile, tokens 8 j + 2 t, + 1.
template <int kRows>
__device__ void Store(const Int4GemmParams& p, int tile, int first_row, float (&sums)[kRows / 2]) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  if (tile * kInt4TileRows >= p.weights.num_outputs) return;
  const int64_t num_outputs = p.weights.num_outputs;
  const bool gates = p.output == StreamOutput::kSiluGate;
#pragma unroll
  for (int j = 0; j < kRows / 8; ++j) {
    float* d = sums + 4 * j;
    // Of two neighbours, which hold outputs g and g + 1 of two tokens, each takes one token.
    const int token = first_row + 8 * j + 2 * t + g % 2;
    const int output = g / 2 * 2;
    if (gates) {
#pragma unroll
      for (int b = 0; b < 2; ++b) d[b] = d[b] / (1.0f + __expf(-d[b])) * d[2 + b];
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (half == 1 && gates) break;
      const float other =
          __shfl_xor_sync(0xffffffffu, g % 2 == 0 ? d[2 * half + 1] : d[2 * half], 4);
      float low = g % 2 == 0 ? d[2 * half] : other, high = g % 2 == 0 ? other : d[2 * half + 1];
      if (token >= p.num_rows) continue;
      if (p.output == StreamOutput::kFloat) {
        *reinterpret_cast<float2*>(static_cast<float*>(p.out) + token * num_outputs +
                                   tile * kInt4TileRows + 8 * half + output) = {low, high};
        continue;
      }
      auto* out = static_cast<bf16*>(p.out) +
                  (gates ? token * (num_outputs / 2) + tile * (kInt4TileRows / 2)
                         : token * num_outputs + tile * kInt4TileRows + 8 * half) +
                  output;
      if (p.output == StreamOutput::kAdd) {
        const uint32_t before = *reinterpret_cast<const uint32_t*>(out);
        low += LowBf16(before), high += HighBf16(before);
      }
      *reinterpret_cast<uint32_t*>(out) = PackBf16(low, high);
    }
  }
}

template <int kRows>
__device__ __forceinline__ void SyncConsumers() {
  asm volatile("bar.sync 1, %0;" ::"n"(128 * Shape<kRows>::kGroups) : "memory");
}

// The sums of a part of a tile: to memory, and back as those of the whole tile if all of its parts
// are there; else false.
template <int kRows>
__device__ bool Combine(const Int4GemmParams& p, const Work& work, int tile, bool begins_tile,
                        int32_t* shared_ticket, float (&sums)[kRows / 2]) {
  using S = Shape<kRows>;
  constexpr int kConsumers = 128 * S::kGroups;
  const auto place = [&](int block, bool begins) {
    return reinterpret_cast<float4*>(p.partials) +
           (int64_t{block} * 2 + (begins ? 1 : 0)) * (S::kSumBytes / 16) + threadIdx.x;
  };
  float4* mine = place(blockIdx.x, begins_tile);
#pragma unroll
  for (int i = 0; i < kRows / 8; ++i) {
    __stcg(mine + i * kConsumers,
           make_float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]));
  }
  __threadfence();
  SyncConsumers<kRows>();
  const int first_unit = tile * work.num_units;
  const int first = work.BlockOf(first_unit), last = work.BlockOf(first_unit + work.num_units - 1);
  if (threadIdx.x == 0) {
    const int32_t ticket = atomicAdd(p.tickets + tile, 1);
    *shared_ticket = ticket;
    if (ticket == last - first) p.tickets[tile] = 0;
    __threadfence();
  }
  SyncConsumers<kRows>();
  const bool is_last = *shared_ticket == last - first;
  SyncConsumers<kRows>();  // before the next ticket
  if (!is_last) return false;
#pragma unroll
  for (float& sum : sums) sum = 0.0f;
  for (int block = first; block <= last; ++block) {
    const float4* part = place(block, work.Begin(block) <= first_unit);
#pragma unroll
    for (int i = 0; i < kRows / 8; ++i) {
      const float4 values = __ldcg(part + i * kConsumers);
      sums[4 * i] += values.x, sums[4 * i + 1] += values.y;
      sums[4 * i + 2] += values.z, sums[4 * i + 3] += values.w;
    }
  }
  return true;
}

template <int kRows>
__device__ void Consume(const Int4GemmParams& p, const Work& work, uint32_t stages,
                        WeightRing<kRows>& ring, uint64_t* full, uint64_t* empty,
                        int32_t* shared_ticket) {
  using S = Shape<kRows>;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4;
  const int per_block = p.weights.scales_per_block, block_bytes = Int4BlockBytes(per_block);
  const int num_blocks = (p.weights.depth + kInt4BlockColumns - 1) / kInt4BlockColumns;
  uint32_t mask, bias;  // not as immediates, of which an instruction takes one
  asm("mov.b32 %0, 0x000f000f;" : "=r"(mask));
  asm("mov.b32 %0, 0x43004300;" : "=r"(bias));
  const int end = ring.end;
  int unit = work.Begin(blockIdx.x);
  int stage = 0, parity = 0;
  while (unit < end) {
    float sums[kRows / 2] = {};
    const int tile = unit / work.num_units;
    const int begin = unit, tile_end = (tile + 1) * work.num_units;
    const int until = tile_end < end ? tile_end : end;
    const int output_tile = tile / work.num_row_tiles * S::kWarps + warp;
    const bool has_tile = output_tile * kInt4TileRows < p.weights.num_outputs;
    int previous = -1;  // stage whose products may still run
    for (; unit < until; ++unit) {
      BarrierWait(ring.full + ring.slot, ring.parity);
      const uint32_t at = ring.bytes + ring.slot * kMaxUnitBytes;
      const int blocks_left = num_blocks - (unit - tile * work.num_units) * 2;
      uint32_t fragments[2][8];
      uint32_t zeros[2] = {}, scales[2] = {};
#pragma unroll
      for (int s = 0; s < kUnitStages; ++s) {
        const uint32_t block = at + s / 2 * block_bytes;
        const bool is_there = has_tile && s / 2 < blocks_left;
        uint4 words = {};
        if (is_there) words = LoadShared16(block + (s % 2 * 32 + lane) * 16);
#pragma unroll
        for (int step = 0; step < 2; ++step) {
          const int in_block = s % 2 * 2 + step;  // of four steps of 32 columns
          if (in_block * per_block % 4 == 0) {
            const uint32_t from =
                block + kInt4ValueBytes + (in_block * per_block / 4 * kInt4TileRows + g) * 4;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
              const uint32_t word = is_there ? LoadShared4(from + 32 * half) : 0;
              const float scale = __uint_as_float(word & ~31u);
              zeros[half] = bias + (word & 31u) * 0x10001u;
              scales[half] = PackBf16(scale, scale);
            }
          }
          uint32_t low[4], high[4];
          Unpack(step == 0 ? words.x : words.z, zeros[0], scales[0], mask, bias, low);
          Unpack(step == 0 ? words.y : words.w, zeros[1], scales[1], mask, bias, high);
          uint32_t(&a)[8] = fragments[step];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            a[i / 2 * 4 + i % 2 * 2] = low[i];
            a[i / 2 * 4 + i % 2 * 2 + 1] = high[i];
          }
          if (step == 0) BarrierWait(full + stage, parity);
          const uint32_t b = stages + stage * S::kStageBytes + step * 64;
          WgmmaBegin();
          Wgmma(sums, a[0], a[1], a[2], a[3], MatrixDescriptor<128>(b), 1);
          Wgmma(sums, a[4], a[5], a[6], a[7], MatrixDescriptor<128>(b + 32), 1);
          WgmmaCommit();
          WgmmaWait<1>();  // the other fragment, and the stage before, are free
          if (step == 0 && previous >= 0 && lane == 0) BarrierArrive(empty + previous);
        }
        previous = stage;
        if (++stage == S::kStages) stage = 0, parity ^= 1;
      }
      __syncwarp();
      if (lane == 0) ring.Fill(p, work, ring.slot);
      ring.Advance();
    }
    WgmmaWait<0>();
    Pin(sums);
    if (lane == 0) BarrierArrive(empty + previous);
    const bool is_whole = begin == tile * work.num_units && until == tile_end;
    if (is_whole ||
        Combine<kRows>(p, work, tile, begin == tile * work.num_units, shared_ticket, sums)) {
      Store<kRows>(p, output_tile, tile % work.num_row_tiles * kRows, sums);
    }
  }
}

template <int kRows>
__global__ void __launch_bounds__(Shape<kRows>::kThreads, 1) Int4GemmKernel(Int4GemmParams p) {
  using S = Shape<kRows>;
  extern __shared__ char unaligned[];
  __shared__ uint64_t full[S::kStages], empty[S::kStages], weights_full[S::kWarps][S::kRingUnits];
  __shared__ int32_t ticket;
  char* shared = unaligned + (1024 - SharedAddress(unaligned) % 1024) % 1024;
  const uint32_t stages = SharedAddress(shared);
  const int warp = threadIdx.x / 32;
  LaunchNext();
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < S::kStages; ++stage) {
      BarrierInit(full + stage, 4);
      BarrierInit(empty + stage, S::kWarps);
    }
    for (auto& ring : weights_full) {
      for (uint64_t& barrier : ring) BarrierInit(&barrier, 1);
    }
    BarrierInitFence();
  }
  __syncthreads();
  const Work work(p.weights.depth, p.weights.num_outputs, p.num_rows, S::kOutputs, kRows);
  if (warp >= S::kWarps) {
    GiveRegisters<S::kProducerRegisters>();
    WaitForPrevious();
    Produce<kRows>(p, work, stages, full, empty);
  } else {
    TakeRegisters<S::kConsumerRegisters>();
    WeightRing<kRows> ring;
    ring.bytes = stages + S::kStages * S::kStageBytes + warp * S::kRingUnits * kMaxUnitBytes;
    ring.full = weights_full[warp];
    ring.next = work.Begin(blockIdx.x);
    ring.end = work.Begin(blockIdx.x + 1);
    ring.tile = ring.next / work.num_units;
    ring.unit = ring.next % work.num_units;
    if (threadIdx.x % 32 == 0) {
      for (int slot = 0; slot < S::kRingUnits; ++slot) ring.Fill(p, work, slot);
    }
    __syncwarp();
    WaitForPrevious();
    Consume<kRows>(p, work, stages, ring, full, empty, &ticket);
  }
}

template <int kRows>
void Start(const Int4GemmParams& p, int num_processors, cudaStream_t stream) {
  using S = Shape<kRows>;
  const Work work(p.weights.depth, p.weights.num_outputs, p.num_rows, S::kOutputs, kRows);
  (void)cudaFuncSetAttribute(Int4GemmKernel<kRows>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             S::kSharedBytes);
  const auto blocks =
      static_cast<unsigned>(work.total < num_processors ? work.total : num_processors);
  Launch(Int4GemmKernel<kRows>, blocks, S::kThreads, S::kSharedBytes, stream, p);
}

}  // namespace

int64_t Int4GemmPartialBytes(int num_processors) {
  return int64_t{num_processors} * 2 * Shape<kMaxTileRows>::kSumBytes;
}

int64_t Int4GemmTicketBytes(const WeightMatrix& weights) {
  return int64_t{(weights.num_outputs + 63) / 64} * (kInt4GemmMaxRows / kMaxTileRows) * 4;
}

bool CanMultiplyInt4(const WeightMatrix& weights, int num_rows) {
  return weights.format == WeightFormat::kInt4 && num_rows <= kInt4GemmMaxRows &&
         weights.num_outputs % kInt4TileRows == 0 && weights.depth % 8 == 0;
}

void Int4Gemm(const Int4GemmParams& params, int num_processors, cudaStream_t stream) {
  if (params.num_rows <= 32) return Start<32>(params, num_processors, stream);
  if (params.num_rows <= 64) return Start<64>(params, num_processors, stream);
  Start<128>(params, num_processors, stream);
}

}  // namespace nereid::gpu
