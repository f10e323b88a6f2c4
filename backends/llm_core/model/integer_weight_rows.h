// Rows of an integer weight matrix in any of the checkpoint layouts: AWQ, GPTQ, compressed-tensors
// or TensorRT-LLM. weight[r][c] = (Row(r)[c] - Zero(r, g)) * Scale(r, g), with c in the order of
// column_order() and g = c / group_size(). Executors repack the rows at load for their kernels. For
// some layouts they have faster conversions of their own. Borrows the checkpoint. [load thread]
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/llm_core/model/weight_map.h"
#include "nereid/status.h"

namespace nereid::llm {

class IntegerWeightRows {
 public:
  // `weight` must be resolved with an integer method. UNSUPPORTED if it has more than `max_bits` (4
  // or 8); INVALID_ARG if the group indices do not form groups of equal size.
  static Result<IntegerWeightRows> Of(const ResolvedWeight& weight, int32_t max_bits = 4);

  int32_t num_bits() const { return weight_->quant.num_bits; }
  int64_t num_rows() const { return weight_->source.num_rows(); }
  int64_t num_columns() const { return num_columns_; }
  int64_t group_size() const { return weight_->quant.group_size; }
  int64_t num_groups() const { return (num_columns_ + group_size() - 1) / group_size(); }
  // The input column of each column (act-order); empty: the same.
  const std::vector<int32_t>& column_order() const { return column_order_; }
  // Factors on the input columns, by input column; empty: none.
  const std::vector<float>& input_scale() const { return input_scale_; }

  // Values from 0 to 15 or 255, [num_columns]; valid until the next call.
  std::span<const uint8_t> Row(int64_t row);
  float Scale(int64_t row, int64_t group) const;
  int32_t Zero(int64_t row, int64_t group) const;  // 0 to 16, or 0 to 256
  // Scales and zeros of rows [first, first + count), [count] each.
  void ScalesAndZeros(int64_t first, int64_t count, int64_t group, float* scales,
                      uint16_t* zeros) const;

 private:
  explicit IntegerWeightRows(const ResolvedWeight& weight);
  Status OrderColumns();
  // Number of stored rows that are unpacked at once. Most layouts have several rows in a word, and
  // neighbouring words are on the same page.
  static constexpr int64_t kBlockRows = 32;
  void FillBlock(int64_t block);
  uint32_t Word(const CheckpointTensor& tensor, int64_t index) const;
  // Value number `index` of a word.
  uint8_t ValueOf(uint32_t word, int64_t index) const {
    const int32_t bits = num_bits();
    return static_cast<uint8_t>(word >> (bits * index) & ((1u << bits) - 1));
  }
  int64_t values_a_word() const { return 32 / num_bits(); }

  const ResolvedWeight* weight_;
  int64_t num_stored_rows_ = 0;
  int64_t num_columns_ = 0;
  std::vector<int32_t> column_order_;
  std::vector<float> input_scale_;
  int64_t block_ = -1;
  std::vector<uint8_t> block_values_;  // [kBlockRows, num_columns]
  std::vector<uint8_t> ordered_;       // [num_columns]
};

// Element `index` of a tensor of type F32, F16 or BF16.
float ElementAsFloat(const CheckpointTensor& tensor, int64_t index);
// Elements [first, first + count) of such a tensor.
void ElementsAsFloat(const CheckpointTensor& tensor, int64_t first, int64_t count, float* to);

}  // namespace nereid::llm
