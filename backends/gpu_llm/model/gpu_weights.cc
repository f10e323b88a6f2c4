// A plan first: where every matrix and vector lies in one allocation; then jobs that fill it.
#include "gpu_llm/model/gpu_weights.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>

#include "gpu_llm/kernels/random_fill.h"
#include "gpu_llm/model/matrix_source.h"
#include "gpu_llm/model/weight_upload.h"

namespace nereid::gpu {
namespace {

using llm::kNoExpert;
using llm::kNoLayer;
using llm::WeightKind;

constexpr int64_t kAlign = 256;  // bytes
constexpr int kInterleave = 8;   // rows of gate, then as many of up
constexpr int64_t kJobBytes = int64_t{8} << 20;

using KindsAndRows = std::vector<std::pair<WeightKind, int64_t>>;

// Places matrices one behind the other; pointers are offsets until the memory is there.
class WeightPlan {
 public:
  WeightPlan(const llm::DecoderModel& model, const std::optional<DummyWeights>& dummy)
      : model_(model), dummy_(dummy) {}

  // Norm weights and biases, one below the other.
  const __nv_bfloat16* Vector(int32_t layer, const KindsAndRows& kinds_and_rows) {
    auto source = std::make_shared<MatrixSource>(SourceOf(layer, kinds_and_rows, 1, 0));
    const int64_t rows = source->num_rows(), offset = Take(rows * 2);
    ones_.push_back({offset, rows});
    for (const MatrixPart& part : source->parts) {
      if (!dummy_ && part.weight == nullptr && status_.ok())
        status_ = InternalError("a weight of the decoder is not mapped");
    }
    jobs_.push_back({offset, rows * 2, [source, rows](uint8_t* to) {
                       return FillBf16Rows(*source, 0, rows, reinterpret_cast<uint16_t*>(to));
                     }});
    return At<__nv_bfloat16>(offset);
  }

  // With `interleave`, groups of that many rows of the parts in turn.
  GpuMatrix Matrix(int32_t layer, const KindsAndRows& kinds_and_rows, int64_t columns,
                   int64_t interleave = 0) {
    auto source =
        std::make_shared<const MatrixSource>(SourceOf(layer, kinds_and_rows, columns, interleave));
    const auto layout = std::make_shared<const MatrixLayout>(Layout(layer, *source));
    GpuMatrix matrix;
    matrix.format = layout->format;
    matrix.scales_per_block = layout->scales_per_block;
    matrix.num_outputs = static_cast<int>(source->num_rows());
    matrix.depth = static_cast<int>(columns);
    const int64_t offset = Take(layout->SizeBytes(source->num_rows(), columns));
    matrix.data = At<void>(offset);
    if (layout->format == WeightFormat::kFp8) {
      matrix.row_scales = Array<float>(
          source->num_rows(), [source](uint8_t* to) { CopyTo(Fp8RowScales(*source), to); });
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
  const std::vector<UploadJob>& jobs() const { return jobs_; }
  // Offsets and lengths of the vectors.
  const std::vector<std::pair<int64_t, int64_t>>& vectors() const { return ones_; }

 private:
  MatrixSource SourceOf(int32_t layer, const KindsAndRows& kinds_and_rows, int64_t columns,
                        int64_t interleave) const {
    MatrixSource source;
    for (const auto& [kind, rows] : kinds_and_rows) {
      const auto found = model_.weights.find({layer, kind, kNoExpert});
      source.parts.push_back({found == model_.weights.end() ? nullptr : &found->second, rows});
    }
    source.columns = columns;
    source.interleave = interleave;
    return source;
  }

  MatrixLayout Layout(int32_t layer, const MatrixSource& source) {
    MatrixLayout layout;
    if (dummy_) {
      if (layer != kNoLayer) layout.format = dummy_->format;
      return layout;
    }
    Result<MatrixLayout> found = LayoutOf(source);
    if (found.ok()) return std::move(*found);
    if (status_.ok()) status_ = found.status();
    return layout;
  }

  int64_t Take(int64_t size_bytes) {
    const int64_t at = next_;
    next_ = (next_ + size_bytes + kAlign - 1) / kAlign * kAlign;
    return at;
  }
  template <typename T>
  static const T* At(int64_t offset) {
    return reinterpret_cast<const T*>(offset + 1);  // odd: an offset that is not null
  }
  template <typename T>
  const T* Array(int64_t count, std::function<void(uint8_t*)> fill) {
    const int64_t offset = Take(count * static_cast<int64_t>(sizeof(T)));
    jobs_.push_back(
        {offset, count * static_cast<int64_t>(sizeof(T)), [fill = std::move(fill)](uint8_t* to) {
           fill(to);
           return Status();
         }});
    return At<T>(offset);
  }
  template <typename T>
  static void CopyTo(const std::vector<T>& values, uint8_t* to) {
    std::memcpy(to, values.data(), values.size() * sizeof(T));
  }

  // Whole rows, or whole tiles, of a few MiB each.
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
      jobs_.push_back({offset + first * unit_bytes, count * unit_bytes, fill});
    }
  }

  const llm::DecoderModel& model_;
  const std::optional<DummyWeights>& dummy_;
  int64_t next_ = 0;
  std::vector<UploadJob> jobs_;
  std::vector<std::pair<int64_t, int64_t>> ones_;
  Status status_;
};

GpuLayer PlanLayer(WeightPlan& plan, const llm::DecoderSpec& spec, int32_t layer) {
  GpuLayer result;
  const int64_t q = spec.q_size(), kv = spec.kv_size(), hidden = spec.hidden_size,
                inner = spec.intermediate_size;
  result.input_norm = plan.Vector(layer, {{WeightKind::kInputNorm, hidden}});
  result.qkv =
      plan.Matrix(layer, {{WeightKind::kQ, q}, {WeightKind::kK, kv}, {WeightKind::kV, kv}}, hidden);
  if (spec.qkv_bias) {
    result.qkv_bias = plan.Vector(
        layer, {{WeightKind::kQBias, q}, {WeightKind::kKBias, kv}, {WeightKind::kVBias, kv}});
  }
  if (spec.qk_norm) {
    result.q_norm = plan.Vector(layer, {{WeightKind::kQNorm, spec.head_dim}});
    result.k_norm = plan.Vector(layer, {{WeightKind::kKNorm, spec.head_dim}});
  }
  result.attention_out = plan.Matrix(layer, {{WeightKind::kAttentionOut, hidden}}, q);
  result.pre_mlp_norm = plan.Vector(layer, {{WeightKind::kPreMlpNorm, hidden}});
  result.gate_up = plan.Matrix(layer, {{WeightKind::kGate, inner}, {WeightKind::kUp, inner}},
                               hidden, kInterleave);
  result.down = plan.Matrix(layer, {{WeightKind::kDown, hidden}}, inner);
  return result;
}

template <typename T>
void Place(const T*& pointer, const DeviceMemory& memory) {
  if (pointer != nullptr) {
    pointer =
        reinterpret_cast<const T*>(memory.as<char>() + (reinterpret_cast<intptr_t>(pointer) - 1));
  }
}

void PlaceAll(GpuWeights& weights) {
  const auto place_matrix = [&](GpuMatrix& matrix) {
    Place(matrix.data, weights.memory);
    Place(matrix.row_scales, weights.memory);
    Place(matrix.column_order, weights.memory);
    Place(matrix.input_scale, weights.memory);
  };
  Place(weights.token_embedding, weights.memory);
  Place(weights.final_norm, weights.memory);
  place_matrix(weights.lm_head);
  for (GpuLayer& layer : weights.layers) {
    for (const __nv_bfloat16** pointer :
         {&layer.input_norm, &layer.qkv_bias, &layer.q_norm, &layer.k_norm, &layer.pre_mlp_norm}) {
      Place(*pointer, weights.memory);
    }
    for (GpuMatrix* matrix : {&layer.qkv, &layer.attention_out, &layer.gate_up, &layer.down}) {
      place_matrix(*matrix);
    }
  }
}

// Uniform values whose products keep about the size of their input; norms are 1.
Status MakeUp(const WeightPlan& plan, const GpuWeights& weights, uint64_t seed) {
  for (const auto& [offset, count] : plan.vectors()) {
    ConstantFill(reinterpret_cast<__nv_bfloat16*>(weights.memory.as<char>() + offset), count, 1.0f,
                 nullptr);
  }
  for (const GpuMatrix* matrix : weights.matrices()) RandomFillMatrix(*matrix, seed++, nullptr);
  NEREID_RETURN_IF_CUDA_ERROR(cudaGetLastError());
  NEREID_RETURN_IF_CUDA_ERROR(cudaDeviceSynchronize());
  return {};
}

}  // namespace

std::vector<const GpuMatrix*> GpuWeights::matrices() const {
  std::vector<const GpuMatrix*> result = {&lm_head};
  for (const GpuLayer& layer : layers) {
    for (const GpuMatrix* matrix : {&layer.qkv, &layer.attention_out, &layer.gate_up, &layer.down})
      result.push_back(matrix);
  }
  return result;
}

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
                                  const std::optional<DummyWeights>& dummy) {
  const llm::DecoderSpec& spec = model.spec;
  WeightPlan plan(model, dummy);
  GpuWeights weights;
  const GpuMatrix embedding =
      plan.Matrix(kNoLayer, {{WeightKind::kTokenEmbedding, spec.vocab_size}}, spec.hidden_size);
  weights.token_embedding = static_cast<const __nv_bfloat16*>(embedding.data);
  for (int32_t layer = 0; layer < spec.num_layers(); ++layer)
    weights.layers.push_back(PlanLayer(plan, spec, layer));
  weights.final_norm = plan.Vector(kNoLayer, {{WeightKind::kFinalNorm, spec.hidden_size}});
  weights.lm_head =
      spec.tied_embeddings
          ? embedding
          : plan.Matrix(kNoLayer, {{WeightKind::kLmHead, spec.vocab_size}}, spec.hidden_size);
  NEREID_RETURN_IF_ERROR(plan.status());
  if (embedding.format != WeightFormat::kBf16) {
    return UnsupportedError("gpu_llm does not run quantised token embeddings ('", spec.architecture,
                            "')");
  }
  NEREID_ASSIGN_OR_RETURN(weights.memory, DeviceMemory::Allocate(plan.size_bytes(), "the weights"));
  PlaceAll(weights);
  if (dummy) {
    GpuMatrix table = embedding;
    Place(table.data, weights.memory);
    RandomFillMatrix(table, dummy->seed ^ 0x5eed, nullptr);
    NEREID_RETURN_IF_ERROR(MakeUp(plan, weights, dummy->seed));
  } else {
    NEREID_RETURN_IF_ERROR(Upload(plan.jobs(), weights.memory));
  }
  return weights;
}

}  // namespace nereid::gpu
