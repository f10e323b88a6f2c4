// The shared memory of a block of threads in a fused decode step, apart from the ring of slots:
// barriers, partial sums, the experts that the rows have selected, and descriptions of the current
// layer, matrix product and units of attention. Only device code includes this file.
#pragma once

#include <type_traits>

#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/gemm/gemm.h"
#include "backends/gpu_llm/kernels/step/decode_step.h"
#include "backends/gpu_llm/kernels/step/step_policy.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step {

constexpr int kWarps = 8;  // of a block, that compute
// Four more warps, because the native form assigns registers to groups of four. kCopyWarps of them
// copy to the ring, and the others clear the exchange. If all four copy, they also clear it.
constexpr int kThreads = 32 * (kWarps + 4);
constexpr int kTileOutputs = kDecodeStepTileOutputs;
constexpr int kPreloadedUnits = 4;
// SharedState::row_sums has so many buffers, each with a named barrier, of which the first has the
// number kFirstRowBarrier. The ring has room for kMaxSlots / 2 pairs of tiles, so that no warp is
// more pairs ahead of another one.
constexpr int kRowBuffers = kMaxSlots / 2 + 1, kFirstRowBarrier = 4;

// What a slot of the ring holds of a weight matrix: 16 outputs (a tile) and kColumns columns of the
// depth. These columns are divided into K tiles, and each compute warp multiplies an eighth of the
// columns of a K tile. In bf16 and fp8 the rows begin kPitch bytes apart, so that adjacent rows lie
// in different banks.
template <WeightFormat kFormat>
struct Chunk {
  static constexpr int kElementBytes = kFormat == WeightFormat::kBf16 ? 2 : 1;
  static constexpr int kRowBytes = kSlotRowBytes, kPitch = kRowBytes + 64;
  static constexpr int kColumns = kRowBytes / kElementBytes;
  static constexpr int kKTileColumns = kColumns < 1024 ? kColumns : 1024;
  static constexpr int kKTiles = kColumns / kKTileColumns;
  static_assert(kTileOutputs * kPitch <= kSlotBytes);
};
template <>
struct Chunk<WeightFormat::kInt4> {  // blocks in their memory layout, eight for each K tile
  static constexpr int kKTileColumns = 1024;
  static constexpr int kKTiles = kSlotInt4KTiles, kColumns = kKTiles * kKTileColumns;
  static constexpr int kBlockBytes = Int4BlockBytes(1);
  static_assert(kColumns / kInt4BlockColumns * kBlockBytes <= kSlotBytes);
};
// Adjacent slots of a KV block. The first of them has a number that is a multiple of it.
template <int kHeadDim>
constexpr int kBlockSlots = static_cast<int>((HeadBytes(kHeadDim) + kSlotBytes - 1) / kSlotBytes);
// The most slots that are being filled with blocks of a quantized cache at the same time.
constexpr int kMaxContextInFlight = 2 * kMaxInFlight < kMaxSlots ? 2 * kMaxInFlight : kMaxSlots;

// The experts of a layer that the step's rows have selected, in the order in which they are read.
struct SelectedExperts {
  static constexpr int kMaxCount = kDecodeStepRows * kDecodeStepRowExperts;
  int count;
  uint32_t mask[kDecodeStepMaxExperts / 32];  // bit: the expert is selected
  int16_t experts[kMaxCount];
  alignas(8)
      int8_t ranks[kMaxCount][kDecodeStepRows];  // of the expert among those of the row; -1: none
  int16_t of_rows[kDecodeStepRows][kDecodeStepRowExperts];  // -1: padding
  float weights[kDecodeStepRows][kDecodeStepRowExperts];
};

// A matrix product of the step.
struct StepGemm {
  const bf16* in;       // [.., depth], rows `in_stride` apart
  const int32_t* rows;  // rows of `in`; null: the first
  const bf16* norm;     // [depth]; null: none
  const bf16* addend;   // [.., num_outputs], rows `addend_stride` apart; null: none
  // fp8, as in WeightMatrix: of outputs, and of blocks. Where the depth is that of several experts,
  // `part_scales` are those of outputs, and differ from expert to expert.
  const float *row_scales, *part_scales;
  const uint32_t* block_scales;
  int64_t scale_stride;  // words from one expert's scales to the next; 0: there are no experts
  void* out;             // rows `out_stride` apart
  int in_stride, addend_stride, out_stride;
  bool in_is_complete, addend_is_complete;  // written before this launch, no polling needed
  int num_outputs, depth;
  GemmEpilogue output;
  // Set for gate and up of the selected experts, else null. The product then has the outputs of all
  // selected experts, one expert after the other; `num_outputs` is their sum. The results of one
  // row's experts are stored side by side in `out`, in the order of SelectedExperts::ranks.
  const SelectedExperts* experts;
  int tiles_each;  // tiles of one expert
};

// The same of layers of StepLayers::kGeneral. Its input is normed before it is multiplied, so that
// the norm takes no part in the end of the product.
struct GeneralStepGemm : StepGemm {
  const bf16* norm_bias;  // [depth]; null: none
  const bf16* bias;       // [num_outputs]; null: none
  // A product whose norm is added to `in` before `norm` is applied, and where the sum is stored for
  // the products that follow. Null: `in` is complete.
  const bf16 *update, *update_norm;
  bf16* updated;
  // Where a step with several rows has what the product multiplies. Null: in `in`, without a norm.
  bf16* normed;
  int exchange_stride;  // from one row of `update`, `updated` and `normed` to the next
};
template <StepLayers kLayers>
using StepGemmOf = std::conditional_t<kLayers == StepLayers::kGeneral, GeneralStepGemm, StepGemm>;

// A unit of attention: one item of a sequence's context, and query heads of one key/value head.
struct AttentionUnit {
  DecodeItem item;
  int index;  // of the item
  int kv_head, first_head;
  bool stores_tokens;         // in the cache; one of the units of a key/value head does so
  int position, slot;         // of the item's first token
  int first_visible;          // of the tokens that its first token sees
  int first_tile, num_tiles;  // num_tiles 0: no work
};

struct SharedState {
  uint64_t full[kMaxSlots], empty[kMaxSlots];
  uint64_t selected;  // a barrier whose phases end when the experts of a layer are selected
  uint64_t copied;    // one whose phases end when the copying warps have read that selection
  SelectedExperts experts;
  alignas(16) float partials[2][kWarps][2][32][4];  // partial sums: [turn][warp][tile][lane]
  float row_sums[kRowBuffers][kWarps][32];          // the same of one row: [turn][warp][output]
  float squares[kDecodeStepRows][kWarps];
  // The layer that is computed and the next one, layer i in layers[i % 2]. In global memory the
  // compute warps would wait for each field.
  DecodeStepLayer layers[2];
  GeneralStepGemm gemm;  // the current product, in a step with several rows
  bool is_last;
  uint32_t set;  // of DecodeStepParams::exchange
  uint32_t num_rows_to_clear;
  uint64_t start_ns;
  AttentionUnit units[kPreloadedUnits];  // this block's first ones, without a layer's window
};

// What lies before the ring.
constexpr int kStateBytes = (static_cast<int>(sizeof(SharedState)) + 127) / 128 * 128;

// Units are assigned to blocks from the last block on, because the first blocks have more weight
// tiles.
__device__ __forceinline__ int UnitNumber(int i) {
  return static_cast<int>(gridDim.x - 1 - blockIdx.x + i * gridDim.x);
}
__device__ __forceinline__ bool HasUnit(const DecodeStepParams& p, int i) {
  return UnitNumber(i) < p.num_items * p.item_units;
}
// Reads this block's i-th unit from global memory, without the limits of a layer's window.
__device__ __forceinline__ AttentionUnit ReadUnit(const DecodeStepParams& p, int i) {
  const int group = p.num_heads / p.num_kv_heads;
  AttentionUnit unit = {};
  unit.index = UnitNumber(i) / p.item_units;
  unit.first_head = UnitNumber(i) % p.item_units * p.unit_heads;
  unit.kv_head = unit.first_head / group;
  unit.stores_tokens = unit.first_head % group == 0;
  unit.item = p.items[unit.index];
  unit.position = p.positions[unit.item.row];
  unit.slot = p.cache_slots[unit.item.row];
  return unit;
}
__device__ __forceinline__ void PreloadUnit(const DecodeStepParams& p, SharedState& shared, int i) {
  if (HasUnit(p, i)) shared.units[i] = ReadUnit(p, i);
}
// Returns this block's i-th unit, which must exist (HasUnit()), limited to the tiles that a layer
// with this window reads. window 0: none.
__device__ __forceinline__ AttentionUnit UnitOf(const DecodeStepParams& p,
                                                const SharedState& shared, int i, int window) {
  AttentionUnit unit = i < kPreloadedUnits ? shared.units[i] : ReadUnit(p, i);
  const DecodeItem& item = unit.item;
  unit.first_visible = window > 0 ? max(0, item.length - item.num_tokens + 1 - window) : 0;
  // Where all tokens of the item lie before the window, the unit still has the item's last tile,
  // and none of its tokens is visible.
  unit.first_tile =
      max(item.first_tile, min(unit.first_visible / kBlockTokens, item.last_tile - 1));
  unit.num_tiles = item.first_tile == item.last_tile ? 0 : item.last_tile - unit.first_tile;
  return unit;
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step
