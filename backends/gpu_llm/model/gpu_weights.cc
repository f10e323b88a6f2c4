// Loading has two phases: a plan assigns every matrix and vector an offset in one allocation, then
// jobs fill it.
#include "backends/gpu_llm/model/gpu_weights.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>

#include "backends/gpu_llm/kernel_registry.h"
#include "backends/gpu_llm/kernels/gemm/weight_kernels.h"
#include "backends/gpu_llm/kernels/rows/moe.h"
#include "backends/gpu_llm/model/matrix_source.h"
#include "backends/gpu_llm/model/streamed_layers.h"
#include "backends/gpu_llm/model/weight_upload.h"

namespace nereid::gpu {
namespace {

using llm::kNoExpert;
using llm::kNoLayer;
using llm::WeightKind;

constexpr int64_t kAlign = 256;  // bytes
constexpr int kInterleave = 8;   // rows of gate, then as many rows of up
constexpr int64_t kJobBytes = int64_t{8} << 20;

using KindsAndRows = std::vector<std::pair<WeightKind, int64_t>>;

// Assigns consecutive offsets. Pointers are encoded offsets until the memory is allocated.
class WeightPlan {
 public:
  WeightPlan(const llm::DecoderModel& model, const Sharding& sharding,
             const std::optional<DummyWeights>& dummy)
      : model_(model), sharding_(sharding), dummy_(dummy) {}

  // A vector of biases, concatenated or interleaved as in Matrix().
  const __nv_bfloat16* Vector(int32_t layer, const KindsAndRows& kinds_and_rows,
                              int64_t interleave = 0, float added = 0.0f) {
    auto source =
        std::make_shared<MatrixSource>(SourceOf(layer, kinds_and_rows, 1, interleave, kNoExpert));
    source->offset = added;
    const int64_t rows = source->num_rows(), offset = Reserve(rows * 2);
    vectors_.push_back({offset, rows, 0.0f, dummy_ ? dummy_->bias_bound : 0.0f});
    CheckMapped(*source);
    uploads_.push_back({offset, rows * 2, [source, rows](uint8_t* to) {
                          return FillBf16Rows(*source, 0, rows, reinterpret_cast<uint16_t*>(to));
                        }});
    return OffsetPointer<__nv_bfloat16>(offset);
  }

  // A norm's weight, with one value for each input column; dummy weights have 1.
  const __nv_bfloat16* NormVector(int32_t layer, WeightKind kind, int64_t size) {
    const __nv_bfloat16* vector = Vector(layer, {{kind, size}}, 0, model_.spec.norm.weight_offset);
    vectors_.back().dummy_value = 1.0f;
    vectors_.back().dummy_bound = 0.0f;
    return vector;
  }
  GpuNorm Norm(int32_t layer, WeightKind weight, WeightKind bias) {
    const int64_t size = model_.spec.hidden_size;
    GpuNorm norm;
    norm.weight = NormVector(layer, weight, size);
    if (model_.spec.norm.has_bias) norm.bias = Vector(layer, {{bias, size}});
    return norm;
  }

  // One matrix for each expert.
  GpuExperts Experts(int32_t layer, const KindsAndRows& kinds_and_rows, int64_t columns,
                     int64_t interleave = 0) {
    GpuExperts experts;
    const MatrixLayout layout = ExpertsLayout(layer, kinds_and_rows, columns, interleave);
    int64_t first = 0;
    for (int32_t expert = 0; expert < model_.spec.moe.num_experts; ++expert) {
      const int64_t at = next_;
      const GpuMatrix matrix =
          Matrix(layer, kinds_and_rows, columns, interleave, 0, expert, layout);
      if (expert == 0) experts.first = matrix, first = at;
      if (expert == 1) experts.stride_bytes = at - first;
      dummy_matrices_.push_back(matrix);
    }
    experts.stride_elements = experts.stride_bytes / 2;
    return experts;
  }

  // Concatenates the rows of the weights. With `interleave`, groups of so many rows of each weight
  // alternate. `num_padding` rows of zeros follow. `expert_layout`: with an expert.
  GpuMatrix Matrix(int32_t layer, const KindsAndRows& kinds_and_rows, int64_t columns,
                   int64_t interleave = 0, int64_t num_padding = 0, int32_t expert = kNoExpert,
                   const MatrixLayout& expert_layout = {}) {
    auto source = std::make_shared<const MatrixSource>(
        SourceOf(layer, kinds_and_rows, columns, interleave, expert));
    const auto layout = std::make_shared<const MatrixLayout>(
        expert != kNoExpert                          ? expert_layout
        : IsKeptAsBf16(kinds_and_rows.front().first) ? MatrixLayout{}
                                                     : Layout(layer, *source));
    CheckMapped(*source);
    GpuMatrix matrix;
    matrix.format = layout->format;
    matrix.scales_per_block = layout->scales_per_block;
    matrix.quantizes_input = layout->quantizes_input;
    const int64_t num_outputs = source->num_rows() + num_padding;
    matrix.num_outputs = static_cast<int>(num_outputs);
    matrix.depth = static_cast<int>(columns);
    const int64_t size_bytes = layout->SizeBytes(source->num_rows(), columns);
    const int64_t padded_bytes = layout->SizeBytes(num_outputs, columns);
    const int64_t offset = Reserve(padded_bytes);
    matrix.data = OffsetPointer<void>(offset);
    if (padded_bytes > size_bytes) {
      uploads_.push_back({offset + size_bytes, padded_bytes - size_bytes,
                          [count = padded_bytes - size_bytes](uint8_t* to) {
                            std::memset(to, 0, count);
                            return Status();
                          }});
    }
    if (layout->format == WeightFormat::kFp8) {
      matrix.row_scales = Array<float>(num_outputs, [source, num_outputs](uint8_t* to) {
        std::vector<float> scales = Fp8RowScales(*source);
        scales.resize(num_outputs, 0.0f);
        CopyTo(scales, to);
      });
    }
    if (!layout->column_order.empty()) {
      matrix.column_order =
          Array<int32_t>(columns, [layout](uint8_t* to) { CopyTo(layout->column_order, to); });
    }
    if (!layout->input_scale.empty()) {
      matrix.input_scale =
          Array<float>(columns, [layout](uint8_t* to) { CopyTo(layout->input_scale, to); });
    }
    AddJobs(source, layout, offset);
    return matrix;
  }

  const Status& status() const { return status_; }
  int64_t size_bytes() const { return next_; }
  const std::vector<UploadJob>& jobs() const { return uploads_; }
  struct PlannedVector {
    int64_t offset, count;
    float dummy_value;  // value with dummy weights
    float dummy_bound;  // above 0: they are random up to this magnitude instead
  };
  const std::vector<PlannedVector>& vectors() const { return vectors_; }
  // Matrices that GpuWeights::matrices() does not list; pointers are encoded offsets.
  const std::vector<GpuMatrix>& dummy_matrices() const { return dummy_matrices_; }
  void AddDummyMatrix(const GpuMatrix& matrix) { dummy_matrices_.push_back(matrix); }

 private:
  MatrixSource SourceOf(int32_t layer, const KindsAndRows& kinds_and_rows, int64_t columns,
                        int64_t interleave, int32_t expert) const {
    MatrixSource source;
    for (const auto& [kind, rows] : kinds_and_rows) {
      const auto found = model_.weights.find({layer, kind, expert});
      source.sections.push_back({found == model_.weights.end() ? nullptr : &found->second, rows,
                                 sharding_.FirstRow(kind, expert != kNoExpert)});
      source.first_column = sharding_.FirstColumn(kind, expert != kNoExpert);
    }
    source.columns = columns;
    source.interleave = interleave;
    return source;
  }

  void CheckMapped(const MatrixSource& source) {
    for (const MatrixSection& section : source.sections) {
      if (!dummy_ && section.weight == nullptr && status_.ok())
        status_ = InternalError("a weight of the decoder is not mapped");
    }
  }

  // Kept as bf16 whatever the checkpoint's format, because their kernels support no other format.
  static bool IsKeptAsBf16(WeightKind kind) {
    return kind == WeightKind::kRouter || kind == WeightKind::kTokenEmbedding ||
           kind == WeightKind::kPositionEmbedding;
  }

  // The layout of one matrix of every expert: int4 if all experts are, with equal groups of columns
  // in the input's order; fp8 if all are and their inputs are quantized; else bf16.
  MatrixLayout ExpertsLayout(int32_t layer, const KindsAndRows& kinds_and_rows, int64_t columns,
                             int64_t interleave) {
    MatrixLayout common;
    for (int32_t expert = 0; expert < model_.spec.moe.num_experts; ++expert) {
      const MatrixSource source = SourceOf(layer, kinds_and_rows, columns, interleave, expert);
      CheckMapped(source);
      if (!status_.ok()) return {};
      MatrixLayout layout = Layout(layer, source);
      if (!IsExpertLayout(layout, source.num_rows(), columns) ||
          (expert > 0 && (layout.format != common.format ||
                          layout.scales_per_block != common.scales_per_block))) {
        return {};
      }
      common = std::move(layout);
    }
    return common;
  }
  // Whether the experts' kernels support the layout, which is not bf16.
  bool IsExpertLayout(const MatrixLayout& layout, int64_t num_rows, int64_t columns) const {
    if (!layout.column_order.empty() || !layout.input_scale.empty()) return false;
    if (layout.format == WeightFormat::kFp8) return layout.quantizes_input && columns % 16 == 0;
    return layout.format == WeightFormat::kInt4 && num_rows % kInt4TileRows == 0 &&
           !(dummy_ && columns % kInt4BlockColumns != 0);
  }

  MatrixLayout Layout(int32_t layer, const MatrixSource& source) {
    MatrixLayout layout;
    if (dummy_) {
      if (layer != kNoLayer) layout.format = dummy_->format;
      layout.quantizes_input = dummy_->quantizes_input;
      return layout;
    }
    Result<MatrixLayout> found = LayoutOf(source);
    if (found.ok()) return std::move(*found);
    if (status_.ok()) status_ = found.status();
    return layout;
  }

  int64_t Reserve(int64_t size_bytes) {
    const int64_t at = next_;
    next_ = (next_ + size_bytes + kAlign - 1) / kAlign * kAlign;
    return at;
  }
  template <typename T>
  static const T* OffsetPointer(int64_t offset) {
    return reinterpret_cast<const T*>(offset + 1);  // never null
  }
  template <typename T>
  const T* Array(int64_t count, std::function<void(uint8_t*)> fill) {
    const int64_t offset = Reserve(count * static_cast<int64_t>(sizeof(T)));
    uploads_.push_back(
        {offset, count * static_cast<int64_t>(sizeof(T)), [fill = std::move(fill)](uint8_t* to) {
           fill(to);
           return Status();
         }});
    return OffsetPointer<T>(offset);
  }
  template <typename T>
  static void CopyTo(const std::vector<T>& values, uint8_t* to) {
    std::memcpy(to, values.data(), values.size() * sizeof(T));
  }

  // Splits the matrix into jobs of whole rows or tiles, a few MiB each.
  void AddJobs(const std::shared_ptr<const MatrixSource>& source,
               const std::shared_ptr<const MatrixLayout>& layout, int64_t offset) {
    const bool is_int4 = layout->format == WeightFormat::kInt4;
    const int64_t rows = source->num_rows();
    const int64_t units = is_int4 ? (rows + kInt4TileRows - 1) / kInt4TileRows : rows;
    const int64_t unit_bytes = layout->SizeBytes(is_int4 ? kInt4TileRows : 1, source->columns);
    const int64_t step = std::max<int64_t>(1, kJobBytes / unit_bytes);
    for (int64_t first = 0; first < units; first += step) {
      const int64_t count = std::min(step, units - first);
      const auto fill = [source, layout, first, count](uint8_t* to) -> Status {
        switch (layout->format) {
          case WeightFormat::kInt4:
            return FillInt4Tiles(*source, *layout, first, count, to);
          case WeightFormat::kFp8:
            FillFp8Rows(*source, first, count, to);
            return {};
          default:
            return FillBf16Rows(*source, first, count, reinterpret_cast<uint16_t*>(to));
        }
      };
      uploads_.push_back({offset + first * unit_bytes, count * unit_bytes, fill});
    }
  }

  const llm::DecoderModel& model_;
  const Sharding& sharding_;
  const std::optional<DummyWeights>& dummy_;
  int64_t next_ = 0;
  std::vector<UploadJob> uploads_;
  std::vector<PlannedVector> vectors_;
  std::vector<GpuMatrix> dummy_matrices_;
  Status status_;
};

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

template <typename T>
void Relocate(const T*& pointer, const WeightPlace& place) {
  if (pointer != nullptr)
    pointer = reinterpret_cast<const T*>(place(reinterpret_cast<intptr_t>(pointer) - 1));
}

void RelocateAll(GpuWeights& weights, const WeightPlace& place) {
  const auto relocate_matrix = [&](GpuMatrix& matrix) {
    Relocate(matrix.data, place);
    Relocate(matrix.row_scales, place);
    Relocate(matrix.column_order, place);
    Relocate(matrix.input_scale, place);
  };
  const auto relocate_norm = [&](GpuNorm& norm) {
    Relocate(norm.weight, place);
    Relocate(norm.bias, place);
  };
  Relocate(weights.token_embedding, place);
  Relocate(weights.position_embedding, place);
  Relocate(weights.lm_head_bias, place);
  relocate_norm(weights.final_norm);
  relocate_norm(weights.feature_norm);
  relocate_matrix(weights.lm_head);
  relocate_matrix(weights.feature_projection);
  for (GpuLayer& layer : weights.layers)
    VisitPointers(layer, [&](auto& pointer) { Relocate(pointer, place); });
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
    Relocate(matrix.data, place);
    Relocate(matrix.row_scales, place);
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
  lm_head.quantizes_input = false;
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
    Relocate(table.data, place);
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
