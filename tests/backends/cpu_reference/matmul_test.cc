// The matrix product for every weight format, compared with a plain loop in double precision; odd
// sizes first. Results that must not depend on the batch are compared bit by bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cpu_reference/ops/op_table.h"
#include "tests/backends/cpu_reference/ops_fixture.h"
#include "tests/support/bf16.h"

namespace nereid::cpu {
namespace {

using testing::Random;

class MatmulTest : public testing::OpsTest {};

struct Product {
  std::vector<float> in, weights, bias;
  std::vector<uint16_t> halves;
  int64_t rows, outputs, columns;
  mutable std::vector<float> scratch;

  Product(int64_t rows, int64_t outputs, int64_t columns)
      : in(Random(rows * columns, 1)),
        weights(Random(outputs * columns, 2)),
        bias(Random(outputs, 3)),
        rows(rows),
        outputs(outputs),
        columns(columns),
        scratch(MatmulScratchFloats(rows, columns)) {
    for (float& weight : weights) {
      halves.push_back(Bf16Bits(weight));
      weight = FromBf16(halves.back());
    }
  }

  MatmulParams Params(WeightFormat type, float* out) const {
    MatmulParams params;
    params.in = in.data();
    params.num_rows = rows;
    params.weights = {
        type == WeightFormat::kBf16 ? static_cast<const void*>(halves.data()) : weights.data(),
        type, outputs, columns};
    params.bias = bias.data();
    params.out = out;
    params.out_stride = outputs;
    params.last_output = outputs;
    params.scratch = scratch.data();
    return params;
  }
};

TEST_P(MatmulTest, MatmulEqualsAPlainLoop) {
  for (const int64_t rows : {1, 2, 3, 5, 6, 7, 13, 31}) {
    for (const int64_t columns : {1, 15, 16, 17, 64, 100}) {
      for (const int64_t outputs : {1, 3, 4, 8, 9, 33, 50}) {
        const Product product(rows, outputs, columns);
        std::vector<float> out(rows * outputs, 1.0f);
        MatmulParams params = product.Params(WeightFormat::kF32, out.data());
        params.accumulate = true;
        ops().matmul(params);
        for (int64_t m = 0; m < rows; ++m) {
          for (int64_t n = 0; n < outputs; ++n) {
            double sum = 1.0 + product.bias[n];
            for (int64_t k = 0; k < columns; ++k) {
              sum += double{product.in[m * columns + k]} * product.weights[n * columns + k];
            }
            ASSERT_NEAR(out[m * outputs + n], sum, 1e-4)
                << rows << "x" << outputs << "x" << columns;
          }
        }
      }
    }
  }
}

TEST_P(MatmulTest, MatmulOfBf16EqualsAPlainLoop) {
  for (const int64_t rows : {1, 2, 16, 17, 40}) {
    for (const int64_t columns : {1, 31, 32, 100, 1030}) {
      const Product product(rows, 37, columns);
      std::vector<float> floats(rows * 37, 1.0f), halves(rows * 37, 1.0f);
      for (const bool is_half : {false, true}) {
        MatmulParams params = product.Params(is_half ? WeightFormat::kBf16 : WeightFormat::kF32,
                                             is_half ? halves.data() : floats.data());
        params.accumulate = true;
        ops().matmul(params);
      }
      // AMX keeps 16 bits of mantissa of the inputs.
      const float slack = ops().isa == "amx" ? 1e-3f : 0.0f;
      for (size_t i = 0; i < floats.size(); ++i) ASSERT_NEAR(halves[i], floats[i], slack);
    }
  }
}

TEST_P(MatmulTest, MatmulGivesTheSameBitsForAnyRowsAndRanges) {
  const Product product(29, 75, 90);
  for (const WeightFormat type : {WeightFormat::kF32, WeightFormat::kBf16}) {
    std::vector<float> whole(29 * 75), alone(29 * 75), ranges(29 * 75);
    ops().matmul(product.Params(type, whole.data()));
    for (int64_t row = 0; row < 29; ++row) {
      MatmulParams params = product.Params(type, alone.data() + row * 75);
      params.in += row * 90;
      params.num_rows = 1;
      ops().matmul(params);
    }
    EXPECT_EQ(whole, alone);
    const int64_t cuts[] = {0, 1, 6, 8, 41, 42, 75};
    for (size_t i = 0; i + 1 < std::size(cuts); ++i) {
      MatmulParams params = product.Params(type, ranges.data());
      params.first_output = cuts[i];
      params.last_output = cuts[i + 1];
      ops().matmul(params);
    }
    EXPECT_EQ(whole, ranges);
  }
}

// Random integer weights in strips, and the same weights as doubles.
struct IntegerProduct {
  std::vector<uint8_t> packed;
  std::vector<uint16_t> zeros;
  std::vector<float> in, scales;
  std::vector<double> plain;  // [outputs, columns]
  int64_t rows;
  WeightMatrix matrix;

  IntegerProduct(WeightFormat type, int64_t rows, int64_t outputs, int64_t columns,
                 int64_t group_size)
      : in(Random(rows * columns, 21)), plain(outputs * columns), rows(rows) {
    matrix.type = type;
    matrix.rows = outputs;
    matrix.columns = columns;
    matrix.group_size = group_size;
    const bool is_4 = type == WeightFormat::kInt4;
    const int64_t groups = matrix.num_groups();
    packed.resize(matrix.num_strips() * matrix.strip_bytes());
    scales.resize(matrix.num_strips() * groups * 16);
    zeros.resize(scales.size());
    std::mt19937 random(23);
    std::normal_distribution<float> normal(0.0f, 0.1f);
    for (int64_t row = 0; row < outputs; ++row) {
      for (int64_t group = 0; group < groups; ++group) {
        const int64_t at = (row / 16 * groups + group) * 16 + row % 16;
        scales[at] = normal(random);
        zeros[at] = static_cast<uint16_t>(random() % (is_4 ? 17 : 257));
      }
      for (int64_t c = 0; c < columns; ++c) {
        const uint32_t value = random() % (is_4 ? 16 : 256);
        uint8_t* strip = packed.data() + row / 16 * matrix.strip_bytes() + row % 16 * 4 + c % 4;
        strip[is_4 ? c / 8 * 64 : c / 4 * 64] |=
            static_cast<uint8_t>(is_4 && c % 8 >= 4 ? value << 4 : value);
        const int64_t at = (row / 16 * groups + c / group_size) * 16 + row % 16;
        plain[row * columns + c] = (static_cast<double>(value) - zeros[at]) * scales[at];
      }
    }
    matrix.data = packed.data();
    matrix.group_scales = scales.data();
    matrix.group_zeros = zeros.data();
  }
};

// Converts the input of a product with integer weights.
std::vector<uint8_t> ToFixedPoint(const OpTable& ops, const float* in, int64_t rows,
                                  const FixedPointLayout& layout, uint8_t*& first) {
  std::vector<uint8_t> out(rows * layout.row_bytes() + 64);
  first = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(out.data()) + 63) / 64 * 64);
  ops.fixed_point({in, rows, layout, first});
  return out;
}

struct IntegerCase {
  int64_t columns, group_size;
};
constexpr IntegerCase kIntegerCases[] = {{256, 128}, {128, 16},  {192, 64},  {72, 72},
                                         {200, 32},  {384, 384}, {512, 256}, {1032, 1032}};

TEST_P(MatmulTest, MatmulOfIntegersEqualsAPlainLoop) {
  for (const WeightFormat type : {WeightFormat::kInt4, WeightFormat::kInt8}) {
    for (const IntegerCase& size : kIntegerCases) {
      for (const int64_t rows : {1, 2, 3, 4, 5, 17, 33}) {
        const IntegerProduct product(type, rows, 37, size.columns, size.group_size);
        const FixedPointLayout layout = FixedPointLayout::For(product.matrix);
        uint8_t* fixed_point;
        const auto memory = ToFixedPoint(ops(), product.in.data(), rows, layout, fixed_point);
        const std::vector<float> bias = Random(37, 24);
        std::vector<float> out(rows * 37, 1.0f), scratch(MatmulScratchFloats(rows, size.columns));
        MatmulParams params;
        params.fixed_point = fixed_point;
        params.num_rows = rows;
        params.weights = product.matrix;
        params.bias = bias.data();
        params.out = out.data();
        params.out_stride = params.last_output = 37;
        params.accumulate = true;
        params.scratch = scratch.data();
        ops().matmul(params);
        for (int64_t m = 0; m < rows; ++m) {
          for (int64_t n = 0; n < 37; ++n) {
            double sum = 1.0 + bias[n], size_of_all = 1.0;
            for (int64_t k = 0; k < size.columns; ++k) {
              const double x = product.in[m * size.columns + k];
              sum += x * product.plain[n * size.columns + k];
              size_of_all += std::abs(x * product.plain[n * size.columns + k]);
            }
            ASSERT_NEAR(out[m * 37 + n], sum, 1e-6 * size_of_all)
                << rows << " rows, " << size.columns << " columns in groups of " << size.group_size;
          }
        }
      }
    }
  }
}

TEST_P(MatmulTest, MatmulOfIntegersGivesTheSameBitsForAnyRowsAndRanges) {
  for (const WeightFormat type : {WeightFormat::kInt4, WeightFormat::kInt8}) {
    for (const IntegerCase& size : kIntegerCases) {
      const IntegerProduct product(type, 21, 75, size.columns, size.group_size);
      const FixedPointLayout layout = FixedPointLayout::For(product.matrix);
      uint8_t* fixed_point;
      const auto memory = ToFixedPoint(ops(), product.in.data(), 21, layout, fixed_point);
      std::vector<float> whole(21 * 75), parts(21 * 75),
          scratch(MatmulScratchFloats(21, size.columns));
      MatmulParams params;
      params.fixed_point = fixed_point;
      params.num_rows = 21;
      params.weights = product.matrix;
      params.out = whole.data();
      params.out_stride = params.last_output = 75;
      params.scratch = scratch.data();
      ops().matmul(params);
      for (const int64_t rows_at_once : {1, 2, 3, 4, 6}) {
        std::fill(parts.begin(), parts.end(), 0.0f);
        for (int64_t row = 0; row < 21; row += rows_at_once) {
          params.fixed_point = fixed_point + row * layout.row_bytes();
          params.num_rows = std::min<int64_t>(rows_at_once, 21 - row);
          params.out = parts.data() + row * 75;
          const int64_t cuts[] = {0, 1, 11, 16, 32, 75};
          for (size_t i = 0; i + 1 < std::size(cuts); ++i) {
            params.first_output = cuts[i];
            params.last_output = cuts[i + 1];
            ops().matmul(params);
          }
        }
        ASSERT_EQ(parts, whole) << size.columns << " columns in groups of " << size.group_size;
      }
    }
  }
}

TEST_P(MatmulTest, FixedPointKeepsNonFiniteValues) {
  const IntegerProduct product(WeightFormat::kInt4, 1, 16, 256, 128);
  std::vector<float> in = product.in;
  in[200] = std::numeric_limits<float>::infinity();
  const FixedPointLayout layout = FixedPointLayout::For(product.matrix);
  uint8_t* fixed_point;
  const auto memory = ToFixedPoint(ops(), in.data(), 1, layout, fixed_point);
  std::vector<float> out(16), scratch(MatmulScratchFloats(1, 256));
  MatmulParams params;
  params.fixed_point = fixed_point;
  params.num_rows = 1;
  params.weights = product.matrix;
  params.out = out.data();
  params.out_stride = params.last_output = 16;
  params.scratch = scratch.data();
  ops().matmul(params);
  for (const float value : out) EXPECT_TRUE(std::isnan(value)) << value;
}

TEST_P(MatmulTest, MatmulReadsEveryFp8Exactly) {
  std::vector<uint8_t> bytes;
  std::vector<float> scales;
  for (int b = 0; b < 256; ++b) {
    if ((b & 0x7f) == 0x7f) continue;
    bytes.push_back(static_cast<uint8_t>(b));
    scales.push_back(static_cast<float>(b % 3 + 1));
  }
  const float one = 1.0f;
  std::vector<float> out(bytes.size());
  MatmulParams params;
  params.in = &one;
  params.num_rows = 1;
  params.weights = {bytes.data(), WeightFormat::kF8E4M3, static_cast<int64_t>(bytes.size()), 1};
  params.weights.row_scales = scales.data();
  params.out = out.data();
  params.out_stride = params.last_output = params.weights.rows;
  ops().matmul(params);
  for (size_t i = 0; i < bytes.size(); ++i) {
    const int exponent = bytes[i] >> 3 & 15;
    const double mantissa = (bytes[i] & 7) / 8.0;
    double value =
        exponent == 0 ? std::ldexp(mantissa, -6) : std::ldexp(1.0 + mantissa, exponent - 7);
    if ((bytes[i] & 0x80) != 0) value = -value;
    EXPECT_EQ(out[i], value * scales[i]) << int{bytes[i]};
  }
}

TEST_P(MatmulTest, MatmulReadsEveryFiniteHalfExactly) {
  std::vector<uint16_t> halves;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    if ((bits & 0x7c00) != 0x7c00) halves.push_back(static_cast<uint16_t>(bits));
  }
  const float one = 1.0f;
  std::vector<float> out(halves.size());
  MatmulParams params;
  params.in = &one;
  params.num_rows = 1;
  params.weights = {halves.data(), WeightFormat::kF16, static_cast<int64_t>(halves.size()), 1};
  params.out = out.data();
  params.out_stride = params.last_output = params.weights.rows;
  ops().matmul(params);
  for (size_t i = 0; i < halves.size(); ++i) {
    const int exponent = halves[i] >> 10 & 31;
    const double mantissa = (halves[i] & 1023) / 1024.0;
    double value =
        exponent == 0 ? std::ldexp(mantissa, -14) : std::ldexp(1.0 + mantissa, exponent - 15);
    if ((halves[i] & 0x8000) != 0) value = -value;
    ASSERT_EQ(out[i], static_cast<float>(value)) << halves[i];
  }
}

NEREID_TEST_ON_EVERY_ISA(MatmulTest);

}  // namespace
}  // namespace nereid::cpu
