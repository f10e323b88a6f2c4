// The ring of a fused decode step. Producer warps copy this block's share of all weights, keys and
// values to it, in the order in which the compute warps need them and as far ahead as slots are
// free. Device code only.
#pragma once

#include <cstddef>

#include "backends/gpu_llm/kernels/step/decode_step_state.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step {

struct RingPosition {
  int slot = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void Advance(const DecodeStepParams& p) {
    if (++slot == NumSlots(p)) slot = 0, parity ^= 1;
  }
};

// The fields of a layer for a warp that copies: a word in each lane. Those of the next layer are
// loaded a layer ahead, so that copies do not wait for them.
class LayerWords {
 public:
  __device__ explicit LayerWords(const DecodeStepParams& p) { Load(p, 0); }

  // Takes layer 0, then the next one.
  __device__ __forceinline__ void Advance(const DecodeStepParams& p) {
    word_ = next_word_;
    Load(p, ++layer_);
  }
  // The field of type T at a byte of DecodeStepLayer. Called by the whole warp.
  template <typename T>
  __device__ __forceinline__ T Get(size_t offset) const {
    const uint64_t word = __shfl_sync(0xffffffffu, word_, static_cast<int>(offset / 8));
    if constexpr (sizeof(T) == 8) {
      return reinterpret_cast<const T&>(word);
    } else {
      static_assert(sizeof(T) == 4);
      const auto half = static_cast<uint32_t>(word >> offset % 8 * 8);
      return reinterpret_cast<const T&>(half);
    }
  }

 private:
  __device__ __forceinline__ void Load(const DecodeStepParams& p, int layer) {
    static_assert(sizeof(DecodeStepLayer) <= 32 * 8);
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (layer < p.num_layers && lane < static_cast<int>(sizeof(DecodeStepLayer) / 8))
      next_word_ = __ldg(reinterpret_cast<const uint64_t*>(p.layers + layer) + lane);
  }

  uint64_t word_ = 0, next_word_ = 0;
  int layer_ = 0;
};

// The columns of the input of q, k and v.
__device__ __forceinline__ int QkvDepth(const DecodeStepParams& p, int layer) {
  return layer == 0 && p.input != nullptr ? 2 * p.hidden_size : p.hidden_size;
}

template <WeightFormat kFormat, CacheFormat kCache, int kHeadDim, StepLayers kLayers>
class Producer {
 public:
  __device__ Producer(const DecodeStepParams& params, char* ring, SharedState& shared)
      : p_(params), ring_(ring), shared_(shared) {
    position_.parity = 1;  // all slots are empty
  }

  __device__ void Run() {
    const int hidden = p_.hidden_size, q_size = p_.num_heads * kHeadDim;
    LayerWords layer(p_);
    const auto weights = [&](DecodeStepGemm gemm) {
      return layer.Get<const char*>(offsetof(DecodeStepLayer, weights) + gemm * sizeof(void*));
    };
    for (int i = 0; i < p_.num_layers; ++i) {
      layer.Advance(p_);
      CopyMatrix<kFormat>(weights(kStepQkv), q_size + 2 * p_.num_kv_heads * kHeadDim,
                          QkvDepth(p_, i));
      CopyContext(i, layer.Get<int>(offsetof(DecodeStepLayer, window)));
      CopyMatrix<kFormat>(weights(kStepOut), hidden, q_size);
      if constexpr (kLayers == StepLayers::kExperts) {
        const auto router = layer.Get<const char*>(offsetof(DecodeStepLayer, router));
        if (router != nullptr) {
          CopyMatrix<WeightFormat::kBf16>(router, p_.num_experts, hidden);
          WaitForSlot(&shared_.selected, selected_parity_);
          selected_parity_ ^= 1;
          CopyGateUp(weights(kStepGateUp),
                     layer.Get<int64_t>(offsetof(DecodeStepLayer, gate_up_stride)));
          CopyDown(weights(kStepDown), layer.Get<int64_t>(offsetof(DecodeStepLayer, down_stride)));
          __syncwarp();
          if (threadIdx.x % 32 == 0) BarrierArrive(&shared_.copied);
          continue;
        }
      }
      const bool has_gate = kLayers != StepLayers::kGeneral || p_.has_gate;
      CopyMatrix<kFormat>(weights(kStepGateUp), (has_gate ? 2 : 1) * p_.inner_size, hidden);
      CopyMatrix<kFormat>(weights(kStepDown), hidden, p_.inner_size);
    }
    CopyMatrix<WeightFormat::kBf16>(p_.head, p_.head_outputs, hidden);
    copy_.WaitForAll();
  }

 private:
  // Waits until the next slot is free, and begins to copy `bytes` to it. If the form has a limit,
  // also waits until fewer than max_in_flight_ slots are being filled, because other requests to
  // the L2 cache wait behind these copies.
  __device__ char* BeginSlot(int bytes) {
    WaitForSlot(shared_.empty + position_.slot, position_.parity);
    if constexpr (kMaxInFlight < kMaxSlots) {
      while (num_in_flight_ >= max_in_flight_) {
        WaitForSlot(shared_.full + oldest_in_flight_.slot, oldest_in_flight_.parity);
        oldest_in_flight_.Advance(p_);
        --num_in_flight_;
      }
      ++num_in_flight_;
    }
    copy_.Begin(shared_.full + position_.slot, bytes);
    return ring_ + position_.slot * kSlotBytes;
  }
  __device__ void EndSlot() {
    copy_.End();
    position_.Advance(p_);
  }

  // Copies tiles blockIdx, + grid, ...: two at a time, chunk by chunk, in the order of the
  // consumers.
  template <WeightFormat kMatrix>
  __device__ void CopyMatrix(const void* weights, int num_outputs, int depth) {
    const int num_tiles = (num_outputs + kTileOutputs - 1) / kTileOutputs;
    const int grid = static_cast<int>(gridDim.x);
    for (int first = blockIdx.x; first < num_tiles; first += 2 * grid) {
      for (int column = 0; column < depth; column += Chunk<kMatrix>::kColumns) {
        for (int tile = first; tile < min(num_tiles, first + 2 * grid); tile += grid) {
          CopyChunk<kMatrix>(weights, tile, column, depth,
                             min(kTileOutputs, num_outputs - tile * kTileOutputs));
        }
      }
    }
  }

  // The same over the tiles of all selected experts, whose matrices are `stride` bytes apart.
  __device__ void CopyGateUp(const char* weights, int64_t stride) {
    const SelectedExperts& selected = shared_.experts;
    const int each = 2 * p_.expert_inner_size / kTileOutputs, num_tiles = selected.count * each;
    const int grid = static_cast<int>(gridDim.x);
    for (int first = blockIdx.x; first < num_tiles; first += 2 * grid) {
      for (int column = 0; column < p_.hidden_size; column += Chunk<kFormat>::kColumns) {
        for (int tile = first; tile < min(num_tiles, first + 2 * grid); tile += grid) {
          CopyChunk<kFormat>(weights + selected.experts[tile / each] * stride, tile % each, column,
                             p_.hidden_size);
        }
      }
    }
  }
  // The depth of a tile is that of one selected expert after the other.
  __device__ void CopyDown(const char* weights, int64_t stride) {
    const SelectedExperts& selected = shared_.experts;
    const int num_tiles = p_.hidden_size / kTileOutputs, grid = static_cast<int>(gridDim.x);
    for (int first = blockIdx.x; first < num_tiles; first += 2 * grid) {
      for (int i = 0; i < selected.count; ++i) {
        const char* const of_expert = weights + selected.experts[i] * stride;
        for (int column = 0; column < p_.expert_inner_size; column += Chunk<kFormat>::kColumns) {
          for (int tile = first; tile < min(num_tiles, first + 2 * grid); tile += grid)
            CopyChunk<kFormat>(of_expert, tile, column, p_.expert_inner_size);
        }
      }
    }
  }

  // `rows`: that the tile has; only a router has tiles of fewer.
  template <WeightFormat kMatrix>
  __device__ void CopyChunk(const void* weights, int tile, int column, int depth,
                            int rows = kTileOutputs) {
    using Shape = Chunk<kMatrix>;
    const int columns = min(Shape::kColumns, depth - column);
    if constexpr (kMatrix == WeightFormat::kInt4) {
      const int bytes = NumInt4Blocks(columns) * Shape::kBlockBytes;
      const char* from = static_cast<const char*>(weights) + tile * Int4TileBytes(depth, 1) +
                         NumInt4Blocks(column) * Shape::kBlockBytes;
      char* to = BeginSlot(bytes);
      constexpr int kKTileBytes = Shape::kKTileColumns / kInt4BlockColumns * Shape::kBlockBytes;
      copy_.CopyBytes<kKTileBytes>(to, from, bytes);
    } else {
      const int bytes = columns * Shape::kElementBytes;
      const int64_t stride = int64_t{depth} * Shape::kElementBytes;
      const char* from = static_cast<const char*>(weights) + tile * kTileOutputs * stride +
                         column * Shape::kElementBytes;
      char* to = BeginSlot(rows * bytes);
      copy_.CopyRows<kTileOutputs, Shape::kPitch>(to, from, stride, bytes, rows);
    }
    EndSlot();
  }

  // Copies keys and values of earlier steps; this step's are added when they are ready.
  __device__ void CopyContext(int layer, int window) {
    constexpr int kHeadBytes = static_cast<int>(HeadBytes(kHeadDim, kCache));
    // Blocks of a quantized cache fill half of their slots.
    max_in_flight_ = kCache == CacheFormat::kBf16 ? kMaxInFlight : kMaxContextInFlight;
    const char* cache = static_cast<const char*>(p_.cache) + layer * p_.cache_layer_bytes;
    for (int i = 0; HasUnit(p_, i); ++i) {
      const AttentionUnit unit = UnitOf(p_, shared_, i, window);
      const int32_t* table = p_.words + unit.item.table_offset + unit.first_tile;
      for (int tile = 0; tile < unit.num_tiles; ++tile) {
        const int64_t head = int64_t{table[tile]} * p_.num_kv_heads + unit.kv_head;
        while (position_.slot % kBlockSlots<kHeadDim> != 0) {
          BeginSlot(0);
          EndSlot();
        }
        for (int slot = 0; slot < kBlockSlots<kHeadDim>; ++slot) {
          const int done = slot * kSlotBytes, bytes = max(0, min(kSlotBytes, kHeadBytes - done));
          char* to = BeginSlot(bytes);
          copy_.CopyBytes<kSlotBytes>(to, cache + head * kHeadBytes + done, bytes);
          EndSlot();
        }
      }
    }
    max_in_flight_ = kMaxInFlight;
  }

  const DecodeStepParams& p_;
  char* ring_;
  SharedState& shared_;
  RingPosition position_, oldest_in_flight_;
  uint32_t selected_parity_ = 0;
  SlotCopy copy_;
  int num_in_flight_ = 0, max_in_flight_ = kMaxInFlight;
};

// Barrier of this block's compute warps.
__device__ __forceinline__ void SyncConsumers() {
  asm volatile("bar.sync 1, %0;" ::"n"(32 * kWarps) : "memory");
}

// The compute warps' view of the ring. All of its functions are called by every warp, in the same
// order.
class Consumer {
 public:
  __device__ Consumer(const DecodeStepParams& params, char* ring, SharedState& shared)
      : p_(params), ring_(ring), shared_(&shared) {}
  // Waits for the next slot, or for kCount slots that are adjacent.
  template <int kCount = 1>
  __device__ __forceinline__ char* Wait() {
    while (position_.slot % kCount != 0) {
      WaitForSlot(shared_->full + position_.slot, position_.parity);
      Release();
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      WaitForSlot(shared_->full + position_.slot + i, position_.parity);
    return ring_ + position_.slot * kSlotBytes;
  }
  // Gives back what Wait() returned.
  template <int kCount = 1>
  __device__ __forceinline__ void Release() {
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (threadIdx.x % 32 == 0) BarrierArrive(shared_->empty + position_.slot);
      position_.Advance(p_);
    }
  }
  // Waits until the selection of experts of the layer before may be overwritten.
  __device__ __forceinline__ void WaitForSelection() {
    WaitForSlot(&shared_->copied, copied_parity_);
    copied_parity_ ^= 1;
  }
  __device__ __forceinline__ SharedState& shared() {
    return *shared_;
  }

 private:
  const DecodeStepParams& p_;
  char* ring_;
  SharedState* shared_;
  RingPosition position_;
  uint32_t copied_parity_ = 1;  // there is none before the first layer
};

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step
