// A list of parts (which weight, which rows of which matrix), one allocation, then copies of a few
// MiB that threads take in turn.
#include "gpu_llm/model/gpu_weights.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "gpu_llm/kernels/random_fill.h"
#include "gpu_llm/model/weight_upload.h"

namespace nereid::gpu {
namespace {

using llm::kNoExpert;
using llm::kNoLayer;
using llm::WeightKind;

constexpr int64_t kAlign = 128;  // elements
constexpr int kInterleave = 8;   // rows of gate, then as many of up

// Places matrices one behind the other; pointers are offsets until the memory is there.
class WeightPlan {
 public:
  explicit WeightPlan(const llm::DecoderModel& model) : model_(model) {}

  const llm::ResolvedWeight* Find(int32_t layer, WeightKind kind) const {
    const auto found = model_.weights.find({layer, kind, kNoExpert});
    return found == model_.weights.end() ? nullptr : &found->second;
  }

  // The parts one below the other; with `interleave`, their groups of that many rows in turn.
  const __nv_bfloat16* Add(int32_t layer,
                           const std::vector<std::pair<WeightKind, int64_t>>& kinds_and_rows,
                           int64_t columns, int64_t interleave = 0) {
    const auto num_parts = static_cast<int64_t>(kinds_and_rows.size());
    int64_t rows_before = 0;
    for (int64_t part = 0; part < num_parts; ++part) {
      const auto [kind, rows] = kinds_and_rows[part];
      WeightPart upload;
      upload.weight = Find(layer, kind);
      upload.rows = rows;
      upload.columns = columns;
      upload.group_rows = interleave > 0 ? interleave : rows;
      upload.group_stride = interleave > 0 ? interleave * num_parts : rows;
      upload.is_first = part == 0;
      upload.offset = next_ + (interleave > 0 ? part * interleave : rows_before) * columns;
      parts_.push_back(upload);
      rows_before += rows;
    }
    const int64_t at = next_;
    next_ = (next_ + rows_before * columns + kAlign - 1) / kAlign * kAlign;
    return reinterpret_cast<const __nv_bfloat16*>(at * 2 + 1);  // odd: an offset that is not null
  }

  int64_t num_elements() const { return next_; }
  const std::vector<WeightPart>& parts() const { return parts_; }

 private:
  const llm::DecoderModel& model_;
  int64_t next_ = 0;
  std::vector<WeightPart> parts_;
};

GpuLayer PlanLayer(WeightPlan& plan, const llm::DecoderSpec& spec, int32_t layer) {
  GpuLayer result;
  const int64_t q = spec.q_size(), kv = spec.kv_size(), hidden = spec.hidden_size,
                inner = spec.intermediate_size;
  result.input_norm = plan.Add(layer, {{WeightKind::kInputNorm, hidden}}, 1);
  result.qkv =
      plan.Add(layer, {{WeightKind::kQ, q}, {WeightKind::kK, kv}, {WeightKind::kV, kv}}, hidden);
  if (spec.qkv_bias) {
    result.qkv_bias = plan.Add(
        layer, {{WeightKind::kQBias, q}, {WeightKind::kKBias, kv}, {WeightKind::kVBias, kv}}, 1);
  }
  if (spec.qk_norm) {
    result.q_norm = plan.Add(layer, {{WeightKind::kQNorm, spec.head_dim}}, 1);
    result.k_norm = plan.Add(layer, {{WeightKind::kKNorm, spec.head_dim}}, 1);
  }
  result.attention_out = plan.Add(layer, {{WeightKind::kAttentionOut, hidden}}, q);
  result.pre_mlp_norm = plan.Add(layer, {{WeightKind::kPreMlpNorm, hidden}}, 1);
  result.gate_up =
      plan.Add(layer, {{WeightKind::kGate, inner}, {WeightKind::kUp, inner}}, hidden, kInterleave);
  result.down = plan.Add(layer, {{WeightKind::kDown, hidden}}, inner);
  return result;
}

void Place(const __nv_bfloat16*& pointer, const DeviceMemory& memory) {
  if (pointer != nullptr) {
    pointer = reinterpret_cast<const __nv_bfloat16*>(memory.as<char>() +
                                                     (reinterpret_cast<intptr_t>(pointer) - 1));
  }
}

// Uniform values whose products keep about the size of their input; norms are 1.
Status MakeUp(const std::vector<WeightPart>& parts, uint64_t seed, const DeviceMemory& memory) {
  for (const WeightPart& part : parts) {
    auto* to = memory.as<__nv_bfloat16>() + part.offset;
    const int64_t count = part.rows * part.columns;
    if (part.columns == 1) {
      ConstantFill(to, count, 1.0f, nullptr);
    } else if (part.group_rows == part.rows) {
      RandomFill(to, count, std::sqrt(3.0f / static_cast<float>(part.columns)), seed++, nullptr);
    }
    // Interleaved parts are filled as a whole, by the first of them.
    if (part.columns > 1 && part.group_rows != part.rows && part.is_first) {
      RandomFill(to, part.rows * part.columns * part.group_stride / part.group_rows,
                 std::sqrt(3.0f / static_cast<float>(part.columns)), seed++, nullptr);
    }
  }
  NEREID_RETURN_IF_CUDA_ERROR(cudaGetLastError());
  NEREID_RETURN_IF_CUDA_ERROR(cudaDeviceSynchronize());
  return {};
}

}  // namespace

Status CheckGpuSupport(const llm::DecoderModel& model) {
  const llm::DecoderSpec& spec = model.spec;
  std::string what;
  if (spec.norm.kind != llm::NormKind::kRms || spec.norm.has_bias) what = "LayerNorm";
  if (spec.norm.weight_offset != 0.0f) what = "norm weights with an offset";
  if (spec.position != llm::PositionKind::kRope) what = "learned positions";
  if (spec.mlp != llm::MlpKind::kGated) what = "an MLP without a gate";
  if (spec.activation != llm::Activation::kSilu) what = "an activation other than silu";
  if (spec.mlp_bias) what = "biases in the MLP";
  if (spec.attention_out_bias) what = "a bias of the attention output";
  if (spec.moe.num_experts > 0) what = "mixture of experts";
  if (spec.parallel_residual) what = "a parallel residual";
  if (spec.post_norms) what = "norms after attention and MLP";
  if (spec.logit_soft_cap != 0.0f) what = "a soft cap on logits";
  if (model.weights.contains({kNoLayer, WeightKind::kLmHeadBias, kNoExpert}))
    what = "a bias of the LM head";
  if (!what.empty()) {
    return UnsupportedError("gpu_llm does not run ", what, " ('", spec.architecture,
                            "'); backend cpu_reference does");
  }
  constexpr int kHeadDims[] = {16, 32, 64, 80, 96, 128, 256};
  if (std::find(std::begin(kHeadDims), std::end(kHeadDims), spec.head_dim) == std::end(kHeadDims)) {
    return UnsupportedError("head_dim is ", spec.head_dim,
                            ", gpu_llm runs 16, 32, 64, 80, 96, 128 and 256");
  }
  if (spec.hidden_size % 8 != 0 || spec.hidden_size > 16384 || spec.intermediate_size % 8 != 0 ||
      spec.vocab_size % 4 != 0) {
    return UnsupportedError("hidden_size ", spec.hidden_size, ", intermediate_size ",
                            spec.intermediate_size, ", vocab_size ", spec.vocab_size,
                            ": gpu_llm wants multiples of 8, 8 and 4, and a hidden_size ",
                            "of at most 16384");
  }
  return {};
}

Result<GpuWeights> LoadGpuWeights(const llm::DecoderModel& model,
                                  std::optional<uint64_t> dummy_seed) {
  const llm::DecoderSpec& spec = model.spec;
  WeightPlan plan(model);
  GpuWeights weights;
  weights.token_embedding =
      plan.Add(kNoLayer, {{WeightKind::kTokenEmbedding, spec.vocab_size}}, spec.hidden_size);
  for (int32_t layer = 0; layer < spec.num_layers(); ++layer)
    weights.layers.push_back(PlanLayer(plan, spec, layer));
  weights.final_norm = plan.Add(kNoLayer, {{WeightKind::kFinalNorm, spec.hidden_size}}, 1);
  if (!spec.tied_embeddings) {
    weights.lm_head =
        plan.Add(kNoLayer, {{WeightKind::kLmHead, spec.vocab_size}}, spec.hidden_size);
  }
  NEREID_ASSIGN_OR_RETURN(weights.memory,
                          DeviceMemory::Allocate(plan.num_elements() * 2, "the weights"));
  NEREID_RETURN_IF_ERROR(dummy_seed ? MakeUp(plan.parts(), *dummy_seed, weights.memory)
                                    : UploadWeights(plan.parts(), weights.memory));
  for (const __nv_bfloat16** pointer :
       {&weights.token_embedding, &weights.final_norm, &weights.lm_head}) {
    Place(*pointer, weights.memory);
  }
  for (GpuLayer& layer : weights.layers) {
    for (const __nv_bfloat16** pointer :
         {&layer.input_norm, &layer.qkv, &layer.qkv_bias, &layer.q_norm, &layer.k_norm,
          &layer.attention_out, &layer.pre_mlp_norm, &layer.gate_up, &layer.down}) {
      Place(*pointer, weights.memory);
    }
  }
  if (spec.tied_embeddings) weights.lm_head = weights.token_embedding;
  return weights;
}

}  // namespace nereid::gpu
