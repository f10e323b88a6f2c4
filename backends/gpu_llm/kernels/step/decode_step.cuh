// The decode step for one format of weights; each is compiled in a file of its own. One block of
// threads a processor, all there at once. What a product leaves for others says itself that it is
// there, word by word: the warps that compute look at what they need until it is; the warp that
// copies weights never waits for them.
//
// One sequence, steps of an 8B model, weights and cache: 87 (bf16), 73 (fp8), 53 (int4)
// % of an H200's 4.65 TB/s.
#pragma once

#include "backends/gpu_llm/kernels/step/decode_step_attention.cuh"
#include "backends/gpu_llm/kernels/step/decode_step_product.cuh"

namespace nereid::gpu::decode_step {

constexpr int kSharedBytes = kRingBytes + static_cast<int>(sizeof(Shared)) + 128;

__device__ __forceinline__ Product LayerProduct(const DecodeStepParams& p, uint32_t set,
                                                int layer_index, int kind) {
  const DecodeStepLayer& layer = p.layers[layer_index];
  const LayerExchange here = ExchangeOf(p, set, layer_index);
  Product product = {};
  product.row_scales = layer.row_scales[kind];
  product.in_stride = product.addend_stride = product.out_stride = here.stride;
  const auto take_input = [&](const bf16*& from, int& stride, bool& is_old) {
    from = layer_index > 0 ? ExchangeOf(p, set, layer_index - 1).residual : p.residual;
    if (layer_index == 0) stride = p.hidden_size, is_old = true;
  };
  switch (kind) {
    case kStepQkv:
      take_input(product.in, product.in_stride, product.in_is_old);
      product.depth = p.hidden_size, product.norm = layer.input_norm;
      product.out = here.qkv;
      product.num_outputs = (p.num_heads + 2 * p.num_kv_heads) * p.head_dim;
      product.output = StreamOutput::kBf16;
      break;
    case kStepOut:
      product.in = here.attention, product.depth = p.num_heads * p.head_dim;
      take_input(product.addend, product.addend_stride, product.addend_is_old);
      product.out = here.middle, product.num_outputs = p.hidden_size;
      product.output = StreamOutput::kAdd;
      break;
    case kStepGateUp:
      product.in = here.middle, product.depth = p.hidden_size, product.norm = layer.mlp_norm;
      product.out = here.gated, product.num_outputs = 2 * p.inner_size;
      product.output = StreamOutput::kSiluGate;
      break;
    default:
      product.in = here.gated, product.depth = p.inner_size;
      product.addend = here.middle;
      product.out = here.residual, product.num_outputs = p.hidden_size;
      product.output = StreamOutput::kAdd;
  }
  return product;
}

template <WeightFormat kFormat, int kHeadDim, int kPanels>
__device__ __forceinline__ void Compute(const DecodeStepParams& p, Consumer& consumer) {
  const uint32_t set = consumer.shared().set;
  for (int i = 0; i < p.num_layers * kStepProducts; ++i) {
    const Product product = LayerProduct(p, set, i / kStepProducts, i % kStepProducts);
    if (i % kStepProducts == kStepOut) Attend<kHeadDim>(p, i / kStepProducts, consumer);
    if (product.depth <= kPanels * kPanelColumns) {
      MultiplyResident<kFormat, kPanels>(p, product, consumer);
    } else {
      MultiplyDeep<kFormat>(p, product, consumer);
    }
    SyncConsumers();  // all have read the others' sums
  }
  Product head = {};
  head.in = p.num_layers > 0 ? ExchangeOf(p, set, p.num_layers - 1).residual : p.residual;
  head.in_stride = p.num_layers > 0 ? ExchangeOf(p, set, 0).stride : p.hidden_size;
  head.in_is_old = p.num_layers == 0;
  head.rows = p.logit_rows, head.norm = p.final_norm;
  head.out = p.logits;
  head.num_outputs = p.head_outputs, head.depth = p.hidden_size;
  head.out_stride = p.head_outputs;
  head.output = StreamOutput::kFloat;
  MultiplyResident<WeightFormat::kBf16, kPanels>(p, head, consumer);
  SyncConsumers();
  if (threadIdx.x == 0) End(p, consumer.shared());
}

// kPanels: what registers hold of an input; hidden_size is at most so many.
template <WeightFormat kFormat, int kHeadDim, int kPanels>
__global__ void __launch_bounds__(kThreads, 1) DecodeStepKernel(const DecodeStepParams p) {
  extern __shared__ __align__(128) char ring[];
  Shared& shared = *reinterpret_cast<Shared*>(ring + kRingBytes);
  if (threadIdx.x == 0) {
    for (int slot = 0; slot < kSlots; ++slot) {
      BarrierInit(shared.full + slot, 1);
      BarrierInit(shared.empty + slot, kWarps);
    }
    BarrierInitFence();
    shared.set = p.state->set;
    shared.num_rows_to_clear = p.state->num_rows[1 - shared.set];
    shared.start_ns = NowNs();
  }
  if (threadIdx.x < kKnownUnits) RememberUnit(p, shared, threadIdx.x);
  __syncthreads();
  if (threadIdx.x >= 32 * kWarps) {
    GiveRegisters<kProducerRegisters>();
    if (threadIdx.x < 32 * (kWarps + 1)) {
      Producer<kFormat, kHeadDim>(p, ring, shared).Run();
    } else {
      constexpr int kIdle = kThreads - 32 * (kWarps + 1);
      ClearExchange(p, shared,
                    static_cast<int>(blockIdx.x * kIdle + threadIdx.x) - 32 * (kWarps + 1),
                    static_cast<int>(gridDim.x) * kIdle);
    }
  } else {
    TakeRegisters<kConsumerRegisters>();
    Consumer consumer(ring, shared);
    Compute<kFormat, kHeadDim, kPanels>(p, consumer);
  }
}

// Calls `use` with the kernel for these sizes; false: there is none.
template <WeightFormat kFormat, typename Use>
bool WithKernel(const DecodeStepParams& p, const Use& use) {
  if (p.hidden_size <= 4 * kPanelColumns) {
    switch (p.head_dim) {
      case 16:
        return use(DecodeStepKernel<kFormat, 16, 4>);
      case 64:
        return use(DecodeStepKernel<kFormat, 64, 4>);
      case 128:
        return use(DecodeStepKernel<kFormat, 128, 4>);
    }
  } else if (p.hidden_size <= 8 * kPanelColumns && p.head_dim == 128) {
    return use(DecodeStepKernel<kFormat, 128, 8>);
  }
  return false;
}

template <WeightFormat kFormat>
bool Fits(const DecodeStepParams& p) {
  return WithKernel<kFormat>(p, [](auto kernel) {
    int blocks = 0;
    const bool fits = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           kSharedBytes) == cudaSuccess &&
                      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, kThreads,
                                                                    kSharedBytes) == cudaSuccess &&
                      blocks >= 1;
    if (!fits) (void)cudaGetLastError();
    return fits;
  });
}

template <WeightFormat kFormat>
void Start(const DecodeStepParams& p, int num_processors, cudaStream_t stream) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = num_processors;
  config.blockDim = kThreads;
  config.dynamicSmemBytes = kSharedBytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  WithKernel<kFormat>(p, [&](auto kernel) {
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                kSharedBytes) == cudaSuccess &&
           cudaLaunchKernelEx(&config, kernel, p) == cudaSuccess;
  });
}

}  // namespace nereid::gpu::decode_step

namespace nereid::gpu {

bool DecodeStepFitsBf16(const DecodeStepParams& params);
void DecodeStepBf16(const DecodeStepParams& params, int num_processors, cudaStream_t stream);
bool DecodeStepFitsFp8(const DecodeStepParams& params);
void DecodeStepFp8(const DecodeStepParams& params, int num_processors, cudaStream_t stream);
bool DecodeStepFitsInt4(const DecodeStepParams& params);
void DecodeStepInt4(const DecodeStepParams& params, int num_processors, cudaStream_t stream);

}  // namespace nereid::gpu
