// Loading has two phases: a plan (weight_plan.h) assigns every matrix and vector an offset in one
// allocation, then jobs fill it.
#include "backends/gpu_llm/model/gpu_weights.h"

#include <algorithm>

#include "backends/gpu_llm/kernel_registry.h"
#include "backends/gpu_llm/kernels/gemm/weight_kernels.h"
#include "backends/gpu_llm/kernels/rows/moe.h"
#include "backends/gpu_llm/model/streamed_layers.h"
#include "backends/gpu_llm/model/weight_plan.h"

namespace nereid::gpu {
namespace {

using llm::kNoExpert;
using llm::kNoLayer;
using llm::WeightKind;

constexpr int kInterleave = 8;  // rows of gate, then as many rows of up

void PlanMlp(WeightPlan& plan, const llm::DecoderSpec& spec, int32_t layer, GpuLayer& result) {
  const int64_t hidden = spec.hidden_size, inner = spec.intermediate_size;
  if (spec.layers[layer].is_moe) {
    const int64_t part = spec.moe.intermediate_size;
    const GpuMatrix router =
        plan.Matrix(layer, {{WeightKind::kRouter, spec.moe.num_experts}}, hidden);
    result.router = static_cast<const __nv_bfloat16*>(router.data);
    plan.AddDummyMatrix(router);
    result.expert_gate_up = plan.Experts(
        layer, {{WeightKind::kGate, part}, {WeightKind::kUp, part}}, hidden, kInterleave);
    result.expert_down = plan.Experts(layer, {{WeightKind::kDown, hidden}}, part);
    return;
  }
  if (spec.mlp == llm::MlpKind::kGated) {
    result.gate_up = plan.Matrix(layer, {{WeightKind::kGate, inner}, {WeightKind::kUp, inner}},
                                 hidden, kInterleave);
  } else {
    result.gate_up = plan.Matrix(layer, {{WeightKind::kUp, inner}}, hidden);
  }
  result.down = plan.Matrix(layer, {{WeightKind::kDown, hidden}}, inner);
  if (!spec.mlp_bias) return;
  result.gate_up_bias =
      spec.mlp == llm::MlpKind::kGated
          ? plan.Vector(layer, {{WeightKind::kGateBias, inner}, {WeightKind::kUpBias, inner}},
                        kInterleave)
          : plan.Vector(layer, {{WeightKind::kUpBias, inner}});
  result.down_bias = plan.Vector(layer, {{WeightKind::kDownBias, hidden}});
}

// `num_inputs`: columns of q, k and v.
GpuLayer PlanLayer(WeightPlan& plan, const llm::DecoderSpec& spec, int32_t layer,
                   int64_t num_inputs) {
  GpuLayer result;
  const int64_t q = spec.q_size(), kv = spec.kv_size(), hidden = spec.hidden_size;
  result.input_norm = plan.Norm(layer, WeightKind::kInputNorm, WeightKind::kInputNormBias);
  result.qkv = plan.Matrix(layer, {{WeightKind::kQ, q}, {WeightKind::kK, kv}, {WeightKind::kV, kv}},
                           num_inputs);
  if (spec.qkv_bias) {
    result.qkv_bias = plan.Vector(
        layer, {{WeightKind::kQBias, q}, {WeightKind::kKBias, kv}, {WeightKind::kVBias, kv}});
  }
  if (spec.qk_norm) {
    result.q_norm = plan.NormVector(layer, WeightKind::kQNorm, spec.head_dim);
    result.k_norm = plan.NormVector(layer, WeightKind::kKNorm, spec.head_dim);
  }
  result.attention_out = plan.Matrix(layer, {{WeightKind::kAttentionOut, hidden}}, q);
  if (spec.attention_out_bias) {
    result.attention_out_bias = plan.Vector(layer, {{WeightKind::kAttentionOutBias, hidden}});
  }
  result.pre_mlp_norm = plan.Norm(layer, WeightKind::kPreMlpNorm, WeightKind::kPreMlpNormBias);
  if (spec.post_norms) {
    result.post_attention_norm.weight =
        plan.NormVector(layer, WeightKind::kPostAttentionNorm, hidden);
    result.post_mlp_norm.weight = plan.NormVector(layer, WeightKind::kPostMlpNorm, hidden);
  }
  PlanMlp(plan, spec, layer, result);
  return result;
}

void RelocateAll(GpuWeights& weights, const WeightPlace& place) {
  const auto relocate_matrix = [&](GpuMatrix& matrix) {
    WeightPlan::Relocate(matrix.data, place);
    WeightPlan::Relocate(matrix.row_scales, place);
    WeightPlan::Relocate(matrix.block_scales, place);
    WeightPlan::Relocate(matrix.column_order, place);
    WeightPlan::Relocate(matrix.input_scale, place);
  };
  const auto relocate_norm = [&](GpuNorm& norm) {
    WeightPlan::Relocate(norm.weight, place);
    WeightPlan::Relocate(norm.bias, place);
  };
  WeightPlan::Relocate(weights.token_embedding, place);
  WeightPlan::Relocate(weights.position_embedding, place);
  WeightPlan::Relocate(weights.lm_head_bias, place);
  relocate_norm(weights.final_norm);
  relocate_norm(weights.feature_norm);
  relocate_matrix(weights.lm_head);
  relocate_matrix(weights.feature_projection);
  for (GpuLayer& layer : weights.layers)
    VisitPointers(layer, [&](auto& pointer) { WeightPlan::Relocate(pointer, place); });
}

// Uniform values that keep about the magnitude of a product's input; norms and biases as
// DummyWeights says.
Status FillDummyWeights(const WeightPlan& plan, const GpuWeights& weights, const WeightPlace& place,
                        uint64_t seed) {
  for (const auto& [offset, count, value, bound] : plan.vectors()) {
    auto* const vector = reinterpret_cast<__nv_bfloat16*>(place(offset));
    if (bound > 0.0f) {
      RandomFill(vector, count, bound, seed + (uint64_t{1} << 48) + static_cast<uint64_t>(offset),
                 nullptr);
    } else {
      ConstantFill(vector, count, value, nullptr);
    }
  }
  for (const GpuMatrix* matrix : weights.matrices()) RandomFillMatrix(*matrix, seed++, nullptr);
  for (GpuMatrix matrix : plan.dummy_matrices()) {
    WeightPlan::Relocate(matrix.data, place);
    WeightPlan::Relocate(matrix.row_scales, place);
    WeightPlan::Relocate(matrix.block_scales, place);
    RandomFillMatrix(matrix, static_cast<uint32_t>(seed++),
                     nullptr);  // a router: equal on all GPUs
  }
  NEREID_RETURN_IF_CUDA_ERROR(cudaGetLastError());
  NEREID_RETURN_IF_CUDA_ERROR(cudaDeviceSynchronize());
  return {};
}

// Rows of the position table in the checkpoint, which may be more than are used.
int64_t PositionRows(const llm::DecoderModel& model) {
  const auto found = model.weights.find({kNoLayer, WeightKind::kPositionEmbedding, kNoExpert});
  return found == model.weights.end() ? model.spec.max_positions : found->second.source.num_rows();
}

}  // namespace

std::vector<const GpuMatrix*> GpuWeights::matrices() const {
  std::vector<const GpuMatrix*> result = {&lm_head};
  if (feature_projection.data != nullptr) result.push_back(&feature_projection);
  for (const GpuLayer& layer : layers) {
    for (const GpuMatrix* matrix :
         {&layer.qkv, &layer.attention_out, &layer.gate_up, &layer.down}) {
      if (matrix->data != nullptr) result.push_back(matrix);
    }
  }
  return result;
}

void GpuWeights::KeepInputsInBf16() {
  lm_head.quantizes_input = feature_projection.quantizes_input = false;
  for (GpuLayer& layer : layers) {
    for (GpuMatrix* matrix : {&layer.qkv, &layer.attention_out, &layer.gate_up, &layer.down,
                              &layer.expert_gate_up.first, &layer.expert_down.first}) {
      matrix->quantizes_input = false;
    }
  }
}

Status CheckGpuSupport(const llm::DecoderModel& model) {
  const llm::DecoderSpec& spec = model.spec;
  if (spec.post_norms && spec.norm.kind != llm::NormKind::kRms) {
    return UnsupportedError("gpu_llm does not support LayerNorm after attention and MLP ('",
                            spec.architecture, "'); backend cpu_reference does");
  }
  if (spec.moe.num_experts > kMaxExperts || spec.moe.experts_per_token > kMaxExpertsPerToken) {
    return UnsupportedError("the model has ", spec.moe.num_experts, " experts, ",
                            spec.moe.experts_per_token, " a token; gpu_llm supports up to ",
                            kMaxExperts, " and ", kMaxExpertsPerToken);
  }
  if (!HasHeadDim(spec.head_dim)) {
    return UnsupportedError("head_dim is ", spec.head_dim,
                            ", gpu_llm supports 16, 32, 64, 80, 96, 128 and 256");
  }
  if (spec.hidden_size % 8 != 0 || spec.hidden_size > 16384 || spec.intermediate_size % 8 != 0 ||
      spec.moe.intermediate_size % 8 != 0) {
    return UnsupportedError(
        "hidden_size ", spec.hidden_size, ", intermediate_size ", spec.intermediate_size,
        " (of an expert ", spec.moe.intermediate_size,
        "): gpu_llm supports multiples of 8, and a hidden_size of at most 16384");
  }
  return {};
}

Result<GpuWeights> LoadGpuWeights(const llm::DecoderModel& model, const Sharding& sharding,
                                  const std::optional<DummyWeights>& dummy,
                                  double resident_fraction) {
  const llm::DecoderSpec& spec = model.spec;
  StreamedLayers streamed(spec.num_layers(), resident_fraction);
  WeightPlan plan(model, sharding, dummy);
  GpuWeights weights;
  const int64_t padding = PaddedVocabulary(spec.vocab_size) - spec.vocab_size;
  const GpuMatrix embedding =
      plan.Matrix(kNoLayer, {{WeightKind::kTokenEmbedding, spec.vocab_size}}, spec.hidden_size, 0,
                  spec.tied_embeddings ? padding : 0);
  weights.token_embedding = static_cast<const __nv_bfloat16*>(embedding.data);
  if (spec.position == llm::PositionKind::kLearned) {
    const GpuMatrix positions = plan.Matrix(
        kNoLayer, {{WeightKind::kPositionEmbedding, PositionRows(model)}}, spec.hidden_size);
    weights.position_embedding = static_cast<const __nv_bfloat16*>(positions.data);
    plan.AddDummyMatrix(positions);
  }
  for (int32_t layer = 0; layer < spec.num_layers(); ++layer) {
    const int64_t first = plan.size_bytes();
    weights.layers.push_back(PlanLayer(plan, spec, layer, spec.hidden_size));
    streamed.Add(layer, {first, plan.size_bytes() - first});
  }
  weights.final_norm = plan.Norm(kNoLayer, WeightKind::kFinalNorm, WeightKind::kFinalNormBias);
  const IndexRange head = sharding.HeadRows(sharding.rank(), PaddedVocabulary(spec.vocab_size));
  if (spec.tied_embeddings) {
    weights.lm_head = embedding;
    weights.lm_head.num_outputs = static_cast<int>(head.count);
    weights.lm_head.data =
        static_cast<const __nv_bfloat16*>(embedding.data) + head.first * spec.hidden_size;
  } else {
    const int64_t rows = std::min<int64_t>(head.count, spec.vocab_size - head.first);
    weights.lm_head = plan.Matrix(kNoLayer, {{WeightKind::kLmHead, rows}}, spec.hidden_size, 0,
                                  head.count - rows);
  }
  if (model.weights.contains({kNoLayer, WeightKind::kLmHeadBias, kNoExpert}))
    weights.lm_head_bias = plan.Vector(kNoLayer, {{WeightKind::kLmHeadBias, spec.vocab_size}});
  NEREID_RETURN_IF_ERROR(plan.status());
  NEREID_ASSIGN_OR_RETURN(
      weights.memory,
      DeviceMemory::Allocate(streamed.DeviceBytes(plan.size_bytes()), "the weights"));
  NEREID_ASSIGN_OR_RETURN(PinnedMemory host, streamed.AllocateHost());
  const WeightPlace place = [&, memory = weights.memory.as<char>()](int64_t offset) {
    return streamed.PlaceOf(offset, memory, host.as<char>());
  };
  RelocateAll(weights, place);
  if (dummy) {
    // Shards differ by rank; the embedding is equal on all GPUs.
    NEREID_RETURN_IF_ERROR(FillDummyWeights(
        plan, weights, place, dummy->seed + (static_cast<uint64_t>(sharding.rank()) << 32)));
    GpuMatrix table = embedding;
    WeightPlan::Relocate(table.data, place);
    RandomFillMatrix(table, dummy->seed ^ 0x5eed, nullptr);
    NEREID_RETURN_IF_CUDA_ERROR(cudaDeviceSynchronize());
  } else {
    NEREID_RETURN_IF_ERROR(Upload(plan.jobs(), place));
  }
  NEREID_RETURN_IF_ERROR(streamed.Start(std::move(host), weights));
  return weights;
}

Result<GpuWeights> LoadHeadWeights(const llm::DecoderModel& head, int64_t feature_size,
                                   int64_t embedding_rows) {
  const llm::DecoderSpec& spec = head.spec;
  const Sharding whole;
  const std::optional<DummyWeights> none;
  WeightPlan plan(head, whole, none);
  GpuWeights weights;
  if (embedding_rows > 0) {
    const GpuMatrix embedding =
        plan.Matrix(kNoLayer, {{WeightKind::kTokenEmbedding, embedding_rows}}, spec.hidden_size);
    weights.token_embedding = static_cast<const __nv_bfloat16*>(embedding.data);
  }
  weights.feature_projection =
      plan.Matrix(kNoLayer, {{WeightKind::kFeatureProjection, spec.hidden_size}}, feature_size);
  weights.feature_norm.weight = plan.NormVector(0, WeightKind::kFeatureNorm, spec.hidden_size);
  weights.layers.push_back(PlanLayer(plan, spec, 0, int64_t{2} * spec.hidden_size));
  weights.final_norm = plan.Norm(kNoLayer, WeightKind::kFinalNorm, WeightKind::kFinalNormBias);
  weights.lm_head =
      plan.Matrix(kNoLayer, {{WeightKind::kLmHead, spec.vocab_size}}, spec.hidden_size, 0,
                  PaddedVocabulary(spec.vocab_size) - spec.vocab_size);
  NEREID_RETURN_IF_ERROR(plan.status());
  NEREID_ASSIGN_OR_RETURN(weights.memory,
                          DeviceMemory::Allocate(plan.size_bytes(), "the weights of a draft head"));
  const WeightPlace place = [memory = weights.memory.as<char>()](int64_t offset) {
    return memory + offset;
  };
  RelocateAll(weights, place);
  NEREID_RETURN_IF_ERROR(Upload(plan.jobs(), place));
  return weights;
}

}  // namespace nereid::gpu
