// Reads checkpoint rows and converts them to the device's formats. [load thread]
#include "backends/gpu_llm/model/matrix_source.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "backends/gpu_llm/bf16.h"
#include "backends/llm_core/model/integer_weight_rows.h"
#include "backends/llm_core/model/quantization.h"

namespace nereid::gpu {
namespace {

using llm::CheckpointDataType;
using llm::IntegerWeightRows;
using llm::QuantMethod;
using llm::ResolvedWeight;

bool IsInteger(const ResolvedWeight& weight) {
  return weight.quant.num_bits > 0;
}
bool IsFp8(const ResolvedWeight& weight) {
  return weight.quant.method == QuantMethod::kFp8;
}
bool IsFp8InBlocks(const ResolvedWeight& weight) {
  return weight.quant.method == QuantMethod::kFp8Blocks;
}

uint16_t ToBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return is_nan ? static_cast<uint16_t>(bits >> 16 | 0x40) : RoundToBf16(value);
}

float Fp8ToFloat(uint8_t byte) {
  const uint32_t bits = (byte & 0x80u) << 24 | (byte & 0x7fu) << 20;
  float value;
  std::memcpy(&value, &bits, 4);
  return value * 0x1p120f;
}

float Fp8RowScale(const ResolvedWeight& weight, int64_t row) {
  const llm::CheckpointTensor& scales = weight.quant.scales;
  const bool is_one = scales.bytes.size() == llm::Info(scales.type).size_bytes;
  return llm::ElementAsFloat(scales, is_one ? 0 : weight.source.SourceRow(row));
}

// Returns the scale of the block that contains a row of the stored tensor and a column.
float Fp8BlockScale(const ResolvedWeight& weight, int64_t stored_row, int64_t column) {
  const llm::CheckpointTensor& scales = weight.quant.scales;
  return llm::ElementAsFloat(
      scales, stored_row / llm::kFp8Block * scales.shape[1] + column / llm::kFp8Block);
}

void FillPlainRow(const ResolvedWeight& weight, int64_t row, const MatrixSource& matrix,
                  uint16_t* to) {
  const int64_t first = matrix.first_column, columns = matrix.columns;
  const llm::CheckpointTensor& tensor = weight.tensor;
  const llm::WeightSource& source = weight.source;
  const int64_t stored_columns = tensor.shape.size() > 1 ? tensor.shape[1] : 1;
  const int64_t stored = source.SourceRow(row);
  if (!source.transposed && tensor.type == CheckpointDataType::kBF16 && matrix.offset == 0.0f) {
    std::memcpy(to, tensor.bytes.data() + (stored * stored_columns + first) * 2, columns * 2);
    return;
  }
  const bool in_blocks = IsFp8InBlocks(weight);
  const float row_scale = IsFp8(weight) ? Fp8RowScale(weight, row) : 1.0f;
  for (int64_t column = first; column < first + columns; ++column, ++to) {
    const int64_t index =
        source.transposed ? column * stored_columns + stored : stored * stored_columns + column;
    if (tensor.type != CheckpointDataType::kF8E4M3) {
      *to = ToBf16(matrix.offset + llm::ElementAsFloat(tensor, index));
      continue;
    }
    const float scale = in_blocks ? Fp8BlockScale(weight, stored, column) : row_scale;
    *to = ToBf16(Fp8ToFloat(tensor.bytes[index]) * scale);
  }
}

void FillIntegerRow(IntegerWeightRows& rows, int64_t row, int64_t first, int64_t columns,
                    uint16_t* to) {
  const std::span<const uint8_t> values = rows.Row(row);
  for (int64_t c = 0; c < rows.num_columns(); ++c) {
    const int64_t group = c / rows.group_size();
    const int64_t column = rows.column_order().empty() ? c : rows.column_order()[c];
    if (column < first || column >= first + columns) continue;
    const float input_scale = rows.input_scale().empty() ? 1.0f : rows.input_scale()[column];
    to[column - first] = ToBf16(static_cast<float>(values[c] - rows.Zero(row, group)) *
                                rows.Scale(row, group) * input_scale);
  }
}

// Readers of the integer sections.
Result<std::vector<std::optional<IntegerWeightRows>>> OpenIntegers(const MatrixSource& source) {
  std::vector<std::optional<IntegerWeightRows>> readers(source.sections.size());
  for (size_t i = 0; i < readers.size(); ++i) {
    if (!IsInteger(*source.sections[i].weight)) continue;
    NEREID_ASSIGN_OR_RETURN(readers[i], IntegerWeightRows::Of(*source.sections[i].weight, 8));
  }
  return readers;
}

// Whether kernels support all block scales of a tensor: none is above kMaxFp8BlockScale.
bool HasSmallScales(const ResolvedWeight& weight) {
  const llm::CheckpointTensor& scales = weight.quant.scales;
  const int64_t count = scales.shape[0] * scales.shape[1];
  for (int64_t i = 0; i < count; ++i) {
    if (!(std::abs(llm::ElementAsFloat(scales, i)) <= kMaxFp8BlockScale)) return false;
  }
  return true;
}

// Whether kernels support the blocks of an fp8 matrix: its tiles are whole, its rows have the same
// block where they share a scale, its columns begin with a block, and no scale is too large.
bool SupportsBlocks(const MatrixSource& source) {
  if (source.num_rows() % kFp8TileRows != 0 || source.columns % 16 != 0 ||
      source.first_column % kFp8BlockColumns != 0) {
    return false;
  }
  const auto block_of = [&](int64_t row) {
    const MatrixSource::RowLocation at = source.Find(row);
    const ResolvedWeight& weight = *source.sections[at.section].weight;
    return std::pair(at.section, weight.source.SourceRow(at.row) / llm::kFp8Block);
  };
  for (int64_t row = 0; row < source.num_rows(); ++row) {
    if (block_of(row) != block_of(row / kFp8ScaleRows * kFp8ScaleRows)) return false;
  }
  return std::all_of(source.sections.begin(), source.sections.end(),
                     [](const MatrixSection& section) { return HasSmallScales(*section.weight); });
}

}  // namespace

int64_t MatrixSource::num_rows() const {
  int64_t rows = 0;
  for (const MatrixSection& section : sections) rows += section.rows;
  return rows;
}

MatrixSource::RowLocation MatrixSource::Find(int64_t row) const {
  const auto num_parts = static_cast<int64_t>(sections.size());
  if (interleave > 0) {
    const auto section = static_cast<size_t>(row / interleave % num_parts);
    return {section, sections[section].first_row + row / (interleave * num_parts) * interleave +
                         row % interleave};
  }
  size_t section = 0;
  for (; row >= sections[section].rows; ++section) row -= sections[section].rows;
  return {section, sections[section].first_row + row};
}

int64_t MatrixLayout::SizeBytes(int64_t num_rows, int64_t columns) const {
  switch (format) {
    case WeightFormat::kFp8:
      return num_rows * columns;
    case WeightFormat::kInt4:
      return (num_rows + kInt4TileRows - 1) / kInt4TileRows *
             Int4TileBytes(columns, scales_per_block);
    default:
      return num_rows * columns * 2;
  }
}

Result<MatrixLayout> LayoutOf(const MatrixSource& source) {
  MatrixLayout layout;
  bool all_fp8 = true, all_fp8_blocks = true, all_int4 = true;
  layout.quantizes_input = true;
  for (const MatrixSection& section : source.sections) {
    if (section.weight == nullptr) return InternalError("a weight of the decoder is not mapped");
    all_fp8 = all_fp8 && IsFp8(*section.weight) && !section.weight->source.transposed;
    all_fp8_blocks =
        all_fp8_blocks && IsFp8InBlocks(*section.weight) && !section.weight->source.transposed;
    layout.quantizes_input = layout.quantizes_input && section.weight->quant.quantizes_input;
    all_int4 = all_int4 && section.weight->quant.num_bits == 4;
  }
  if (all_fp8 && source.columns % 16 == 0) layout.format = WeightFormat::kFp8;
  if (all_fp8_blocks && layout.quantizes_input && SupportsBlocks(source)) {
    layout.format = WeightFormat::kFp8;
    layout.has_block_scales = true;
  }
  if (!all_int4 || source.columns % 8 != 0) return layout;
  NEREID_ASSIGN_OR_RETURN(const auto readers, OpenIntegers(source));
  const IntegerWeightRows& first = *readers[0];
  const int64_t group = first.group_size();
  // A group of a whole row may end within a block; the rest of the block is padding.
  const bool is_known =
      group == 32 || group == 64 || group % kInt4BlockColumns == 0 || first.num_groups() == 1;
  bool are_alike = true;
  for (const auto& reader : readers) {
    are_alike = are_alike && reader->group_size() == group &&
                reader->column_order() == first.column_order() &&
                reader->input_scale() == first.input_scale();
  }
  // A shard of the columns must be whole groups, in stored order.
  const bool is_whole = source.columns == first.num_columns();
  const bool are_groups = first.column_order().empty() &&
                          (first.num_groups() == 1 ||
                           (source.first_column % group == 0 && source.columns % group == 0));
  if (!is_known || !are_alike || !(is_whole || are_groups)) return layout;
  layout.format = WeightFormat::kInt4;
  layout.scales_per_block = first.num_groups() == 1 || group >= kInt4BlockColumns
                                ? 1
                                : static_cast<int>(kInt4BlockColumns / group);
  layout.column_order = first.column_order();
  layout.input_scale = first.input_scale();
  if (!is_whole && !layout.input_scale.empty()) {
    const auto begin = first.input_scale().begin() + source.first_column;
    layout.input_scale.assign(begin, begin + source.columns);
  }
  return layout;
}

Status FillBf16Rows(const MatrixSource& source, int64_t first, int64_t count, uint16_t* to) {
  NEREID_ASSIGN_OR_RETURN(auto readers, OpenIntegers(source));
  for (int64_t row = first; row < first + count; ++row, to += source.columns) {
    const MatrixSource::RowLocation location = source.Find(row);
    if (readers[location.section]) {
      FillIntegerRow(*readers[location.section], location.row, source.first_column, source.columns,
                     to);
    } else {
      FillPlainRow(*source.sections[location.section].weight, location.row, source, to);
    }
  }
  return {};
}

void FillFp8Rows(const MatrixSource& source, int64_t first, int64_t count, uint8_t* to) {
  for (int64_t row = first; row < first + count; ++row, to += source.columns) {
    const MatrixSource::RowLocation location = source.Find(row);
    const ResolvedWeight& weight = *source.sections[location.section].weight;
    std::memcpy(to,
                weight.tensor.bytes.data() +
                    weight.source.SourceRow(location.row) * weight.tensor.shape[1] +
                    source.first_column,
                source.columns);
  }
}

std::vector<float> Fp8RowScales(const MatrixSource& source) {
  std::vector<float> scales(source.num_rows());
  for (int64_t row = 0; row < source.num_rows(); ++row) {
    const MatrixSource::RowLocation location = source.Find(row);
    const ResolvedWeight& weight = *source.sections[location.section].weight;
    scales[row] = IsFp8InBlocks(weight) ? 1.0f : Fp8RowScale(weight, location.row);
  }
  return scales;
}

std::vector<uint32_t> Fp8BlockScales(const MatrixSource& source) {
  static_assert(kFp8BlockColumns == llm::kFp8Block);
  std::vector<uint32_t> words;
  words.reserve(NumFp8BlockScales(source.num_rows(), source.columns));
  const auto scale_of = [&](int64_t row, int64_t column) -> uint32_t {
    const MatrixSource::RowLocation at = source.Find(row);
    const ResolvedWeight& weight = *source.sections[at.section].weight;
    return ToBf16(
        Fp8BlockScale(weight, weight.source.SourceRow(at.row), source.first_column + column));
  };
  for (int64_t column = 0; column < source.columns; column += kFp8BlockColumns) {
    for (int64_t row = 0; row < source.num_rows(); row += kFp8TileRows)
      words.push_back(scale_of(row, column) | scale_of(row + kFp8ScaleRows, column) << 16);
  }
  return words;
}

Status FillInt4Tiles(const MatrixSource& source, const MatrixLayout& layout, int64_t first,
                     int64_t count, uint8_t* to) {
  NEREID_ASSIGN_OR_RETURN(auto readers, OpenIntegers(source));
  const int64_t tile_bytes = Int4TileBytes(source.columns, layout.scales_per_block);
  const int block_bytes = Int4BlockBytes(layout.scales_per_block);
  const int scale_columns = kInt4BlockColumns / layout.scales_per_block;
  std::memset(to, 0, count * tile_bytes);
  const int64_t end =
      std::min(first + count, (source.num_rows() + kInt4TileRows - 1) / kInt4TileRows);
  for (int64_t tile = first; tile < end; ++tile, to += tile_bytes) {
    for (int r = 0; r < kInt4TileRows && tile * kInt4TileRows + r < source.num_rows(); ++r) {
      const MatrixSource::RowLocation location = source.Find(tile * kInt4TileRows + r);
      IntegerWeightRows& reader = *readers[location.section];
      const std::span<const uint8_t> values =
          reader.Row(location.row).subspan(source.first_column, source.columns);
      for (int64_t column = 0; column < source.columns; column += 8) {
        uint32_t word = 0;
        for (int i = 0; i < 8; ++i)
          word |= uint32_t{values[column + i]} << LocateInInt4Block(r, i).shift;
        const int index = LocateInInt4Block(r, static_cast<int>(column % kInt4BlockColumns)).word;
        std::memcpy(to + column / kInt4BlockColumns * block_bytes + index * 4, &word, 4);
      }
      for (int64_t column = 0; column < source.columns; column += scale_columns) {
        const int64_t group = (source.first_column + column) / reader.group_size();
        const uint32_t word =
            Int4ScaleWord(reader.Scale(location.row, group), reader.Zero(location.row, group));
        const int64_t sub = column % kInt4BlockColumns / scale_columns;
        std::memcpy(to + column / kInt4BlockColumns * block_bytes + kInt4ValueBytes +
                        (sub * kInt4TileRows + r) * 4,
                    &word, 4);
      }
    }
  }
  return {};
}

}  // namespace nereid::gpu
