// From resolved checkpoint tensors to matrices and vectors.
#include "cpu_reference/model/cpu_weights.h"

#include <cstring>

namespace nereid::cpu {
namespace {

using llm::DataType;
using llm::kNoExpert;
using llm::kNoLayer;
using llm::ResolvedWeight;
using llm::WeightKind;

WeightType TypeOf(DataType type) {
  switch (type) {
    case DataType::kBF16:
      return WeightType::kBf16;
    case DataType::kF16:
      return WeightType::kF16;
    default:
      return WeightType::kF32;
  }
}

float HalfToFloat(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  const uint32_t bits = uint32_t{half & 0x7fffu} << 13;
  float magnitude;
  std::memcpy(&magnitude, &bits, 4);
  magnitude *= 0x1p112f;
  uint32_t result;
  std::memcpy(&result, &magnitude, 4);
  result |= sign;
  std::memcpy(&magnitude, &result, 4);
  return magnitude;
}

float ElementAsFloat(const uint8_t* data, DataType type, int64_t index) {
  if (type == DataType::kF32) {
    float value;
    std::memcpy(&value, data + index * 4, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, data + index * 2, 2);
  if (type == DataType::kF16) return HalfToFloat(bits);
  const uint32_t wide = uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

// Row of the stored tensor that holds row `row` of the weight.
int64_t SourceRow(const llm::WeightSource& source, int64_t row) {
  return source.first_row + row / source.group_rows * source.group_stride + row % source.group_rows;
}

class Loader {
 public:
  Loader(const llm::DecoderModel& model, CpuWeights& weights) : model_(model), weights_(weights) {}

  // Null data when the map has no such weight.
  WeightMatrix Matrix(int32_t layer, WeightKind kind, int32_t expert = kNoExpert) {
    const ResolvedWeight* weight = Find(layer, kind, expert);
    if (weight == nullptr) return {};
    const llm::WeightSource& source = weight->source;
    WeightMatrix matrix;
    matrix.type = TypeOf(weight->tensor.type);
    matrix.rows = source.num_rows();
    matrix.columns = weight->tensor.shape[source.transposed ? 0 : 1];
    const int64_t row_bytes = matrix.columns * matrix.element_bytes();
    const bool lies_together = !source.transposed && source.num_groups == 1;
    matrix.data = lies_together ? weight->tensor.bytes.data() + source.first_row * row_bytes
                                : Copy(*weight, matrix);
    return matrix;
  }

  std::vector<float> Vector(int32_t layer, WeightKind kind, float offset = 0.0f) {
    const ResolvedWeight* weight = Find(layer, kind, kNoExpert);
    if (weight == nullptr) return {};
    std::vector<float> values(weight->source.num_rows());
    for (size_t row = 0; row < values.size(); ++row) {
      values[row] = offset + ElementAsFloat(weight->tensor.bytes.data(), weight->tensor.type,
                                            SourceRow(weight->source, static_cast<int64_t>(row)));
    }
    return values;
  }

  Linear LinearOf(int32_t layer, WeightKind weight, WeightKind bias) {
    return {Matrix(layer, weight), Vector(layer, bias)};
  }

  Norm NormOf(int32_t layer, WeightKind weight, WeightKind bias) {
    Norm norm = {Vector(layer, weight, model_.spec.norm.weight_offset), Vector(layer, bias)};
    if (norm.bias.empty()) norm.bias.resize(norm.weight.size(), 0.0f);
    return norm;
  }

 private:
  const ResolvedWeight* Find(int32_t layer, WeightKind kind, int32_t expert) const {
    const auto found = model_.weights.find({layer, kind, expert});
    return found == model_.weights.end() ? nullptr : &found->second;
  }

  const void* Copy(const ResolvedWeight& weight, const WeightMatrix& matrix) {
    const int64_t element = matrix.element_bytes();
    const auto bytes = static_cast<size_t>(matrix.rows * matrix.columns * element);
    weights_.copies.push_back(std::make_unique<uint8_t[]>(bytes));
    weights_.copied_bytes += bytes;
    uint8_t* to = weights_.copies.back().get();
    const uint8_t* from = weight.tensor.bytes.data();
    const int64_t stored_columns = weight.tensor.shape[1];
    for (int64_t row = 0; row < matrix.rows; ++row) {
      const int64_t source = SourceRow(weight.source, row);
      if (!weight.source.transposed) {
        std::memcpy(to, from + source * stored_columns * element, matrix.columns * element);
      } else {
        for (int64_t column = 0; column < matrix.columns; ++column) {
          std::memcpy(to + column * element, from + (column * stored_columns + source) * element,
                      element);
        }
      }
      to += matrix.columns * element;
    }
    return weights_.copies.back().get();
  }

  const llm::DecoderModel& model_;
  CpuWeights& weights_;
};

LayerWeights LoadLayer(Loader& loader, int32_t layer, const llm::DecoderSpec& spec) {
  LayerWeights w;
  w.input_norm = loader.NormOf(layer, WeightKind::kInputNorm, WeightKind::kInputNormBias);
  w.post_attention_norm =
      loader.NormOf(layer, WeightKind::kPostAttentionNorm, WeightKind::kPostAttentionNormBias);
  w.pre_mlp_norm = loader.NormOf(layer, WeightKind::kPreMlpNorm, WeightKind::kPreMlpNormBias);
  w.post_mlp_norm = loader.NormOf(layer, WeightKind::kPostMlpNorm, WeightKind::kPreMlpNormBias);
  w.q_norm.weight = loader.Vector(layer, WeightKind::kQNorm, spec.norm.weight_offset);
  w.k_norm.weight = loader.Vector(layer, WeightKind::kKNorm, spec.norm.weight_offset);
  w.q = loader.LinearOf(layer, WeightKind::kQ, WeightKind::kQBias);
  w.k = loader.LinearOf(layer, WeightKind::kK, WeightKind::kKBias);
  w.v = loader.LinearOf(layer, WeightKind::kV, WeightKind::kVBias);
  w.attention_out =
      loader.LinearOf(layer, WeightKind::kAttentionOut, WeightKind::kAttentionOutBias);
  if (!spec.layers[layer].is_moe) {
    w.mlp.gate = loader.LinearOf(layer, WeightKind::kGate, WeightKind::kGateBias);
    w.mlp.up = loader.LinearOf(layer, WeightKind::kUp, WeightKind::kUpBias);
    w.mlp.down = loader.LinearOf(layer, WeightKind::kDown, WeightKind::kDownBias);
    return w;
  }
  w.router.weights = loader.Matrix(layer, WeightKind::kRouter);
  for (int32_t expert = 0; expert < spec.moe.num_experts; ++expert) {
    Mlp& mlp = w.experts.emplace_back();
    mlp.gate.weights = loader.Matrix(layer, WeightKind::kGate, expert);
    mlp.up.weights = loader.Matrix(layer, WeightKind::kUp, expert);
    mlp.down.weights = loader.Matrix(layer, WeightKind::kDown, expert);
  }
  return w;
}

}  // namespace

Result<CpuWeights> LoadCpuWeights(const llm::DecoderModel& model) {
  CpuWeights weights;
  Loader loader(model, weights);
  weights.token_embedding = loader.Matrix(kNoLayer, WeightKind::kTokenEmbedding);
  weights.position_embedding = loader.Matrix(kNoLayer, WeightKind::kPositionEmbedding);
  weights.final_norm = loader.NormOf(kNoLayer, WeightKind::kFinalNorm, WeightKind::kFinalNormBias);
  weights.lm_head = loader.LinearOf(kNoLayer, WeightKind::kLmHead, WeightKind::kLmHeadBias);
  if (model.spec.tied_embeddings) weights.lm_head.weights = weights.token_embedding;
  for (int32_t layer = 0; layer < model.spec.num_layers(); ++layer) {
    weights.layers.push_back(LoadLayer(loader, layer, model.spec));
  }
  return weights;
}

}  // namespace nereid::cpu
