// The ring of a fused decode step, and the exchange between blocks. Producer warps copy this
// block's share of all weights, keys and values to the ring, in the order in which the compute
// warps need them and as far ahead as slots are free. Device code only.
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

// Two bf16 NaNs that no conversion produces: marks a word of DecodeStepParams::exchange as not
// ready.
constexpr uint32_t kNotReady = 0xffffffffu;

__device__ __forceinline__ uint4 LoadWords4(const void* from) {
  uint4 words;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(from));
  return words;
}
__device__ __forceinline__ uint2 LoadWords2(const void* from) {
  uint2 words;
  asm volatile("ld.relaxed.gpu.global.v2.u32 {%0,%1}, [%2];"
               : "=r"(words.x), "=r"(words.y)
               : "l"(from));
  return words;
}
__device__ __forceinline__ uint32_t LoadWord(const void* from) {
  uint32_t word;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(from));
  return word;
}
__device__ __forceinline__ void StoreWord(void* to, uint32_t word) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(word) : "memory");
}
__device__ __forceinline__ bool IsReady(const uint4& words) {
  return words.x != kNotReady && words.y != kNotReady && words.z != kNotReady &&
         words.w != kNotReady;
}
__device__ __forceinline__ bool IsReady(const uint2& words) {
  return words.x != kNotReady && words.y != kNotReady;
}

// Spins until `poll` returns true for all threads of the warp; called by the whole warp. After a
// timeout the launch fails (FinishLaunch).
template <typename Poll>
__device__ __forceinline__ void SpinUntilReady(const DecodeStepParams& p, const SharedState& shared,
                                               const Poll& poll) {
  constexpr uint32_t kPollsPerClockRead = 1 << 16;
  constexpr uint64_t kTimeoutNs = 30'000'000'000;
  for (uint32_t polls = 1; !__all_sync(0xffffffffu, poll()); ++polls) {
    if (polls % kPollsPerClockRead != 0) continue;
    if (NowNs() - shared.start_ns > kTimeoutNs) StoreWord(&p.state->timed_out, 1);
    if (__any_sync(0xffffffffu, LoadWord(&p.state->timed_out) != 0)) return;
  }
}

// Called by one thread at a block's end. The last block hands the sets to the next launch.
__device__ __forceinline__ void FinishLaunch(const DecodeStepParams& p, const SharedState& shared) {
  DecodeStepState& state = *p.state;
  if (LoadWord(&state.timed_out) != 0) __trap();
  if (atomicAdd(&state.num_ended, 1u) != gridDim.x - 1) return;
  state.num_ended = 0;
  state.num_rows[shared.set] = p.num_rows;
  state.num_rows[1 - shared.set] = 0;
  state.set = 1 - shared.set;
}

// Exchange memory of a layer; rows are `stride` values apart.
struct LayerExchange {
  bf16 *qkv, *attention, *middle, *gated, *residual;
  // With StepLayers::kGeneral, in a step with several rows: the normed inputs of q, k and v, and of
  // the MLP. `normed` of layer num_layers is the normed input of the LM head.
  bf16 *normed, *mlp_normed;
  float* scores;
  bf16 *attention_product, *mlp_product;  // with DecodeStepParams::has_post_norms
  int stride;                             // in bf16
};
__device__ __forceinline__ LayerExchange ExchangeOf(const DecodeStepParams& p, uint32_t set,
                                                    int layer) {
  const int columns = DecodeStepColumns(p), q_size = p.num_heads * p.head_dim;
  LayerExchange to;
  to.stride = DecodeStepRowColumns(p);
  to.normed = p.exchange + int64_t{set * kDecodeStepRows} * to.stride + layer * columns;
  to.mlp_normed = to.normed + NormedColumns(p);
  to.qkv = to.mlp_normed + NormedColumns(p);
  to.attention = to.qkv + q_size + 2 * p.num_kv_heads * p.head_dim;
  to.middle = to.attention + q_size;
  to.gated = to.middle + p.hidden_size;
  to.residual = to.gated + DecodeStepInner(p);
  to.scores = reinterpret_cast<float*>(to.residual + p.hidden_size);
  to.attention_product = to.residual + p.hidden_size + 2 * DecodeStepScores(p);
  to.mlp_product = to.attention_product + p.hidden_size;
  return to;
}

// Clears the exchange. The threads of all blocks whose number in their block is `first` or larger
// divide the words among them.
class ExchangeClearing {
 public:
  __device__ ExchangeClearing(const DecodeStepParams& p, const SharedState& shared, int first)
      : p_(p),
        shared_(shared),
        number_(static_cast<int>(blockIdx.x * (kThreads - first) + threadIdx.x) - first),
        count_(static_cast<int>(gridDim.x) * (kThreads - first)) {}

  // The attention of rows that are padding, since no unit computes it. This launch reads it.
  __device__ __forceinline__ void ClearPadding() const {
    for (int row = 0; row < p_.num_rows; ++row) {
      if (p_.cache_slots[row] >= 0) continue;
      for (int layer = 0; layer < p_.num_layers; ++layer) {
        const LayerExchange to = ExchangeOf(p_, shared_.set, layer);
        Fill(to.attention + row * to.stride, p_.num_heads * p_.head_dim, 0);
      }
    }
  }
  // Marks the words of the other set as not ready, for the next launch.
  __device__ __forceinline__ void ClearOtherSet() const {
    if (p_.num_layers == 0) return;
    const LayerExchange other = ExchangeOf(p_, 1 - shared_.set, 0);
    Fill(other.normed, int64_t{shared_.num_rows_to_clear} * other.stride, kNotReady);
  }

 private:
  __device__ __forceinline__ void Fill(bf16* to, int64_t num_values, uint32_t word) const {
    auto* chunks = reinterpret_cast<uint4*>(to);
    for (int64_t i = number_; i < num_values / 8; i += count_) chunks[i] = {word, word, word, word};
  }

  const DecodeStepParams& p_;
  const SharedState& shared_;
  const int number_, count_;  // of this thread, of all of them
};

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step
