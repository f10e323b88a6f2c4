// The matrix product, of every kind of weights, against a plain loop in double precision; odd sizes
// first. What must not depend on the batch is compared bit by bit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "cpu_reference/ops/op_table.h"
#include "ops_fixture.h"

namespace nereid::cpu {
namespace {

using testing::Random;

class MatmulTest : public testing::OpsTest {};

uint16_t ToBf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return static_cast<uint16_t>(bits >> 16);
}
float FromBf16(uint16_t half) {
  const uint32_t bits = uint32_t{half} << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

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
      halves.push_back(ToBf16(weight));
      weight = FromBf16(halves.back());
    }
  }

  MatmulParams Params(WeightType type, float* out) const {
    MatmulParams params;
    params.in = in.data();
    params.num_rows = rows;
    params.weights = {
        type == WeightType::kBf16 ? static_cast<const void*>(halves.data()) : weights.data(), type,
        outputs, columns};
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
        MatmulParams params = product.Params(WeightType::kF32, out.data());
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
        MatmulParams params = product.Params(is_half ? WeightType::kBf16 : WeightType::kF32,
                                             is_half ? halves.data() : floats.data());
        params.accumulate = true;
        ops().matmul(params);
      }
      // The tile unit takes an input in 16 bits of mantissa.
      const float slack = ops().isa == "amx" ? 1e-3f : 0.0f;
      for (size_t i = 0; i < floats.size(); ++i) ASSERT_NEAR(halves[i], floats[i], slack);
    }
  }
}

TEST_P(MatmulTest, MatmulGivesTheSameBitsForAnyRowsAndRanges) {
  const Product product(29, 75, 90);
  for (const WeightType type : {WeightType::kF32, WeightType::kBf16}) {
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

// Random int4 weights in the layout of WeightType::kInt4, and the same as floats.
struct Int4Product {
  std::vector<uint8_t> packed, zeros;
  std::vector<float> in, scales, floats;
  int64_t rows, outputs, columns, group_size;

  Int4Product(int64_t rows, int64_t outputs, int64_t columns, int64_t group_size)
      : in(Random(rows * columns, 21)),
        floats(outputs * columns),
        rows(rows),
        outputs(outputs),
        columns(columns),
        group_size(group_size) {
    const WeightMatrix matrix = Matrix();
    packed.resize(outputs * matrix.row_bytes());
    scales = Random(outputs * matrix.num_groups(), 22, 0.1f);
    std::mt19937 random(23);
    for (int64_t i = 0; i < outputs * matrix.num_groups(); ++i) zeros.push_back(random() % 17);
    for (int64_t row = 0; row < outputs; ++row) {
      for (int64_t c = 0; c < columns; ++c) {
        const uint32_t value = random() % 16;
        const int64_t word = row * matrix.row_bytes() + c / 128 * 64 + c % 16 * 4;
        const int64_t nibble = c % 128 / 16;
        packed[word + nibble / 2] |= static_cast<uint8_t>(value << (nibble % 2 * 4));
        const int64_t group = row * matrix.num_groups() + c / group_size;
        floats[row * columns + c] = (static_cast<float>(value) - zeros[group]) * scales[group];
      }
    }
  }
  WeightMatrix Matrix() const {
    WeightMatrix matrix;
    matrix.data = packed.data();
    matrix.type = WeightType::kInt4;
    matrix.rows = outputs;
    matrix.columns = columns;
    matrix.group_scales = scales.data();
    matrix.group_zeros = zeros.data();
    matrix.group_size = group_size;
    return matrix;
  }
};

TEST_P(MatmulTest, MatmulOfInt4GivesTheBitsOfTheSameWeightsAsFloats) {
  struct Case {
    int64_t columns, group_size;
  };
  for (const Case& size : {Case{256, 128}, Case{128, 16}, Case{192, 64}, Case{72, 72},
                           Case{200, 32}, Case{384, 384}}) {
    const Int4Product product(9, 37, size.columns, size.group_size);
    std::vector<float> expected(9 * 37), out(9 * 37), scratch(MatmulScratchFloats(9, size.columns));
    MatmulParams params;
    params.in = product.in.data();
    params.num_rows = 9;
    params.weights = {product.floats.data(), WeightType::kF32, 37, size.columns};
    params.out = expected.data();
    params.out_stride = params.last_output = 37;
    ops().matmul(params);
    params.weights = product.Matrix();
    params.scratch = scratch.data();
    for (const int64_t rows_at_once : {1, 2, 3, 4, 9}) {
      for (int64_t row = 0; row < 9; row += rows_at_once) {
        params.in = product.in.data() + row * size.columns;
        params.num_rows = std::min<int64_t>(rows_at_once, 9 - row);
        params.out = out.data() + row * 37;
        params.first_output = 0;
        params.last_output = 11;
        ops().matmul(params);
        params.first_output = 11;
        params.last_output = 37;
        ops().matmul(params);
      }
      EXPECT_EQ(out, expected) << size.columns << " columns in groups of " << size.group_size;
    }
  }
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
  params.weights = {bytes.data(), WeightType::kF8E4M3, static_cast<int64_t>(bytes.size()), 1};
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
  params.weights = {halves.data(), WeightType::kF16, static_cast<int64_t>(halves.size()), 1};
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
