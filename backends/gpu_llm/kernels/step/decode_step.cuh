// The fused decode step for one format of weights and one of the cache; each pair is compiled in a
// file of its own, because code for several formats would slow down all of them. Grid: one
// block of threads for each multiprocessor, all resident at once (cooperative launch). Blocks
// exchange activations in global memory, where each word is marked as not ready until it is
// written. Compute warps poll the words they need. The warps that copy weights never wait for
// them.
//
// One sequence, 8B model, bytes of weights and cache: 88 (bf16), 82 (fp8), 76 (int4) % of an H200's
// 4.65 TB/s.
#pragma once

#include "backends/gpu_llm/kernels/step/decode_step_attention.cuh"
#include "backends/gpu_llm/kernels/step/decode_step_experts.cuh"
#include "backends/gpu_llm/kernels/step/decode_step_gemm.cuh"
#include "backends/gpu_llm/kernels/step/step_kernels.h"

namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step {

inline int SharedBytes(int num_slots) {
  return kStateBytes + num_slots * kSlotBytes;
}

// Copies a layer's fields from global to shared memory, a word for each of the first threads. The
// constructor loads the words, so that Store() does not wait for them.
class LayerCopy {
 public:
  static constexpr int kThreads = sizeof(DecodeStepLayer) / sizeof(uint64_t);

  __device__ __forceinline__ LayerCopy(const DecodeStepParams& p, int layer)
      : exists_(threadIdx.x < kThreads && layer < p.num_layers) {
    if (exists_) word_ = __ldg(reinterpret_cast<const uint64_t*>(p.layers + layer) + threadIdx.x);
  }
  __device__ __forceinline__ void Store(DecodeStepLayer& to) const {
    if (exists_) reinterpret_cast<uint64_t*>(&to)[threadIdx.x] = word_;
  }

 private:
  bool exists_;
  uint64_t word_ = 0;
};

__device__ __forceinline__ StepGemm LayerGemm(const DecodeStepParams& p, const SharedState& shared,
                                              int layer_index, int kind) {
  const DecodeStepLayer& layer = shared.layers[layer_index % 2];
  const uint32_t set = shared.set;
  const LayerExchange here = ExchangeOf(p, set, layer_index);
  StepGemm gemm = {};
  gemm.row_scales = layer.row_scales[kind];
  gemm.block_scales = layer.block_scales[kind];
  gemm.in_stride = gemm.addend_stride = gemm.out_stride = here.stride;
  const auto take_input = [&](const bf16*& from, int& stride, bool& is_complete) {
    from = layer_index > 0 ? ExchangeOf(p, set, layer_index - 1).residual : p.residual;
    if (layer_index == 0) stride = p.hidden_size, is_complete = true;
  };
  switch (kind) {
    case kStepQkv:
      gemm.depth = QkvDepth(p, layer_index);
      if (layer_index == 0 && p.input != nullptr) {
        gemm.in = p.input, gemm.in_stride = gemm.depth, gemm.in_is_complete = true;
      } else {
        take_input(gemm.in, gemm.in_stride, gemm.in_is_complete);
        gemm.norm = layer.input_norm;
      }
      gemm.out = here.qkv;
      gemm.num_outputs = (p.num_heads + 2 * p.num_kv_heads) * p.head_dim;
      gemm.output = GemmEpilogue::kBf16;
      break;
    case kStepOut:
      gemm.in = here.attention, gemm.depth = p.num_heads * p.head_dim;
      take_input(gemm.addend, gemm.addend_stride, gemm.addend_is_complete);
      gemm.out = here.middle, gemm.num_outputs = p.hidden_size;
      gemm.output = GemmEpilogue::kAdd;
      break;
    case kStepGateUp:
      gemm.in = here.middle, gemm.depth = p.hidden_size, gemm.norm = layer.mlp_norm;
      gemm.out = here.gated, gemm.num_outputs = 2 * p.inner_size;
      gemm.output = GemmEpilogue::kSiluGate;
      break;
    default:
      gemm.in = here.gated, gemm.depth = p.inner_size;
      gemm.addend = here.middle;
      gemm.out = here.residual, gemm.num_outputs = p.hidden_size;
      gemm.output = GemmEpilogue::kAdd;
  }
  return gemm;
}

// Lets a product begin with the norm of what the MLP of a layer has computed.
__device__ __forceinline__ void TakeUpdateOfMlp(const DecodeStepParams& p,
                                                const SharedState& shared, int layer_index,
                                                GeneralStepGemm& gemm) {
  const LayerExchange from = ExchangeOf(p, shared.set, layer_index);
  gemm.in = from.middle, gemm.update = from.mlp_product, gemm.updated = from.residual;
  gemm.update_norm = shared.layers[layer_index % 2].post_mlp_norm;
}

// LayerGemm() with what StepLayers::kGeneral adds.
__device__ __forceinline__ GeneralStepGemm GeneralLayerGemm(const DecodeStepParams& p,
                                                            const SharedState& shared,
                                                            int layer_index, int kind) {
  const DecodeStepLayer& layer = shared.layers[layer_index % 2];
  const LayerExchange here = ExchangeOf(p, shared.set, layer_index);
  GeneralStepGemm gemm = {LayerGemm(p, shared, layer_index, kind)};
  gemm.exchange_stride = here.stride;
  switch (kind) {
    case kStepQkv:
      gemm.norm_bias = layer.input_norm_bias, gemm.normed = here.normed;
      if (p.has_post_norms && layer_index > 0) TakeUpdateOfMlp(p, shared, layer_index - 1, gemm);
      break;
    case kStepOut:
      gemm.bias = layer.out_bias;
      if (p.has_post_norms) gemm.addend = nullptr, gemm.out = here.attention_product;
      break;
    case kStepGateUp:
      gemm.norm_bias = layer.mlp_norm_bias, gemm.bias = layer.gate_up_bias;
      gemm.normed = here.mlp_normed;
      if (!p.has_gate) gemm.num_outputs = p.inner_size;
      gemm.output = p.has_gate ? GemmEpilogue::kGate : GemmEpilogue::kActivate;
      if (!p.has_post_norms && !p.parallel_residual) break;
      gemm.in = layer_index > 0 ? ExchangeOf(p, shared.set, layer_index - 1).residual : p.residual;
      if (layer_index == 0) gemm.in_stride = p.hidden_size, gemm.in_is_complete = true;
      if (!p.has_post_norms) break;
      gemm.update = here.attention_product, gemm.update_norm = layer.post_attention_norm;
      gemm.updated = here.middle;
      break;
    default:
      gemm.bias = layer.down_bias;
      if (p.has_post_norms) gemm.addend = nullptr, gemm.out = here.mlp_product;
  }
  return gemm;
}

template <StepLayers kLayers>
__device__ __forceinline__ StepGemmOf<kLayers> LayerGemmOf(const DecodeStepParams& p,
                                                           const SharedState& shared,
                                                           int layer_index, int kind) {
  if constexpr (kLayers == StepLayers::kGeneral) {
    return GeneralLayerGemm(p, shared, layer_index, kind);
  } else {
    return LayerGemm(p, shared, layer_index, kind);
  }
}

template <StepLayers kLayers>
__device__ __forceinline__ StepGemmOf<kLayers> HeadGemm(const DecodeStepParams& p,
                                                        const SharedState& shared) {
  StepGemmOf<kLayers> head = {};
  head.in = p.num_layers > 0 ? ExchangeOf(p, shared.set, p.num_layers - 1).residual : p.residual;
  head.in_stride = p.num_layers > 0 ? ExchangeOf(p, shared.set, 0).stride : p.hidden_size;
  head.in_is_complete = p.num_layers == 0;
  head.rows = p.logit_rows, head.norm = p.final_norm;
  head.out = p.logits;
  head.num_outputs = p.head_outputs, head.depth = p.hidden_size;
  head.out_stride = p.head_outputs;
  head.output = GemmEpilogue::kFloat;
  if constexpr (kLayers == StepLayers::kGeneral) {
    const LayerExchange behind = ExchangeOf(p, shared.set, p.num_layers);
    head.norm_bias = p.final_norm_bias;
    head.normed = behind.normed, head.exchange_stride = behind.stride;
    if (p.has_post_norms && p.num_layers > 0) TakeUpdateOfMlp(p, shared, p.num_layers - 1, head);
  }
  return head;
}

template <WeightFormat kFormat, CacheFormat kCache, int kHeadDim, int kResident, StepLayers kLayers,
          bool kOneRow>
__device__ __forceinline__ void Compute(const DecodeStepParams& p, Consumer& consumer) {
  SharedState& shared = consumer.shared();
  const uint32_t set = shared.set;
  for (int i = 0; i < p.num_layers * kNumStepGemms; ++i) {
    const int layer = i / kNumStepGemms, kind = i % kNumStepGemms;
    if constexpr (kLayers == StepLayers::kExperts) {
      if (kind == kStepGateUp && shared.layers[layer % 2].router != nullptr) {
        RunExperts<kFormat, kResident, kOneRow>(p, shared.layers[layer % 2],
                                                ExchangeOf(p, set, layer), consumer);
        SyncConsumers();
        ++i;  // down is done
        continue;
      }
    }
    if (kind == kStepOut) RunAttention<kHeadDim, kCache, kLayers, kOneRow>(p, layer, consumer);
    const StepGemmOf<kLayers> in_registers = LayerGemmOf<kLayers>(p, shared, layer, kind);
    const StepGemmOf<kLayers>& gemm = KeepGemm<kOneRow>(in_registers, shared);
    const LayerCopy next_layer(p, kind == kStepQkv ? layer + 1 : p.num_layers);
    if (gemm.depth <= kResident) {
      MultiplyResident<kFormat, kResident, kLayers, kOneRow>(p, gemm, consumer);
    } else {
      constexpr bool kGeneral = kLayers == StepLayers::kGeneral;
      MultiplyDeep<kFormat, kGeneral ? kLayers : StepLayers::kPlain, kOneRow>(p, gemm, consumer);
    }
    next_layer.Store(shared.layers[(layer + 1) % 2]);
    SyncConsumers();  // all threads have read the others' sums
  }
  const StepGemmOf<kLayers> head = HeadGemm<kLayers>(p, shared);
  MultiplyResident<WeightFormat::kBf16, kResident, kLayers, kOneRow>(p, head, consumer);
  SyncConsumers();
  if (threadIdx.x == 0) FinishLaunch(p, consumer.shared());
}

// kResident: columns of an input that fit in registers; bounds hidden_size. kOneRow: the step has
// one row.
template <WeightFormat kFormat, CacheFormat kCache, int kHeadDim, int kResident, StepLayers kLayers,
          bool kOneRow>
__global__ void __launch_bounds__(kThreads, 1) DecodeStepKernel(const DecodeStepParams p) {
  extern __shared__ __align__(128) char memory[];
  SharedState& shared = *reinterpret_cast<SharedState*>(memory);
  char* const ring = memory + kStateBytes;
  if (threadIdx.x == 0) {
    for (int slot = 0; slot < NumSlots(p); ++slot) {
      BarrierInit(shared.full + slot, kFullArrivals);
      BarrierInit(shared.empty + slot, kWarps);
    }
    BarrierInit(&shared.selected, 1);
    BarrierInit(&shared.copied, kCopyWarps);
    FenceSlotBarriers();
    shared.set = p.state->set;
    shared.num_rows_to_clear = p.state->num_rows[1 - shared.set];
    shared.start_ns = NowNs();
  }
  if (threadIdx.x < kPreloadedUnits) PreloadUnit(p, shared, threadIdx.x);
  LayerCopy(p, 0).Store(shared.layers[0]);
  __syncthreads();
  if (threadIdx.x >= 32 * kWarps) {
    GiveRegisters();
    constexpr int kFirstIdle = 32 * (kWarps + kCopyWarps);
    if constexpr (kFirstIdle == kThreads) {
      const ExchangeClearing clearing(p, shared, 32 * kWarps);
      clearing.ClearPadding();
      Producer<kFormat, kCache, kHeadDim, kLayers>(p, ring, shared).Run();
      clearing.ClearOtherSet();
    } else if (threadIdx.x < kFirstIdle) {
      Producer<kFormat, kCache, kHeadDim, kLayers>(p, ring, shared).Run();
    } else {
      const ExchangeClearing clearing(p, shared, kFirstIdle);
      clearing.ClearPadding();
      clearing.ClearOtherSet();
    }
  } else {
    TakeRegisters();
    Consumer consumer(p, ring, shared);
    Compute<kFormat, kCache, kHeadDim, kResident, kLayers, kOneRow>(p, consumer);
  }
}

// Calls `use` with the kernel for these sizes. Returns false if there is none.
template <WeightFormat kFormat, CacheFormat kCache, bool kOneRow, size_t kIndex = 0, typename Use>
bool DispatchKernel(const DecodeStepSizes& sizes, const Use& use) {
  if constexpr (kIndex < std::size(kStepKernels)) {
    constexpr StepKernel kKernel = kStepKernels[kIndex];
    if constexpr (IsCompiled(kKernel, kFormat, kCache)) {
      if (FindStepKernel(sizes) == static_cast<int>(kIndex)) {
        return use(DecodeStepKernel<kFormat, kCache, kKernel.head_dim, kKernel.max_hidden_size,
                                    kKernel.layers, kOneRow>);
      }
    }
    return DispatchKernel<kFormat, kCache, kOneRow, kIndex + 1>(sizes, use);
  }
  return false;
}

template <WeightFormat kFormat, CacheFormat kCache>
bool StepKernels<kFormat, kCache>::Fit(const DecodeStepSizes& sizes) {
  const int shared_bytes = SharedBytes(ChooseNumSlots());
  const auto fits = [shared_bytes](auto kernel) {
    int blocks = 0;
    const bool fits = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           shared_bytes) == cudaSuccess &&
                      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, kThreads,
                                                                    shared_bytes) == cudaSuccess &&
                      blocks >= 1;
    if (!fits) (void)cudaGetLastError();
    return fits;
  };
  return DispatchKernel<kFormat, kCache, false>(sizes, fits) &&
         DispatchKernel<kFormat, kCache, true>(sizes, fits);
}

template <WeightFormat kFormat, CacheFormat kCache>
void StepKernels<kFormat, kCache>::Launch(const DecodeStepParams& params, int num_processors,
                                          cudaStream_t stream) {
  DecodeStepParams p = params;
  p.num_slots = ChooseNumSlots();
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = num_processors;
  config.blockDim = kThreads;
  config.dynamicSmemBytes = SharedBytes(p.num_slots);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  const auto launch = [&](auto kernel) {
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                SharedBytes(p.num_slots)) == cudaSuccess &&
           cudaLaunchKernelEx(&config, kernel, p) == cudaSuccess;
  };
  p.num_rows == 1 ? DispatchKernel<kFormat, kCache, true>(SizesOf(p), launch)
                  : DispatchKernel<kFormat, kCache, false>(SizesOf(p), launch);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step
