#include "backends/gpu_llm/model/weight_plan.h"

#include <algorithm>
#include <cstring>

namespace nereid::gpu {
namespace {

using llm::kNoExpert;
using llm::kNoLayer;
using llm::WeightKind;

template <typename T>
void CopyTo(const std::vector<T>& values, uint8_t* to) {
  std::memcpy(to, values.data(), values.size() * sizeof(T));
}

// Kept as bf16 whatever the checkpoint's format, because their kernels support no other format.
bool IsKeptAsBf16(WeightKind kind) {
  return kind == WeightKind::kRouter || kind == WeightKind::kTokenEmbedding ||
         kind == WeightKind::kPositionEmbedding;
}

}  // namespace

template <typename T>
const T* WeightPlan::Array(int64_t count, std::function<void(uint8_t*)> fill) {
  const int64_t offset = Reserve(count * static_cast<int64_t>(sizeof(T)));
  uploads_.push_back(
      {offset, count * static_cast<int64_t>(sizeof(T)), [fill = std::move(fill)](uint8_t* to) {
         fill(to);
         return Status();
       }});
  return OffsetPointer<T>(offset);
}

const __nv_bfloat16* WeightPlan::Vector(int32_t layer, const KindsAndRows& kinds_and_rows,
                                        int64_t interleave, float added) {
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

const __nv_bfloat16* WeightPlan::NormVector(int32_t layer, WeightKind kind, int64_t size) {
  const __nv_bfloat16* vector = Vector(layer, {{kind, size}}, 0, model_.spec.norm.weight_offset);
  vectors_.back().dummy_value = 1.0f;
  vectors_.back().dummy_bound = 0.0f;
  return vector;
}

GpuNorm WeightPlan::Norm(int32_t layer, WeightKind weight, WeightKind bias) {
  const int64_t size = model_.spec.hidden_size;
  GpuNorm norm;
  norm.weight = NormVector(layer, weight, size);
  if (model_.spec.norm.has_bias) norm.bias = Vector(layer, {{bias, size}});
  return norm;
}

GpuExperts WeightPlan::Experts(int32_t layer, const KindsAndRows& kinds_and_rows, int64_t columns,
                               int64_t interleave) {
  GpuExperts experts;
  const MatrixLayout layout = ExpertsLayout(layer, kinds_and_rows, columns, interleave);
  int64_t first = 0;
  for (int32_t expert = 0; expert < model_.spec.moe.num_experts; ++expert) {
    const int64_t at = next_;
    const GpuMatrix matrix = Matrix(layer, kinds_and_rows, columns, interleave, 0, expert, layout);
    if (expert == 0) experts.first = matrix, first = at;
    if (expert == 1) experts.stride_bytes = at - first;
    dummy_matrices_.push_back(matrix);
  }
  experts.stride_elements = experts.stride_bytes / 2;
  return experts;
}

GpuMatrix WeightPlan::Matrix(int32_t layer, const KindsAndRows& kinds_and_rows, int64_t columns,
                             int64_t interleave, int64_t num_padding, int32_t expert,
                             const MatrixLayout& expert_layout) {
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
  if (layout->has_block_scales) {
    matrix.block_scales =
        Array<uint32_t>(NumFp8BlockScales(num_outputs, columns),
                        [source](uint8_t* to) { CopyTo(Fp8BlockScales(*source), to); });
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

MatrixSource WeightPlan::SourceOf(int32_t layer, const KindsAndRows& kinds_and_rows,
                                  int64_t columns, int64_t interleave, int32_t expert) const {
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

void WeightPlan::CheckMapped(const MatrixSource& source) {
  for (const MatrixSection& section : source.sections) {
    if (!dummy_ && section.weight == nullptr && status_.ok())
      status_ = InternalError("a weight of the decoder is not mapped");
  }
}

MatrixLayout WeightPlan::ExpertsLayout(int32_t layer, const KindsAndRows& kinds_and_rows,
                                       int64_t columns, int64_t interleave) {
  MatrixLayout common;
  for (int32_t expert = 0; expert < model_.spec.moe.num_experts; ++expert) {
    const MatrixSource source = SourceOf(layer, kinds_and_rows, columns, interleave, expert);
    CheckMapped(source);
    if (!status_.ok()) return {};
    MatrixLayout layout = Layout(layer, source);
    if (!IsExpertLayout(layout, source.num_rows(), columns) ||
        (expert > 0 &&
         (layout.format != common.format || layout.scales_per_block != common.scales_per_block ||
          layout.has_block_scales != common.has_block_scales))) {
      return {};
    }
    common = std::move(layout);
  }
  return common;
}

bool WeightPlan::IsExpertLayout(const MatrixLayout& layout, int64_t num_rows,
                                int64_t columns) const {
  if (!layout.column_order.empty() || !layout.input_scale.empty()) return false;
  if (layout.format == WeightFormat::kFp8) return layout.quantizes_input && columns % 16 == 0;
  return layout.format == WeightFormat::kInt4 && num_rows % kInt4TileRows == 0 &&
         !(dummy_ && columns % kInt4BlockColumns != 0);
}

MatrixLayout WeightPlan::Layout(int32_t layer, const MatrixSource& source) {
  MatrixLayout layout;
  if (dummy_) {
    if (layer != kNoLayer) layout.format = dummy_->format;
    layout.quantizes_input = dummy_->quantizes_input;
    layout.has_block_scales = dummy_->has_block_scales && layout.format == WeightFormat::kFp8 &&
                              source.num_rows() % kFp8TileRows == 0;
    return layout;
  }
  Result<MatrixLayout> found = LayoutOf(source);
  // The LM head's product is in float, and the experts' GEMM, which multiplies many rows by weights
  // with block scales, stores bf16 only.
  if (found.ok() && found->has_block_scales && layer == kNoLayer) return layout;
  if (found.ok()) return std::move(*found);
  if (status_.ok()) status_ = found.status();
  return layout;
}

int64_t WeightPlan::Reserve(int64_t size_bytes) {
  const int64_t at = next_;
  next_ = (next_ + size_bytes + kWeightAlignment - 1) / kWeightAlignment * kWeightAlignment;
  return at;
}

void WeightPlan::AddJobs(const std::shared_ptr<const MatrixSource>& source,
                         const std::shared_ptr<const MatrixLayout>& layout, int64_t offset) {
  const bool is_int4 = layout->format == WeightFormat::kInt4;
  const int64_t rows = source->num_rows();
  const int64_t units = is_int4 ? (rows + kInt4TileRows - 1) / kInt4TileRows : rows;
  const int64_t unit_bytes = layout->SizeBytes(is_int4 ? kInt4TileRows : 1, source->columns);
  const int64_t step = std::max<int64_t>(1, kUploadJobBytes / unit_bytes);
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

}  // namespace nereid::gpu
