// Packing of every layout into strips by vectors, compared with the same rows value by value.
// (test_weight_formats.py compares the rows with NumPy.)
#include "backends/cpu_reference/model/integer_strips.h"

#include <gtest/gtest.h>

#include <random>

#include "backends/llm_core/model/integer_weight_rows.h"

namespace nereid::cpu {
namespace {

using llm::QuantMethod;

// A quantized tensor with `stored` rows, of which `rows` rows from `first` on form the matrix. All
// bytes are random.
struct Stored {
  Stored(QuantMethod method, int32_t bits, int64_t stored, int64_t columns, int64_t first,
         int64_t rows, bool in_order) {
    const int64_t groups = 2, n = 32 / bits;
    weight.source = llm::RowsOf("w.weight", stored, columns, first, rows);
    weight.quant.method = method;
    weight.quant.num_bits = bits;
    weight.quant.group_size = columns / groups;
    Fill(packed, stored * columns / n * 4);
    Fill(zeros, groups * stored / n * 4);
    weight.tensor.bytes = packed;
    weight.quant.zeros.bytes = zeros;
    weight.quant.scales.type = llm::CheckpointDataType::kF16;
    for (int64_t i = 0; i < groups * stored; ++i) {
      scales.push_back(static_cast<uint8_t>(random()));
      scales.push_back(static_cast<uint8_t>(random() % 64));  // finite
    }
    weight.quant.scales.bytes = scales;
    if (in_order) return;
    std::vector<int32_t> of_column(static_cast<size_t>(columns));
    for (int64_t c = 0; c < columns; ++c) of_column[c] = static_cast<int32_t>(c % groups);
    std::shuffle(of_column.begin(), of_column.end(), random);
    const auto* bytes = reinterpret_cast<const uint8_t*>(of_column.data());
    group_index.assign(bytes, bytes + of_column.size() * 4);
    weight.quant.group_index.bytes = group_index;
  }
  void Fill(std::vector<uint8_t>& bytes, int64_t size) {
    for (int64_t i = 0; i < size; ++i) bytes.push_back(static_cast<uint8_t>(random()));
  }

  std::mt19937 random{5};
  std::vector<uint8_t> packed, zeros, scales, group_index;
  llm::ResolvedWeight weight;
};

WeightMatrix ShapeOf(const llm::IntegerWeightRows& rows) {
  WeightMatrix matrix;
  matrix.type = rows.num_bits() == 4 ? WeightFormat::kInt4 : WeightFormat::kInt8;
  matrix.rows = rows.num_rows();
  matrix.columns = rows.num_columns();
  matrix.group_size = rows.group_size();
  return matrix;
}

// Reads a value from the strip layout described in WeightFormat.
int ValueIn(const std::vector<uint8_t>& strips, const WeightMatrix& matrix, int64_t row,
            int64_t column) {
  const bool is_int4 = matrix.type == WeightFormat::kInt4;
  const int64_t a_line = is_int4 ? 8 : 4;
  const uint8_t byte =
      strips[row / 16 * matrix.strip_bytes() + column / a_line * 64 + 4 * (row % 16) + column % 4];
  return !is_int4 ? byte : column % 8 < 4 ? byte & 15 : byte >> 4;
}

void ExpectStrips(const Stored& stored) {
  llm::IntegerWeightRows rows = *llm::IntegerWeightRows::Of(stored.weight, 8);
  const WeightMatrix matrix = ShapeOf(rows);
  const int64_t size = matrix.num_strips() * matrix.strip_bytes();
  std::vector<uint8_t> strips(static_cast<size_t>(size), 0xA5);
  ASSERT_TRUE(PackStrips(stored.weight, rows.column_order(), matrix, strips.data()));
  for (int64_t row = 0; row < matrix.rows; ++row) {
    const std::span<const uint8_t> values = rows.Row(row);
    for (int64_t c = 0; c < matrix.columns; ++c) {
      ASSERT_EQ(ValueIn(strips, matrix, row, c), values[c]) << "row " << row << ", column " << c;
    }
  }
  for (int64_t row = matrix.rows; row < matrix.num_strips() * 16; ++row) {
    for (int64_t c = 0; c < matrix.columns; ++c) EXPECT_EQ(ValueIn(strips, matrix, row, c), 0);
  }
}

struct Shape {
  int64_t stored, columns, first, rows;
};
constexpr Shape kShapes[] = {{8, 16, 0, 8},      {16, 8, 0, 16},    {40, 24, 0, 40},
                             {48, 32, 8, 24},    {272, 16, 0, 272}, {536, 40, 16, 520},
                             {1048, 8, 0, 1048}, {64, 264, 32, 32}};

TEST(IntegerStrips, ContainTheValuesOfTheRows) {
  for (const Shape& s : kShapes) {
    for (const QuantMethod method :
         {QuantMethod::kAwq, QuantMethod::kGptq, QuantMethod::kPacked, QuantMethod::kTrtAwq}) {
      SCOPED_TRACE(::testing::Message() << static_cast<int>(method) << ": rows from " << s.first
                                        << " of " << s.stored << ", columns " << s.columns);
      ExpectStrips(Stored(method, 4, s.stored, s.columns, s.first, s.rows, true));
    }
  }
}

TEST(IntegerStrips, ContainColumnsInTheOrderOfTheirGroups) {
  for (const Shape& s : kShapes) {
    SCOPED_TRACE(::testing::Message() << s.stored << " by " << s.columns);
    ExpectStrips(Stored(QuantMethod::kGptq, 4, s.stored, s.columns, s.first, s.rows, false));
  }
}

TEST(IntegerStrips, ContainInt8Values) {
  for (const Shape& s : kShapes) {
    for (const QuantMethod method :
         {QuantMethod::kGptq, QuantMethod::kPacked, QuantMethod::kInt8}) {
      SCOPED_TRACE(::testing::Message() << static_cast<int>(method) << ": rows from " << s.first
                                        << " of " << s.stored << ", columns " << s.columns);
      ExpectStrips(Stored(method, 8, s.stored, s.columns, s.first, s.rows, true));
    }
  }
}

TEST(IntegerStrips, RejectLayoutsThatMustBePackedByRows) {
  const auto is_taken = [](const Stored& stored) {
    llm::IntegerWeightRows rows = *llm::IntegerWeightRows::Of(stored.weight, 8);
    const WeightMatrix matrix = ShapeOf(rows);
    std::vector<uint8_t> strips(static_cast<size_t>(matrix.num_strips() * matrix.strip_bytes()));
    return PackStrips(stored.weight, rows.column_order(), matrix, strips.data());
  };
  EXPECT_TRUE(is_taken(Stored(QuantMethod::kAwq, 4, 32, 16, 8, 16, true)));
  EXPECT_FALSE(is_taken(Stored(QuantMethod::kAwq, 4, 32, 16, 4, 16, true)));
  EXPECT_FALSE(is_taken(Stored(QuantMethod::kGptq, 4, 32, 16, 0, 12, true)));
  EXPECT_FALSE(is_taken(Stored(QuantMethod::kGptq, 8, 32, 16, 0, 16, false)));
  EXPECT_FALSE(is_taken(Stored(QuantMethod::kPacked, 8, 32, 16, 0, 16, false)));
  EXPECT_FALSE(is_taken(Stored(QuantMethod::kPacked, 4, 32, 16, 0, 16, false)));
  EXPECT_FALSE(is_taken(Stored(QuantMethod::kTrtAwq, 4, 32, 16, 4, 16, true)));
  EXPECT_FALSE(is_taken(Stored(QuantMethod::kInt8, 8, 32, 16, 4, 16, true)));
}

TEST(IntegerStrips, ScalesOfManyRowsAreThoseOfEach) {
  for (const QuantMethod method : {QuantMethod::kAwq, QuantMethod::kGptq, QuantMethod::kPacked}) {
    const Stored stored(method, 4, 48, 32, 16, 32, true);
    const llm::IntegerWeightRows rows = *llm::IntegerWeightRows::Of(stored.weight, 8);
    for (int64_t group = 0; group < rows.num_groups(); ++group) {
      float scales[32];
      uint16_t zeros[32];
      rows.ScalesAndZeros(0, 32, group, scales, zeros);
      for (int64_t row = 0; row < 32; ++row) {
        EXPECT_EQ(scales[row], rows.Scale(row, group));
        EXPECT_EQ(zeros[row], rows.Zero(row, group));
      }
    }
  }
}

}  // namespace
}  // namespace nereid::cpu
