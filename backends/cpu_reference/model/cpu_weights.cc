// Loads matrices and vectors from resolved checkpoint tensors.
#include "backends/cpu_reference/model/cpu_weights.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <optional>
#include <span>
#include <thread>

#include "backends/cpu_reference/model/integer_strips.h"
#include "backends/llm_core/model/integer_weight_rows.h"
#include "base/thread.h"

namespace nereid::cpu {
namespace {

using llm::CheckpointDataType;
using llm::kNoExpert;
using llm::kNoLayer;
using llm::ResolvedWeight;
using llm::WeightKind;

WeightFormat TypeOf(CheckpointDataType type) {
  switch (type) {
    case CheckpointDataType::kBF16:
      return WeightFormat::kBf16;
    case CheckpointDataType::kF16:
      return WeightFormat::kF16;
    case CheckpointDataType::kF8E4M3:
      return WeightFormat::kF8E4M3;
    default:
      return WeightFormat::kF32;
  }
}

class WeightLoader {
 public:
  WeightLoader(const llm::DecoderModel& model, const llm::Checkpoint& checkpoint,
               CpuWeights& weights)
      : model_(model), checkpoint_(checkpoint), weights_(weights) {}

  // Returns null data if the map has no such weight.
  WeightMatrix Matrix(int32_t layer, WeightKind kind, int32_t expert = kNoExpert) {
    const ResolvedWeight* weight = Find(layer, kind, expert);
    if (weight == nullptr) return {};
    const llm::WeightSource& source = weight->source;
    WeightMatrix matrix;
    matrix.type = TypeOf(weight->tensor.type);
    matrix.rows = source.num_rows();
    matrix.columns = weight->tensor.shape[source.transposed ? 0 : 1];
    const uint8_t* first = weight->tensor.bytes.data() + source.first_row * matrix.row_bytes();
    const auto element = static_cast<uintptr_t>(matrix.row_bytes() / matrix.columns);
    const bool is_usable = !source.transposed && source.num_groups == 1 &&
                           reinterpret_cast<uintptr_t>(first) % element == 0;
    matrix.data = is_usable ? first : Copy(*weight, matrix);
    if (weight->quant.method == llm::QuantMethod::kFp8) {
      matrix.row_scales = RowScales(*weight);
    } else if (weight->quant.method == llm::QuantMethod::kFp8Blocks) {
      matrix.block_scales = BlockScales(*weight);
    }
    return matrix;
  }

  std::vector<float> Vector(int32_t layer, WeightKind kind, float offset = 0.0f) {
    const ResolvedWeight* weight = Find(layer, kind, kNoExpert);
    if (weight == nullptr) return {};
    std::vector<float> values(weight->source.num_rows());
    for (size_t row = 0; row < values.size(); ++row) {
      values[row] =
          offset +
          llm::ElementAsFloat(weight->tensor, weight->source.SourceRow(static_cast<int64_t>(row)));
    }
    return values;
  }

  Linear LinearOf(int32_t layer, WeightKind kind, int32_t expert = kNoExpert) {
    const ResolvedWeight* weight = Find(layer, kind, expert);
    Linear linear;
    if (weight != nullptr && weight->quant.num_bits > 0) {
      Status repacked = Repack(*weight, linear);
      if (status_.ok()) status_ = std::move(repacked);
    } else {
      linear.weights = Matrix(layer, kind, expert);
    }
    return linear;
  }
  Linear LinearOf(int32_t layer, WeightKind weight, WeightKind bias) {
    Linear linear = LinearOf(layer, weight);
    linear.bias = Vector(layer, bias);
    return linear;
  }
  // The first error.
  const Status& status() const { return status_; }

  // The norm with its bias; zeros if the architecture has no bias.
  NormWeights NormOf(int32_t layer, WeightKind weight, std::optional<WeightKind> bias = {}) {
    NormWeights norm = {Vector(layer, weight, model_.spec.norm.weight_offset), {}};
    if (bias.has_value()) norm.bias = Vector(layer, *bias);
    if (norm.bias.empty()) norm.bias.resize(norm.weight.size(), 0.0f);
    return norm;
  }

 private:
  const ResolvedWeight* Find(int32_t layer, WeightKind kind, int32_t expert) const {
    const auto found = model_.weights.find({layer, kind, expert});
    return found == model_.weights.end() ? nullptr : &found->second;
  }

  template <typename T>
  T* Allocate(int64_t count) {
    const size_t bytes = static_cast<size_t>(count) * sizeof(T);
    // Start at a cache line, for 64-byte vectors.
    weights_.allocations.emplace_back(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
    weights_.allocated_bytes += bytes;
    return static_cast<T*>(weights_.allocations.back().get());
  }

  const float* RowScales(const ResolvedWeight& weight) {
    const llm::CheckpointTensor& scales = weight.quant.scales;
    const bool is_one = scales.bytes.size() == llm::Info(scales.type).size_bytes;
    const int64_t rows = weight.source.num_rows();
    auto* to = Allocate<float>(rows);
    for (int64_t row = 0; row < rows; ++row) {
      to[row] = llm::ElementAsFloat(scales, is_one ? 0 : weight.source.SourceRow(row));
    }
    return to;
  }

  const float* BlockScales(const ResolvedWeight& weight) {
    const llm::CheckpointTensor& scales = weight.quant.scales;
    const int64_t first = weight.source.first_row / kF8Block;
    const int64_t blocks = (weight.source.num_rows() + kF8Block - 1) / kF8Block;
    const int64_t columns = scales.shape[1];
    auto* to = Allocate<float>(blocks * columns);
    for (int64_t i = 0; i < blocks * columns; ++i) {
      to[i] = llm::ElementAsFloat(scales, first * columns + i);
    }
    return to;
  }

  // Repacks integer rows into strips; see WeightFormat.
  Status Repack(const ResolvedWeight& weight, Linear& linear) {
    NEREID_ASSIGN_OR_RETURN(llm::IntegerWeightRows rows, llm::IntegerWeightRows::Of(weight, 8));
    WeightMatrix& matrix = linear.weights;
    matrix.type = rows.num_bits() == 4 ? WeightFormat::kInt4 : WeightFormat::kInt8;
    matrix.rows = rows.num_rows();
    matrix.columns = rows.num_columns();
    matrix.group_size = rows.group_size();
    const int64_t num_strips = matrix.num_strips(), groups = matrix.num_groups();
    auto* packed = Allocate<uint8_t>(num_strips * matrix.strip_bytes());
    auto* scales = Allocate<float>(num_strips * groups * kStripOutputs);
    auto* zeros = Allocate<uint16_t>(num_strips * groups * kStripOutputs);
    // Scales and zeros of the padding outputs in the last strip.
    const int64_t last = (num_strips - 1) * groups * kStripOutputs;
    std::fill_n(scales + last, groups * kStripOutputs, 0.0f);
    std::fill_n(zeros + last, groups * kStripOutputs, uint16_t{0});
    if (!PackStrips(weight, rows.column_order(), matrix, packed)) {
      std::memset(packed, 0, num_strips * matrix.strip_bytes());
      for (int64_t row = 0; row < matrix.rows; ++row) {
        const int64_t strip = row / kStripOutputs, output = row % kStripOutputs;
        PackRow(rows.Row(row), matrix.type, packed + strip * matrix.strip_bytes() + 4 * output);
      }
    }
    for (int64_t row = 0; row < matrix.rows; row += kStripOutputs) {
      const int64_t count = std::min(kStripOutputs, matrix.rows - row);
      for (int64_t group = 0; group < groups; ++group) {
        const int64_t at = row * groups + group * kStripOutputs;
        rows.ScalesAndZeros(row, count, group, scales + at, zeros + at);
      }
    }
    matrix.data = packed;
    matrix.group_scales = scales;
    matrix.group_zeros = zeros;
    linear.column_order = rows.column_order();
    linear.input_scale = rows.input_scale();
    checkpoint_.DropPages(weight.tensor);
    return {};
  }

  // `to`: the first byte of the output in its strip.
  static void PackRow(std::span<const uint8_t> values, WeightFormat type, uint8_t* to) {
    const auto columns = static_cast<int64_t>(values.size());
    int64_t c = 0;
    for (; type == WeightFormat::kInt4 && c + 8 <= columns; c += 8) {
      uint32_t low, high;
      std::memcpy(&low, values.data() + c, 4);
      std::memcpy(&high, values.data() + c + 4, 4);
      low |= high << 4;
      std::memcpy(to + c / 8 * 64, &low, 4);
    }
    for (; type == WeightFormat::kInt8 && c + 4 <= columns; c += 4) {
      std::memcpy(to + c / 4 * 64, values.data() + c, 4);
    }
    for (; c < columns; c += 4) {
      uint8_t* four = to + (type == WeightFormat::kInt4 ? c / 8 : c / 4) * 64;
      const int shift = type == WeightFormat::kInt4 && c % 8 == 4 ? 4 : 0;
      for (int64_t i = 0; i < std::min<int64_t>(4, columns - c); ++i) {
        four[i] |= static_cast<uint8_t>(values[c + i] << shift);
      }
    }
  }

  const void* Copy(const ResolvedWeight& weight, const WeightMatrix& matrix) {
    const int64_t element = matrix.row_bytes() / matrix.columns;
    auto* to = Allocate<uint8_t>(matrix.rows * matrix.row_bytes());
    const uint8_t* const copied = to;
    const uint8_t* from = weight.tensor.bytes.data();
    const int64_t stored_columns = weight.tensor.shape[1];
    for (int64_t row = 0; row < matrix.rows; ++row) {
      const int64_t source = weight.source.SourceRow(row);
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
    checkpoint_.DropPages(weight.tensor);
    return copied;
  }

  const llm::DecoderModel& model_;
  const llm::Checkpoint& checkpoint_;
  CpuWeights& weights_;
  Status status_;
};

LayerWeights LoadLayer(WeightLoader& loader, int32_t layer, const llm::DecoderSpec& spec) {
  LayerWeights w;
  w.input_norm = loader.NormOf(layer, WeightKind::kInputNorm, WeightKind::kInputNormBias);
  w.post_attention_norm =
      loader.NormOf(layer, WeightKind::kPostAttentionNorm, WeightKind::kPostAttentionNormBias);
  w.pre_mlp_norm = loader.NormOf(layer, WeightKind::kPreMlpNorm, WeightKind::kPreMlpNormBias);
  w.post_mlp_norm = loader.NormOf(layer, WeightKind::kPostMlpNorm);
  w.q_norm.weight = loader.Vector(layer, WeightKind::kQNorm, spec.norm.weight_offset);
  w.k_norm.weight = loader.Vector(layer, WeightKind::kKNorm, spec.norm.weight_offset);
  w.feature_norm.weight = loader.Vector(layer, WeightKind::kFeatureNorm);
  w.q = loader.LinearOf(layer, WeightKind::kQ, WeightKind::kQBias);
  w.k = loader.LinearOf(layer, WeightKind::kK, WeightKind::kKBias);
  w.v = loader.LinearOf(layer, WeightKind::kV, WeightKind::kVBias);
  w.attention_out =
      loader.LinearOf(layer, WeightKind::kAttentionOut, WeightKind::kAttentionOutBias);
  w.residual_block =
      loader.LinearOf(layer, WeightKind::kResidualBlock, WeightKind::kResidualBlockBias);
  w.lm_head = loader.LinearOf(layer, WeightKind::kLmHead);
  if (!spec.layers[layer].is_moe) {
    w.mlp.gate = loader.LinearOf(layer, WeightKind::kGate, WeightKind::kGateBias);
    w.mlp.up = loader.LinearOf(layer, WeightKind::kUp, WeightKind::kUpBias);
    w.mlp.down = loader.LinearOf(layer, WeightKind::kDown, WeightKind::kDownBias);
    return w;
  }
  w.router = loader.LinearOf(layer, WeightKind::kRouter);
  for (int32_t expert = 0; expert < spec.moe.num_experts; ++expert) {
    MlpWeights& mlp = w.experts.emplace_back();
    mlp.gate = loader.LinearOf(layer, WeightKind::kGate, expert);
    mlp.up = loader.LinearOf(layer, WeightKind::kUp, expert);
    mlp.down = loader.LinearOf(layer, WeightKind::kDown, expert);
  }
  return w;
}

// Loads the weights before the first and after the last layer.
void LoadEmbeddingsAndHead(WeightLoader& loader, const llm::DecoderSpec& spec,
                           CpuWeights& weights) {
  weights.token_embedding = loader.Matrix(kNoLayer, WeightKind::kTokenEmbedding);
  weights.position_embedding = loader.Matrix(kNoLayer, WeightKind::kPositionEmbedding);
  weights.final_norm = loader.NormOf(kNoLayer, WeightKind::kFinalNorm, WeightKind::kFinalNormBias);
  weights.lm_head = loader.LinearOf(kNoLayer, WeightKind::kLmHead, WeightKind::kLmHeadBias);
  weights.feature_projection = loader.LinearOf(kNoLayer, WeightKind::kFeatureProjection);
  if (spec.tied_embeddings) weights.lm_head.weights = weights.token_embedding;
}

}  // namespace

Result<CpuWeights> LoadCpuWeights(const llm::DecoderModel& model, const llm::Checkpoint& checkpoint,
                                  int32_t num_threads) {
  CpuWeights weights;
  const int32_t num_layers = model.spec.num_layers();
  weights.layers.resize(num_layers);
  std::atomic<int32_t> next{-1};  // the head is the largest weight, so that it is loaded first
  struct LoadWorker {
    CpuWeights weights;  // allocations of the thread
    Status status;
  };
  std::vector<LoadWorker> workers(std::clamp(num_threads, 1, num_layers + 1));
  const auto load = [&](LoadWorker& worker) {
    WeightLoader loader(model, checkpoint, worker.weights);
    for (int32_t layer = next++; layer < num_layers; layer = next++) {
      if (layer < 0) {
        LoadEmbeddingsAndHead(loader, model.spec, weights);
      } else {
        weights.layers[layer] = LoadLayer(loader, layer, model.spec);
      }
    }
    worker.status = loader.status();
  };
  {
    std::vector<std::thread> threads;
    StartThreads(
        workers.size() - 1, [&](size_t i) { load(workers[i + 1]); }, threads);
    load(workers[0]);  // and the layers of threads that the system has not started
    for (std::thread& thread : threads) thread.join();
  }
  for (LoadWorker& worker : workers) {
    NEREID_RETURN_IF_ERROR(worker.status);
    std::move(worker.weights.allocations.begin(), worker.weights.allocations.end(),
              std::back_inserter(weights.allocations));
    weights.allocated_bytes += worker.weights.allocated_bytes;
  }
  return weights;
}

llm::DecoderModel WithoutLayers(const llm::DecoderModel& model,
                                std::span<const llm::WeightKind> kinds) {
  llm::DecoderModel rest;
  rest.spec = model.spec;
  rest.spec.layers.clear();
  rest.spec.tied_embeddings = false;
  for (const llm::WeightKind kind : kinds) {
    const llm::WeightKey key = {llm::kNoLayer, kind, llm::kNoExpert};
    const auto found = model.weights.find(key);
    if (found != model.weights.end()) rest.weights[key] = found->second;
  }
  return rest;
}

int64_t CpuWeights::bytes_per_step() const {
  int64_t bytes = lm_head.weights.size_bytes();
  for (const LayerWeights& layer : layers) {
    for (const Linear* linear : {&layer.q, &layer.k, &layer.v, &layer.attention_out,
                                 &layer.mlp.gate, &layer.mlp.up, &layer.mlp.down, &layer.router}) {
      bytes += linear->weights.size_bytes();
    }
  }
  return bytes;
}

}  // namespace nereid::cpu
