// One function unpacks each packed layout to bytes; kernels get the layout that they want from
// them.
#include "backends/llm_core/model/integer_weight_rows.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace nereid::llm {
namespace {

// AWQ GEMM layout: output 8 i + j of a word is in nibble kAwqNibble[j].
constexpr int kAwqNibble[8] = {0, 4, 1, 5, 2, 6, 3, 7};

float HalfToFloat(uint16_t half) {
  const uint32_t bits = uint32_t{half & 0x7fffu} << 13;
  float magnitude;
  std::memcpy(&magnitude, &bits, 4);
  magnitude *= 0x1p112f;  // rebias the exponent; exact for every finite value
  return (half & 0x8000u) != 0 ? -magnitude : magnitude;
}

// Rows [first, first + num_rows) of a packed tensor. It is passed by value: the compiler assumes
// that stores through uint8_t* may change what it is only referred to, and would read it again and
// again.
struct PackedBlock {
  const uint8_t* bytes;
  int64_t first, num_rows, num_columns;
  int64_t num_stored_rows;  // of the tensor
  int32_t num_bits;         // of a value
  int64_t values_a_word;

  uint32_t Word(int64_t index) const {
    uint32_t word;
    std::memcpy(&word, bytes + index * 4, 4);
    return word;
  }
  void Unpack(uint32_t word, uint8_t* to) const {
    const uint32_t mask = (1u << num_bits) - 1;
    for (int64_t i = 0; i < values_a_word; ++i, word >>= num_bits) {
      to[i] = static_cast<uint8_t>(word & mask);
    }
  }
};

// Each of these writes the values of a block to `values`, [num_rows, num_columns].

// A word has one column of 8 rows, in the order of kAwqNibble. Both sizes are multiples of 8.
void UnpackAwq(const PackedBlock block, uint8_t* values) {
  for (int64_t c = 0; c < block.num_columns; c += 8) {
    for (int64_t r = 0; r < block.num_rows; r += 8) {
      uint32_t words[8];
      for (int64_t i = 0; i < 8; ++i) {
        words[i] = block.Word(((c + i) * block.num_stored_rows + block.first + r) / 8);
      }
      for (int64_t j = 0; j < 8; ++j) {
        uint8_t row[8];
        for (int64_t i = 0; i < 8; ++i) row[i] = words[i] >> 4 * kAwqNibble[j] & 15;
        std::memcpy(values + (r + j) * block.num_columns + c, row, 8);
      }
    }
  }
}

// A word has consecutive columns of one row; the words of a group of columns lie row by row.
void UnpackGptq(const PackedBlock block, uint8_t* values) {
  for (int64_t c = 0; c < block.num_columns; c += block.values_a_word) {
    const int64_t begin = c / block.values_a_word * block.num_stored_rows + block.first;
    for (int64_t r = 0; r < block.num_rows; ++r) {
      block.Unpack(block.Word(begin + r), values + r * block.num_columns + c);
    }
  }
}

// A word has consecutive columns of one row; the words of a row lie together.
void UnpackPacked(const PackedBlock block, uint8_t* values) {
  for (int64_t r = 0; r < block.num_rows; ++r) {
    const int64_t begin = (block.first + r) * (block.num_columns / block.values_a_word);
    for (int64_t c = 0; c < block.num_columns; c += block.values_a_word) {
      block.Unpack(block.Word(begin + c / block.values_a_word), values + r * block.num_columns + c);
    }
  }
}

// Signed bytes.
void UnpackInt8(const PackedBlock block, uint8_t* values) {
  for (int64_t r = 0; r < block.num_rows; ++r) {
    const uint8_t* bytes = block.bytes + (block.first + r) * block.num_columns;
    for (int64_t c = 0; c < block.num_columns; ++c) {
      values[r * block.num_columns + c] = bytes[c] ^ 128;
    }
  }
}

// Two's complement; a byte has one column of two rows.
void UnpackTrtAwq(const PackedBlock block, uint8_t* values) {
  for (int64_t r = 0; r < block.num_rows; ++r) {
    const uint8_t* bytes = block.bytes + (block.first + r) / 2 * block.num_columns;
    const int64_t shift = r % 2 * 4;
    for (int64_t c = 0; c < block.num_columns; ++c) {
      values[r * block.num_columns + c] = static_cast<uint8_t>((bytes[c] >> shift & 15) ^ 8);
    }
  }
}

}  // namespace

float ElementAsFloat(const CheckpointTensor& tensor, int64_t index) {
  const uint8_t* data = tensor.bytes.data();
  float value;
  if (tensor.type == CheckpointDataType::kF32) {
    std::memcpy(&value, data + index * 4, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, data + index * 2, 2);
  if (tensor.type == CheckpointDataType::kF16) return HalfToFloat(bits);
  const uint32_t wide = uint32_t{bits} << 16;
  std::memcpy(&value, &wide, 4);
  return value;
}

void ElementsAsFloat(const CheckpointTensor& tensor, int64_t first, int64_t count, float* to) {
  const uint8_t* const data = tensor.bytes.data();
  if (tensor.type == CheckpointDataType::kF32) {
    std::memcpy(to, data + first * 4, static_cast<size_t>(count) * 4);
    return;
  }
  const bool is_half = tensor.type == CheckpointDataType::kF16;
  for (int64_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, data + (first + i) * 2, 2);
    const uint32_t wide = uint32_t{bits} << 16;
    if (is_half) {
      to[i] = HalfToFloat(bits);
    } else {
      std::memcpy(to + i, &wide, 4);
    }
  }
}

IntegerWeightRows::IntegerWeightRows(const ResolvedWeight& weight)
    : weight_(&weight),
      num_stored_rows_(weight.source.tensor_shape[0]),
      num_columns_(weight.source.tensor_shape[1]),
      block_values_(kBlockRows * num_columns_) {
  const CheckpointTensor& scale = weight.quant.input_scale;
  if (scale.bytes.empty()) return;
  for (int64_t c = 0; c < num_columns_; ++c) input_scale_.push_back(ElementAsFloat(scale, c));
}

Result<IntegerWeightRows> IntegerWeightRows::Of(const ResolvedWeight& weight, int32_t max_bits) {
  if (weight.quant.num_bits == 0 || weight.quant.num_bits > max_bits) {
    return UnsupportedError(
        "'", weight.source.tensor,
        "': ", weight.quant.num_bits == 0 ? "weights that are not integers" : "8-bit weights",
        " are not supported by this backend");
  }
  IntegerWeightRows rows(weight);
  NEREID_RETURN_IF_ERROR(rows.OrderColumns());
  return rows;
}

// GPTQ with act-order assigns each column to a group. Sorts the columns by group, so that kernels
// can process equal groups together.
Status IntegerWeightRows::OrderColumns() {
  const CheckpointTensor& index = weight_->quant.group_index;
  if (index.bytes.empty()) return {};
  std::vector<int32_t> order(num_columns_);
  std::iota(order.begin(), order.end(), 0);
  const auto group_of = [&](int64_t column) { return Word(index, column); };
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return group_of(a) < group_of(b); });
  for (int64_t c = 0; c < num_columns_; ++c) {
    if (group_of(order[c]) != static_cast<uint64_t>(c / group_size())) {
      return InvalidArgError("tensor of group indices of '", weight_->source.tensor, "': column ",
                             order[c], " is in group ", static_cast<int32_t>(group_of(order[c])),
                             ", expected groups 0 to ", num_groups() - 1, " of ", group_size(),
                             " columns each");
    }
  }
  if (!std::is_sorted(order.begin(), order.end())) column_order_ = std::move(order);
  return {};
}

uint32_t IntegerWeightRows::Word(const CheckpointTensor& tensor, int64_t index) const {
  uint32_t word;
  std::memcpy(&word, tensor.bytes.data() + index * 4, 4);
  return word;
}

void IntegerWeightRows::FillBlock(int64_t block) {
  block_ = block;
  PackedBlock packed;
  packed.bytes = weight_->tensor.bytes.data();
  packed.first = kBlockRows * block;
  packed.num_rows = std::min(kBlockRows, num_stored_rows_ - packed.first);
  packed.num_columns = num_columns_;
  packed.num_stored_rows = num_stored_rows_;
  packed.num_bits = num_bits();
  packed.values_a_word = values_a_word();
  uint8_t* const values = block_values_.data();
  switch (weight_->quant.method) {
    case QuantMethod::kAwq:
      return UnpackAwq(packed, values);
    case QuantMethod::kGptq:
      return UnpackGptq(packed, values);
    case QuantMethod::kPacked:
      return UnpackPacked(packed, values);
    case QuantMethod::kInt8:
      return UnpackInt8(packed, values);
    default:
      return UnpackTrtAwq(packed, values);
  }
}

std::span<const uint8_t> IntegerWeightRows::Row(int64_t row) {
  const int64_t stored = weight_->source.SourceRow(row);
  if (stored / kBlockRows != block_) FillBlock(stored / kBlockRows);
  const uint8_t* values = block_values_.data() + stored % kBlockRows * num_columns_;
  if (column_order_.empty()) return {values, static_cast<size_t>(num_columns_)};
  ordered_.resize(num_columns_);
  for (int64_t c = 0; c < num_columns_; ++c) ordered_[c] = values[column_order_[c]];
  return ordered_;
}

float IntegerWeightRows::Scale(int64_t row, int64_t group) const {
  const QuantTensors& quant = weight_->quant;
  const int64_t stored = weight_->source.SourceRow(row);
  const bool by_group = quant.method == QuantMethod::kAwq || quant.method == QuantMethod::kGptq;
  const bool is_one = quant.scales.bytes.size() == Info(quant.scales.type).size_bytes;
  const int64_t index =
      by_group ? group * num_stored_rows_ + stored : stored * num_groups() + group;
  return ElementAsFloat(quant.scales, is_one ? 0 : index);
}

int32_t IntegerWeightRows::Zero(int64_t row, int64_t group) const {
  const QuantTensors& quant = weight_->quant;
  const int32_t middle = 1 << (quant.num_bits - 1);
  if (quant.zeros.bytes.empty()) return middle;
  const int64_t stored = weight_->source.SourceRow(row), n = values_a_word();
  if (quant.method == QuantMethod::kInt8) {
    return quant.zeros.bytes[quant.zeros.bytes.size() == 1 ? 0 : stored] ^ 128;
  }
  if (quant.method == QuantMethod::kPacked) {
    return ValueOf(Word(quant.zeros, stored / n * num_groups() + group), stored % n);
  }
  const uint32_t word = Word(quant.zeros, group * (num_stored_rows_ / n) + stored / n);
  const bool is_awq = quant.method == QuantMethod::kAwq;
  return ValueOf(word, is_awq ? kAwqNibble[stored % 8] : stored % n) + quant.zero_offset;
}

void IntegerWeightRows::ScalesAndZeros(int64_t first, int64_t count, int64_t group, float* scales,
                                       uint16_t* zeros) const {
  const QuantTensors& quant = weight_->quant;
  const bool by_group = quant.method == QuantMethod::kAwq || quant.method == QuantMethod::kGptq;
  const bool is_one = quant.scales.bytes.size() == Info(quant.scales.type).size_bytes;
  const bool lie_together = by_group && weight_->source.num_groups == 1;
  const int64_t stored = weight_->source.SourceRow(first), n = values_a_word();
  if (lie_together && !is_one) {
    ElementsAsFloat(quant.scales, group * num_stored_rows_ + stored, count, scales);
  } else {
    for (int64_t i = 0; i < count; ++i) scales[i] = Scale(first + i, group);
  }
  if (!lie_together || quant.zeros.bytes.empty() || stored % n != 0 || count % n != 0) {
    for (int64_t i = 0; i < count; ++i) zeros[i] = static_cast<uint16_t>(Zero(first + i, group));
    return;
  }
  const bool is_awq = quant.method == QuantMethod::kAwq;
  for (int64_t i = 0; i < count; i += n) {
    const uint32_t word = Word(quant.zeros, group * (num_stored_rows_ / n) + (stored + i) / n);
    for (int64_t j = 0; j < n; ++j) {
      const int32_t value = ValueOf(word, is_awq ? kAwqNibble[j] : j);
      zeros[i + j] = static_cast<uint16_t>(value + quant.zero_offset);
    }
  }
}

}  // namespace nereid::llm
