// The ring of a decode step: a warp copies this block's share of all weights and of all keys and
// values into it, in the order in which the others need them, as far ahead as there is room.
// Device code alone.
#pragma once

#include "gpu_llm/kernels/attention/cache_layout.h"
#include "gpu_llm/kernels/device/async_copy.cuh"
#include "gpu_llm/kernels/device/device.cuh"
#include "gpu_llm/kernels/step/decode_step.h"

namespace nereid::gpu::decode_step {

constexpr int kWarps = 8;  // that compute
// One more copies; it brings three idle ones along, since registers are shared out by four warps.
constexpr int kThreads = 32 * (kWarps + 4);
constexpr int kConsumerRegisters = 224, kProducerRegisters = 40;
constexpr int kTileOutputs = 16;
constexpr int kPanelColumns = 1024;  // of which each warp has 128
constexpr int kSlots = 6, kSlotBytes = 34816;
constexpr int kRingBytes = kSlots * kSlotBytes;
// Slots that are being filled at a time. More would not be filled faster; fewer are not enough.
constexpr int kUnderWay = 2;
constexpr int kKnownUnits = 4;

// What a slot holds of a tile of 16 outputs: a chunk of so many panels of its depth. Rows of bf16
// and fp8 lie a pitch apart in which neighbours share no banks.
template <WeightFormat kFormat>
struct Chunk {
  static constexpr int kElementBytes = kFormat == WeightFormat::kBf16 ? 2 : 1;
  static constexpr int kRowBytes = 2048, kPitch = kRowBytes + 64;
  static constexpr int kColumns = kRowBytes / kElementBytes;
  static constexpr int kPanels = kColumns / kPanelColumns;
  static_assert(kTileOutputs * kPitch <= kSlotBytes);
};
template <>
struct Chunk<WeightFormat::kInt4> {  // blocks as they lie in memory, eight to a panel
  static constexpr int kPanels = 4, kColumns = kPanels * kPanelColumns;
  static constexpr int kBlockBytes = Int4BlockBytes(1);
  static_assert(kColumns / kInt4BlockColumns * kBlockBytes <= kSlotBytes);
};

struct Shared {
  uint64_t full[kSlots], empty[kSlots];
  float parts[2][kWarps][2][32][4];  // of sums: [turn][warp][tile][lane]
  float squares[kDecodeStepRows][kWarps];
  bool is_last;
  // Of this block's first units of attention, the same in all layers.
  DecodeItem items[kKnownUnits];
  int positions[kKnownUnits], cache_slots[kKnownUnits];
};

struct RingPosition {
  int slot = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void Advance() {
    if (++slot == kSlots) slot = 0, parity ^= 1;
  }
};

// The share of a sequence's context and the key/value head that a unit of attention is for.
struct AttentionUnit {
  DecodeItem item;
  int index;                                 // of the item
  int kv_head, position, slot;               // of the newest token
  int first_visible, first_tile, num_tiles;  // num_tiles 0: there is nothing to do
};
// Units go to blocks from the last one on: the first ones have more tiles of weights.
__device__ __forceinline__ int UnitNumber(int i) {
  return static_cast<int>(gridDim.x - 1 - blockIdx.x + i * gridDim.x);
}
__device__ __forceinline__ bool HasUnit(const DecodeStepParams& p, int i) {
  return UnitNumber(i) < p.num_items * p.num_kv_heads;
}
__device__ __forceinline__ void RememberUnit(const DecodeStepParams& p, Shared& shared, int i) {
  if (!HasUnit(p, i)) return;
  const DecodeItem item = p.items[UnitNumber(i) / p.num_kv_heads];
  shared.items[i] = item;
  shared.positions[i] = p.positions[item.row];
  shared.cache_slots[i] = p.cache_slots[item.row];
}
// This block's i-th.
__device__ __forceinline__ AttentionUnit UnitOf(const DecodeStepParams& p, const Shared& shared,
                                                int i, int window) {
  AttentionUnit result;
  result.index = UnitNumber(i) / p.num_kv_heads;
  result.kv_head = UnitNumber(i) % p.num_kv_heads;
  const bool is_known = i < kKnownUnits;
  result.item = is_known ? shared.items[i] : p.items[result.index];
  const DecodeItem& item = result.item;
  result.position = is_known ? shared.positions[i] : p.positions[item.row];
  result.slot = is_known ? shared.cache_slots[i] : p.cache_slots[item.row];
  result.first_visible = window > 0 ? max(0, item.length - window) : 0;
  // What lies before the window still has a tile, of which nothing is visible.
  result.first_tile =
      max(item.first_tile, min(result.first_visible / kBlockTokens, item.last_tile - 1));
  result.num_tiles = item.first_tile == item.last_tile ? 0 : item.last_tile - result.first_tile;
  return result;
}

template <WeightFormat kFormat, int kHeadDim>
class Producer {
 public:
  __device__ Producer(const DecodeStepParams& params, char* ring, Shared& shared)
      : p_(params), ring_(ring), shared_(shared), lane_(static_cast<int>(threadIdx.x) % 32) {
    position_.parity = 1;  // all slots are empty
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(once_));
  }

  __device__ void Run() {
    const int hidden = p_.hidden_size, q_size = p_.num_heads * kHeadDim;
    for (int i = 0; i < p_.num_layers; ++i) {
      const DecodeStepLayer& layer = p_.layers[i];
      CopyMatrix<kFormat>(layer.weights[kStepQkv], q_size + 2 * p_.num_kv_heads * kHeadDim, hidden);
      CopyContext(i, layer.window);
      CopyMatrix<kFormat>(layer.weights[kStepOut], hidden, q_size);
      CopyMatrix<kFormat>(layer.weights[kStepGateUp], 2 * p_.inner_size, hidden);
      CopyMatrix<kFormat>(layer.weights[kStepDown], hidden, p_.inner_size);
    }
    CopyMatrix<WeightFormat::kBf16>(p_.head, p_.head_outputs, hidden);
  }

 private:
  // The next slot, free, with so many bytes announced. What is on its way at a time is little more
  // than the memory needs to be busy: all else that goes to L2 would queue behind it.
  __device__ char* Take(int bytes) {
    BarrierWait(shared_.empty + position_.slot, position_.parity);
    if (num_taken_ == kUnderWay) {
      BarrierWait(shared_.full + landing_.slot, landing_.parity);
      landing_.Advance();
    } else {
      ++num_taken_;
    }
    if (lane_ == 0) BarrierExpect(shared_.full + position_.slot, bytes);
    __syncwarp();
    return ring_ + position_.slot * kSlotBytes;
  }
  __device__ void Copy(char* to, const char* from, int bytes) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
        "[%1], %2, [%3], %4;" ::"r"(SharedAddress(to)),
        "l"(from), "r"(bytes), "r"(SharedAddress(shared_.full + position_.slot)), "l"(once_)
        : "memory");
  }

  __device__ static int BlocksOf(int columns) {
    return (columns + kInt4BlockColumns - 1) / kInt4BlockColumns;
  }

  // Tiles blockIdx, + grid, ...: two at a time, chunk by chunk, as Multiply takes them.
  template <WeightFormat kMatrix>
  __device__ void CopyMatrix(const void* weights, int num_outputs, int depth) {
    const int num_tiles = num_outputs / kTileOutputs, grid = static_cast<int>(gridDim.x);
    for (int first = blockIdx.x; first < num_tiles; first += 2 * grid) {
      for (int column = 0; column < depth; column += Chunk<kMatrix>::kColumns) {
        for (int tile = first; tile < min(num_tiles, first + 2 * grid); tile += grid)
          CopyChunk<kMatrix>(weights, tile, column, depth);
      }
    }
  }

  template <WeightFormat kMatrix>
  __device__ void CopyChunk(const void* weights, int tile, int column, int depth) {
    using Shape = Chunk<kMatrix>;
    const int columns = min(Shape::kColumns, depth - column);
    if constexpr (kMatrix == WeightFormat::kInt4) {
      const int bytes = BlocksOf(columns) * Shape::kBlockBytes;
      const char* from = static_cast<const char*>(weights) + tile * Int4TileBytes(depth, 1) +
                         BlocksOf(column) * Shape::kBlockBytes;
      char* to = Take(bytes);
      constexpr int kPiece = kPanelColumns / kInt4BlockColumns * Shape::kBlockBytes;
      if (const int at = lane_ * kPiece; at < bytes)
        Copy(to + at, from + at, min(kPiece, bytes - at));
    } else {
      const int bytes = columns * Shape::kElementBytes;
      char* to = Take(kTileOutputs * bytes);
      if (lane_ < kTileOutputs) {
        const int64_t row = int64_t{tile} * kTileOutputs + lane_;
        Copy(to + lane_ * Shape::kPitch,
             static_cast<const char*>(weights) + (row * depth + column) * Shape::kElementBytes,
             bytes);
      }
    }
    position_.Advance();
  }

  // Keys and values as earlier steps left them: this step's are put in when they are there.
  __device__ void CopyContext(int layer, int window) {
    constexpr int kBytes = static_cast<int>(HeadBytes(kHeadDim));
    static_assert(kBytes <= kSlotBytes);
    const char* cache = static_cast<const char*>(p_.cache) + layer * p_.cache_layer_bytes;
    for (int i = 0; HasUnit(p_, i); ++i) {
      const AttentionUnit unit = UnitOf(p_, shared_, i, window);
      const int32_t* table = p_.words + unit.item.table_offset + unit.first_tile;
      for (int tile = 0; tile < unit.num_tiles; ++tile) {
        const int64_t head = int64_t{table[tile]} * p_.num_kv_heads + unit.kv_head;
        char* to = Take(kBytes);
        if (lane_ == 0) Copy(to, cache + head * kBytes, kBytes);
        position_.Advance();
      }
    }
  }

  const DecodeStepParams& p_;
  char* ring_;
  Shared& shared_;
  RingPosition position_, landing_;
  int num_taken_ = 0;
  uint64_t once_;  // an L2 policy
  int lane_;
};

// The threads that compute, of this block.
__device__ __forceinline__ void SyncConsumers() {
  asm volatile("bar.sync 1, %0;" ::"n"(32 * kWarps) : "memory");
}

// What those threads know of the ring.
class Consumer {
 public:
  __device__ Consumer(char* ring, Shared& shared) : ring_(ring), shared_(&shared) {}
  __device__ __forceinline__ char* Wait() {
    BarrierWait(shared_->full + position_.slot, position_.parity);
    return ring_ + position_.slot * kSlotBytes;
  }
  // Every warp, for every slot that it waited for.
  __device__ __forceinline__ void Release() {
    __syncwarp();
    if (threadIdx.x % 32 == 0) BarrierArrive(shared_->empty + position_.slot);
    position_.Advance();
  }
  __device__ __forceinline__ Shared& shared() { return *shared_; }

 private:
  char* ring_;
  Shared* shared_;
  RingPosition position_;
};

// All blocks' writes before an Arrive can be read after the Wait that follows it.
class GridBarrier {
 public:
  __device__ explicit GridBarrier(uint32_t* arrivals) : arrivals_(arrivals) {}
  __device__ void Arrive() {
    SyncConsumers();
    if (threadIdx.x == 0) {
      asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrivals_) : "memory");
    }
    target_ += gridDim.x;
  }
  __device__ void Wait() {
    if (threadIdx.x == 0) {
      for (uint64_t start = 0; !HaveArrived();) CheckPatience(start);
    }
    SyncConsumers();
  }
  // After the last Wait: leaves the counters as they were.
  __device__ void End() {
    if (threadIdx.x != 0 || atomicAdd(arrivals_ + 1, 1u) != gridDim.x - 1) return;
    arrivals_[0] = arrivals_[1] = 0;
  }

 private:
  static constexpr int kSpinsALook = 1 << 16;
  static constexpr uint64_t kLimitNs = 30'000'000'000;

  __device__ bool HaveArrived() {
    uint32_t now = 0;
    for (int spins = 0; spins < kSpinsALook; ++spins) {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(arrivals_) : "memory");
      if (now >= target_) return true;
    }
    return false;
  }
  // Blocks that another process keeps from starting are not waited for for ever: the launch fails.
  __device__ static void CheckPatience(uint64_t& start) {
    if (start == 0) start = NowNs();
    if (NowNs() - start > kLimitNs) __trap();
  }

  uint32_t* arrivals_;
  uint32_t target_ = 0;
};

}  // namespace nereid::gpu::decode_step
