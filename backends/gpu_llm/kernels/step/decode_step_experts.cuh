// Experts of a fused decode step. The router is one more product, whose scores all blocks read.
// Each block selects the experts of all rows for itself, because this is faster than one more
// exchange. The experts that any row has selected are read once: gate and up like a matrix with the
// outputs of all of them, down like a matrix with the depth of all of them, so that the weighted
// sum over a row's experts is part of the product. Device code only.
#pragma once

#include "backends/gpu_llm/kernels/rows/route.cuh"
#include "backends/gpu_llm/kernels/step/decode_step_gemm.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step {

// Selects the experts of a row and their weights. Called by a warp.
template <int kLaneExperts>
__device__ __forceinline__ void SelectRowExperts(const DecodeStepParams& p, SharedState& shared,
                                                 const float* scores, int row) {
  const int lane = threadIdx.x % 32;
  uint32_t words[kLaneExperts];
  SpinUntilReady(p, shared, [&] {
    bool is_ready = true;
#pragma unroll
    for (int i = 0; i < kLaneExperts; ++i) {
      words[i] = i * 32 + lane < p.num_experts ? LoadWord(scores + i * 32 + lane) : 0u;
    }
#pragma unroll
    for (const uint32_t word : words) is_ready &= word != kNotReady;
    return is_ready;
  });
  uint32_t orders[kLaneExperts];
#pragma unroll
  for (int i = 0; i < kLaneExperts; ++i)
    orders[i] = i * 32 + lane < p.num_experts ? route::OrderOf(__uint_as_float(words[i])) : 0;
  const route::SelectedExpert own =
      route::SelectByOrder(orders, p.experts_per_token, p.normalizes_experts);
  if (lane >= p.experts_per_token) return;
  SelectedExperts& selected = shared.experts;
  selected.of_rows[row][lane] = static_cast<int16_t>(own.expert);
  selected.weights[row][lane] = own.weight;
  atomicOr(&selected.mask[own.expert / 32], 1u << own.expert % 32);
}

// Fills SharedState::experts and lets the producer continue. Called by all compute warps.
__device__ __forceinline__ void SelectExperts(const DecodeStepParams& p,
                                              const LayerExchange& exchange, Consumer& consumer) {
  static_assert(kDecodeStepRows == kWarps);
  constexpr int kFewLaneExperts = 4, kMostLaneExperts = kDecodeStepMaxExperts / 32;
  const int thread = threadIdx.x, row = thread / 32, lane = thread % 32;
  SharedState& shared = consumer.shared();
  SelectedExperts& selected = shared.experts;
  consumer.WaitForSelection();
  if (thread < kDecodeStepMaxExperts / 32) selected.mask[thread] = 0;
  if (thread < SelectedExperts::kMaxCount)
    *reinterpret_cast<uint2*>(selected.ranks[thread]) = {0xffffffffu, 0xffffffffu};
  if (lane < kDecodeStepRowExperts) selected.of_rows[row][lane] = -1;
  SyncConsumers();
  if (row < p.num_rows && p.cache_slots[row] >= 0) {
    const float* scores = exchange.scores + row * (exchange.stride / 2);
    p.num_experts <= 32 * kFewLaneExperts
        ? SelectRowExperts<kFewLaneExperts>(p, shared, scores, row)
        : SelectRowExperts<kMostLaneExperts>(p, shared, scores, row);
  }
  SyncConsumers();
  if (thread < SelectedExperts::kMaxCount) {
    const int of_row = thread / kDecodeStepRowExperts, rank = thread % kDecodeStepRowExperts;
    const int expert = selected.of_rows[of_row][rank];
    if (expert >= 0) {
      int at = __popc(selected.mask[expert / 32] & ((1u << expert % 32) - 1));
      for (int i = 0; i < expert / 32; ++i) at += __popc(selected.mask[i]);
      selected.experts[at] = static_cast<int16_t>(expert);
      selected.ranks[at][of_row] = static_cast<int8_t>(rank);
    }
  } else if (thread == SelectedExperts::kMaxCount) {
    int count = 0;
    for (const uint32_t word : selected.mask) count += __popc(word);
    selected.count = count;
  }
  SyncConsumers();
  if (thread == 0) BarrierArrive(&shared.selected);
}

template <WeightFormat kFormat, int kResident, bool kOneRow>
__device__ void RunExperts(const DecodeStepParams& p, const DecodeStepLayer& layer,
                           const LayerExchange& exchange, Consumer& consumer) {
  SharedState& shared = consumer.shared();
  StepGemm router = {};
  router.in = exchange.middle, router.norm = layer.mlp_norm;
  router.in_stride = exchange.stride, router.depth = p.hidden_size;
  router.out = exchange.scores, router.out_stride = exchange.stride / 2;
  router.num_outputs = p.num_experts, router.output = GemmEpilogue::kFloat;
  if (static_cast<int>(blockIdx.x) * kTileOutputs < p.num_experts) {
    MultiplyResident<WeightFormat::kBf16, kResident, StepLayers::kExperts, kOneRow>(
        p, KeepGemm<kOneRow>(router, shared), consumer);
    SyncConsumers();  // all threads have read the others' sums
  }
  StepGemm gate_up = router;
  gate_up.out = exchange.gated, gate_up.out_stride = exchange.stride;
  gate_up.output = GemmEpilogue::kSiluGate;
  gate_up.experts = &shared.experts;
  gate_up.tiles_each = 2 * p.expert_inner_size / kTileOutputs;
  gate_up.row_scales = layer.row_scales[kStepGateUp];
  gate_up.block_scales = layer.block_scales[kStepGateUp];
  gate_up.scale_stride = layer.gate_up_stride / 4;
  {
    ResidentInput<kFormat, kResident, kOneRow> input;
    LoadResident(p, gate_up, consumer, input);
    SelectExperts(p, exchange, consumer);
    gate_up.num_outputs = shared.experts.count * gate_up.tiles_each * kTileOutputs;
    MultiplyLoaded<StepLayers::kExperts>(p, KeepGemm<kOneRow>(gate_up, shared), consumer, input);
  }
  SyncConsumers();
  StepGemm down = {};
  down.in = exchange.gated, down.addend = exchange.middle, down.out = exchange.residual;
  down.in_stride = down.addend_stride = down.out_stride = exchange.stride;
  down.depth = p.expert_inner_size, down.num_outputs = p.hidden_size;
  down.output = GemmEpilogue::kAdd;
  down.part_scales = layer.row_scales[kStepDown];
  down.block_scales = layer.block_scales[kStepDown];
  down.scale_stride = layer.down_stride / 4;
  MultiplyDeep<kFormat, StepLayers::kExperts, kOneRow>(p, KeepGemm<kOneRow>(down, shared),
                                                       consumer);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step
