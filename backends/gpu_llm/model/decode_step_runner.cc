// Checks whether a model is supported, and collects the pointers of its layers.
#include "backends/gpu_llm/model/decode_step_runner.h"

#include <algorithm>
#include <array>

#include "backends/gpu_llm/kernels/forms.h"
#include "backends/gpu_llm/kernels/rows/hidden_states.h"

namespace nereid::gpu {
namespace {

// The matrices of a layer in the order of DecodeStepGemm; with experts, those of expert 0.
std::array<const GpuMatrix*, kNumStepGemms> MatricesOf(const GpuLayer& layer) {
  const bool has_experts = layer.router != nullptr;
  return {&layer.qkv, &layer.attention_out,
          has_experts ? &layer.expert_gate_up.first : &layer.gate_up,
          has_experts ? &layer.expert_down.first : &layer.down};
}

// FusedDecoder::has_plain_weights.
bool HasPlainWeights(const GpuWeights& weights) {
  const GpuMatrix& first = weights.layers[0].qkv;
  if (weights.lm_head.format != WeightFormat::kBf16 || weights.lm_head.gathers()) return false;
  return std::all_of(weights.layers.begin(), weights.layers.end(), [&](const GpuLayer& layer) {
    const auto matrices = MatricesOf(layer);
    return std::all_of(matrices.begin(), matrices.end(), [&](const GpuMatrix* matrix) {
      return matrix->data != nullptr && !matrix->gathers() && matrix->format == first.format &&
             matrix->scales_per_block == first.scales_per_block;
    });
  });
}

// The fields "Of the model" that do not need device memory.
DecodeStepParams ModelParams(const llm::DecoderSpec& spec, const GpuWeights& weights) {
  DecodeStepParams model = {};
  model.num_layers = spec.num_layers();
  model.format = weights.layers[0].qkv.format;
  model.scales_per_block = weights.layers[0].qkv.scales_per_block;
  model.hidden_size = spec.hidden_size;
  model.inner_size = spec.intermediate_size;
  model.num_heads = spec.num_heads;
  model.num_kv_heads = spec.num_kv_heads;
  model.unit_heads = StepUnitHeads(spec.num_heads / spec.num_kv_heads);
  model.item_units = StepItemUnits(spec.num_heads, spec.num_kv_heads);
  model.head_dim = spec.head_dim;
  model.layer_kind = StepLayersOf(spec);
  if (std::any_of(spec.layers.begin(), spec.layers.end(),
                  [](const llm::LayerSpec& layer) { return layer.is_moe; })) {
    model.num_experts = spec.moe.num_experts;
    model.experts_per_token = spec.moe.experts_per_token;
    model.expert_inner_size = spec.moe.intermediate_size;
    model.normalizes_experts = spec.moe.normalize_top_k;
  }
  model.epsilon = spec.norm.epsilon;
  model.attention_scale = spec.attention_scale;
  model.head = static_cast<const __nv_bfloat16*>(weights.lm_head.data);
  model.head_outputs = weights.lm_head.num_outputs;
  model.final_norm = weights.final_norm.weight;
  model.final_norm_bias = weights.final_norm.bias;
  model.norm_kind = spec.norm.kind;
  model.activation = spec.activation;
  model.has_gate = spec.mlp == llm::MlpKind::kGated;
  model.parallel_residual = spec.parallel_residual;
  model.has_post_norms = spec.post_norms;
  model.soft_cap = spec.attention_soft_cap;
  return model;
}

}  // namespace

Result<DecodeStepRunner::CreateResult> DecodeStepRunner::Create(
    const llm::DecoderSpec& spec, const GpuWeights& weights, const RopeTables& rope_tables,
    KernelMode mode, CacheFormat cache_format, int num_processors) {
  if (weights.layers.empty()) return CreateResult();
  DecodeStepRunner runner;
  runner.model_ = ModelParams(spec, weights);
  DecodeStepParams& model = runner.model_;
  model.cache_format = cache_format;
  const DecodeStepSizes sizes = SizesOf(model);
  const DecodeStepChoice choice =
      ChooseDecodeStep({.form = CurrentForm(),
                        .mode = mode,
                        .spec = &spec,
                        .sizes = sizes,
                        .has_plain_weights = HasPlainWeights(weights),
                        .streams_weights = weights.stream != nullptr,
                        .has_optimised_kernels = HasOptimisedKernels()});
  if (choice.steps.max_rows == 0 || num_processors < 1 || !FitsDecodeStep(sizes))
    return CreateResult();
  runner.num_processors_ = num_processors;
  runner.steps_ = choice.steps;
  std::vector<DecodeStepLayer> layers;
  for (int32_t i = 0; i < spec.num_layers(); ++i) {
    const GpuLayer& from = weights.layers[i];
    DecodeStepLayer& to = layers.emplace_back();
    const auto matrices = MatricesOf(from);
    for (int gemm = 0; gemm < kNumStepGemms; ++gemm) {
      to.weights[gemm] = matrices[gemm]->data;
      to.row_scales[gemm] = matrices[gemm]->row_scales;
      to.block_scales[gemm] = matrices[gemm]->block_scales;
    }
    to.input_norm = from.input_norm.weight;
    to.mlp_norm = from.pre_mlp_norm.weight;
    to.qkv_bias = from.qkv_bias;
    to.input_norm_bias = from.input_norm.bias;
    to.mlp_norm_bias = from.pre_mlp_norm.bias;
    to.out_bias = from.attention_out_bias;
    to.gate_up_bias = from.gate_up_bias;
    to.down_bias = from.down_bias;
    to.post_attention_norm = from.post_attention_norm.weight;
    to.post_mlp_norm = from.post_mlp_norm.weight;
    to.q_norm = from.q_norm;
    to.k_norm = from.k_norm;
    if (spec.position == llm::PositionKind::kRope) {
      to.cos_sin = rope_tables.table(spec.layers[i].rope);
      to.rope_dim = spec.ropes[spec.layers[i].rope].dim;
    }
    to.window = spec.layers[i].sliding_window;
    to.router = from.router;
    to.gate_up_stride = from.expert_gate_up.stride_bytes;
    to.down_stride = from.expert_down.stride_bytes;
  }
  const size_t layers_bytes = layers.size() * sizeof(DecodeStepLayer);
  NEREID_ASSIGN_OR_RETURN(runner.layers_,
                          DeviceMemory::Allocate(layers_bytes, "the layers of a decode step"));
  NEREID_RETURN_IF_CUDA_ERROR(
      cudaMemcpy(runner.layers_.data(), layers.data(), layers_bytes, cudaMemcpyHostToDevice));
  NEREID_ASSIGN_OR_RETURN(
      runner.exchange_,
      DeviceMemory::Allocate(
          int64_t{2} * kDecodeStepRows * DecodeStepRowColumns(model) * sizeof(__nv_bfloat16),
          "the exchange buffer of a decode step"));
  NEREID_ASSIGN_OR_RETURN(runner.state_,
                          DeviceMemory::Allocate(sizeof(DecodeStepState), "a decode step's state"));
  NEREID_RETURN_IF_CUDA_ERROR(
      cudaMemset(runner.exchange_.data(), 0xff, runner.exchange_.size_bytes()));
  NEREID_RETURN_IF_CUDA_ERROR(cudaMemset(runner.state_.data(), 0, runner.state_.size_bytes()));
  model.layers = runner.layers_.as<DecodeStepLayer>();
  model.exchange = runner.exchange_.as<__nv_bfloat16>();
  model.state = runner.state_.as<DecodeStepState>();
  CreateResult created;
  if (const cudaError_t error = TryDecodeStep(model, num_processors, nullptr);
      error == cudaSuccess) {
    NEREID_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(nullptr));
    created.runner = std::move(runner);
  } else {
    created.refusal = StrCat("the device can not start ", num_processors,
                             " blocks together: ", cudaGetErrorString(error));
  }
  return created;
}

bool DecodeStepRunner::CanRun(const StepShape& shape) const {
  return gpu::IsFused(shape, steps_) && shape.num_prefill == 0 && shape.num_decode > 0 &&
         shape.num_logits == shape.num_tokens && shape.num_sampled == shape.num_tokens;
}

Status DecodeStepRunner::Run(const StepShape& shape, const int32_t* words,
                             const DecodeStepParams& buffers, cudaStream_t stream) const {
  const StepLayout layout(shape);
  DecodeStepParams params = model_;
  params.residual = buffers.residual;
  params.logits = buffers.logits;
  params.cache = buffers.cache;
  params.cache_layer_bytes = buffers.cache_layer_bytes;
  params.partials = buffers.partials;
  params.item_tokens = buffers.item_tokens;
  params.tickets = buffers.tickets;
  params.words = words;
  params.positions = words + layout.positions;
  params.cache_slots = words + layout.cache_slots;
  params.logit_rows = words + layout.logit_rows;
  params.items = reinterpret_cast<const DecodeItem*>(words + layout.decode_items);
  params.num_items = shape.num_decode;
  params.num_rows = shape.num_tokens;
  params.input = buffers.input;
  RunDecodeStep(params, num_processors_, stream);
  return CudaStatus(cudaGetLastError(), "a decode step");
}

Status DecodeStepRunner::CopyHiddenStates(std::span<const int32_t> layers, const StepShape& shape,
                                          const DecodeStepParams& buffers, __nv_bfloat16* out,
                                          cudaStream_t stream) const {
  constexpr size_t kMaxLayers = StepHiddenStatesParams::kMaxLayers;
  StepHiddenStatesParams params = {};
  params.step = model_;
  params.step.residual = buffers.residual;
  params.step.num_rows = shape.num_tokens;
  params.out_stride = static_cast<int64_t>(layers.size()) * model_.hidden_size;
  for (size_t first = 0; first < layers.size(); first += kMaxLayers) {
    const auto some = layers.subspan(first, std::min(kMaxLayers, layers.size() - first));
    std::copy(some.begin(), some.end(), params.layers);
    params.num_layers = static_cast<int>(some.size());
    params.out = out + static_cast<int64_t>(first) * model_.hidden_size;
    CopyStepHiddenStates(params, stream);
  }
  return CudaStatus(cudaGetLastError(), "hidden states of a decode step");
}

}  // namespace nereid::gpu
