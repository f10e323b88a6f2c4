// Each op, on every instruction set of this machine, against a plain loop in double precision; odd
// sizes first. Where a result must not depend on the batch, equality is bit by bit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "cpu_reference/ops/op_table.h"

namespace nereid::cpu {
namespace {

std::vector<float> Random(size_t count, uint32_t seed, float scale = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

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

class OpsTest : public ::testing::TestWithParam<const OpTable*> {
 protected:
  const OpTable& ops() const { return *GetParam(); }
};

// ---- matmul

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

TEST_P(OpsTest, MatmulEqualsAPlainLoop) {
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

TEST_P(OpsTest, MatmulOfBf16EqualsAPlainLoop) {
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

TEST_P(OpsTest, MatmulGivesTheSameBitsForAnyRowsAndRanges) {
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

// ---- quantised weights

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

TEST_P(OpsTest, MatmulOfInt4GivesTheBitsOfTheSameWeightsAsFloats) {
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

TEST_P(OpsTest, MatmulReadsEveryFp8Exactly) {
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

TEST_P(OpsTest, MatmulReadsEveryFiniteHalfExactly) {
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

// ---- norms, activations, rope

TEST_P(OpsTest, NormsEqualPlainLoops) {
  for (const int64_t size : {1, 5, 16, 31, 64, 100}) {
    const std::vector<float> in = Random(3 * size, 4), weight = Random(size, 5),
                             bias = Random(size, 6);
    std::vector<float> rms(3 * size), layer(3 * size);
    ops().rms_norm({in.data(), size, weight.data(), 1e-5f, 3, size, rms.data(), size, false});
    ops().layer_norm({in.data(), weight.data(), bias.data(), 1e-5f, 3, size, layer.data()});
    for (int64_t row = 0; row < 3; ++row) {
      double mean = 0, squares = 0, variance = 0;
      for (int64_t i = 0; i < size; ++i) mean += in[row * size + i] / static_cast<double>(size);
      for (int64_t i = 0; i < size; ++i) {
        squares += double{in[row * size + i]} * in[row * size + i] / static_cast<double>(size);
        variance += std::pow(in[row * size + i] - mean, 2) / static_cast<double>(size);
      }
      for (int64_t i = 0; i < size; ++i) {
        const double value = in[row * size + i];
        EXPECT_NEAR(rms[row * size + i], value / std::sqrt(squares + 1e-5) * weight[i], 1e-5);
        EXPECT_NEAR(layer[row * size + i],
                    (value - mean) / std::sqrt(variance + 1e-5) * weight[i] + bias[i], 1e-5);
      }
    }
  }
}

TEST_P(OpsTest, ActivationsEqualTheirFormulas) {
  std::vector<float> in;
  for (float x = -100.0f; x <= 100.0f; x += 0.37f) in.push_back(x);
  const std::vector<float> factors = Random(in.size(), 7);
  const auto run = [&](ActivationKind kind, const float* gate) {
    std::vector<float> values = in;
    ops().activation({kind, values.data(), gate, static_cast<int64_t>(values.size())});
    return values;
  };
  const auto silu = run(ActivationKind::kSilu, nullptr),
             gated = run(ActivationKind::kSilu, factors.data());
  const auto gelu = run(ActivationKind::kGelu, nullptr),
             tanh = run(ActivationKind::kGeluTanh, nullptr);
  const auto relu = run(ActivationKind::kRelu, nullptr);
  for (size_t i = 0; i < in.size(); ++i) {
    const double x = in[i];
    const double slack = 1e-6 * (1.0 + std::abs(x));
    EXPECT_NEAR(silu[i], x / (1.0 + std::exp(-x)), slack);
    EXPECT_FLOAT_EQ(gated[i], silu[i] * factors[i]);
    EXPECT_NEAR(gelu[i], 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0))), slack);
    EXPECT_NEAR(tanh[i],
                0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x))),
                slack);
    EXPECT_EQ(relu[i], x > 0 ? in[i] : 0.0f);
  }
}

TEST_P(OpsTest, RopeRotatesTheFirstDimensionsOfEachHead) {
  const std::vector<float> before = Random(2 * 3 * 40, 8);
  std::vector<float> heads = before, cos(2 * 17), sin(2 * 17);
  for (size_t i = 0; i < cos.size(); ++i) {
    cos[i] = std::cos(static_cast<float>(i));
    sin[i] = std::sin(static_cast<float>(i));
  }
  ops().rope({heads.data(), cos.data(), sin.data(), 2, 3, 40, 34});
  for (int token = 0; token < 2; ++token) {
    for (int head = 0; head < 3; ++head) {
      const float* from = before.data() + (token * 3 + head) * 40;
      const float* to = heads.data() + (token * 3 + head) * 40;
      for (int i = 0; i < 17; ++i) {
        const float c = cos[token * 17 + i], s = sin[token * 17 + i];
        EXPECT_NEAR(to[i], from[i] * c - from[i + 17] * s, 1e-6);
        EXPECT_NEAR(to[i + 17], from[i + 17] * c + from[i] * s, 1e-6);
      }
      for (int i = 34; i < 40; ++i) EXPECT_EQ(to[i], from[i]);
    }
  }
}

// ---- attention over the paged cache

class Attention {
 public:
  Attention(const OpTable& ops, int32_t head_dim, int32_t tokens) : ops_(ops), tokens_(tokens) {
    view_.num_kv_heads = 2;
    view_.head_dim = head_dim;
    view_.value_size = (head_dim + 15) / 16 * 16;
    const int32_t blocks = (tokens + kBlockSize - 1) / kBlockSize + 3;
    keys_.assign(blocks * 2 * view_.key_block_size(), 1e30f);  // what others left behind
    values_.assign(blocks * 2 * view_.value_block_size(), 1e30f);
    view_.keys = keys_.data();
    view_.values = values_.data();
    for (int32_t i = 0; i + 3 < blocks; ++i) table_.push_back((i * 5 + 2) % (blocks - 3) + 3);
    k_ = Random(tokens * 2 * head_dim, 9);
    v_ = Random(tokens * 2 * head_dim, 10);
    // Written in two runs, as chunks are.
    const int32_t half = tokens / 2;
    Write(0, half);
    Write(half, tokens - half);
  }

  // Row i of `queries` sees contexts[i] tokens.
  std::vector<float> Run(const std::vector<float>& queries, const std::vector<int32_t>& contexts,
                         int32_t window, float cap, int32_t sinks = 0) {
    const size_t d = view_.head_dim;
    std::vector<float> out(contexts.size() * d), scratch(kMaxRowsAtOnce * (tokens_ + kBlockSize));
    std::vector<AttentionRow> rows;
    for (size_t i = 0; i < contexts.size(); ++i) {
      rows.push_back({queries.data() + i * d, out.data() + i * d, contexts[i]});
    }
    PagedAttentionParams params;
    params.rows = rows.data();
    params.num_rows = static_cast<int32_t>(rows.size());
    params.kv_head = 1;
    params.window = window;
    params.num_sinks = sinks;
    params.block_table = table_.data();
    params.cache = view_;
    params.scale = 0.3f;
    params.soft_cap = cap;
    params.scratch = scratch.data();
    ops_.paged_attention(params);
    return out;
  }

  std::vector<double> Plain(const float* query, int32_t context, int32_t window, float cap,
                            int32_t sinks = 0) const {
    const int32_t d = view_.head_dim;
    const int32_t first = window > 0 ? std::max(0, context - window + sinks) : 0;
    std::vector<int32_t> seen;
    for (int32_t t = 0; t < context; ++t) {
      if (t >= first || t < sinks || context <= window) seen.push_back(t);
    }
    std::vector<double> scores, out(d);
    double sum = 0.0, max = -1e300;
    for (const int32_t t : seen) {
      double score = 0.0;
      for (int32_t i = 0; i < d; ++i) score += double{query[i]} * k_[(t * 2 + 1) * d + i];
      score *= 0.3;
      if (cap > 0) score = std::tanh(score / cap) * cap;
      scores.push_back(score);
      max = std::max(max, score);
    }
    for (double& score : scores) sum += score = std::exp(score - max);
    for (size_t t = 0; t < scores.size(); ++t) {
      for (int32_t i = 0; i < d; ++i) {
        out[i] += scores[t] / sum * v_[(seen[t] * 2 + 1) * d + i];
      }
    }
    return out;
  }

 private:
  void Write(int32_t first, int32_t count) {
    const int64_t offset = int64_t{first} * 2 * view_.head_dim;
    ops_.paged_kv_write(
        {k_.data() + offset, v_.data() + offset, count, first, table_.data(), view_, 0, 2});
  }

  const OpTable& ops_;
  const int32_t tokens_;
  KvCacheView view_;
  std::vector<float> keys_, values_, k_, v_;
  std::vector<int32_t> table_;
};

TEST_P(OpsTest, PagedAttentionEqualsAPlainLoop) {
  for (const int32_t head_dim : {8, 16, 40, 64, 80, 128}) {
    Attention attention(ops(), head_dim, 100);
    for (const int32_t num_queries : {1, 3, 8}) {
      const std::vector<float> queries = Random(num_queries * head_dim, 11);
      for (const int32_t context : {1, 15, 16, 17, 33, 100}) {
        for (const int32_t window : {0, 1, 16, 20}) {
          for (const float cap : {0.0f, 5.0f}) {
            const std::vector<float> out =
                attention.Run(queries, std::vector<int32_t>(num_queries, context), window, cap);
            for (int32_t q = 0; q < num_queries; ++q) {
              const std::vector<double> plain =
                  attention.Plain(queries.data() + q * head_dim, context, window, cap);
              for (int32_t i = 0; i < head_dim; ++i) {
                ASSERT_NEAR(out[q * head_dim + i], plain[i], 2e-5)
                    << "head_dim " << head_dim << ", context " << context << ", window " << window;
              }
            }
          }
        }
      }
    }
  }
}

TEST_P(OpsTest, PagedAttentionKeepsSightOfTheSinks) {
  for (const int32_t head_dim : {16, 40}) {
    Attention attention(ops(), head_dim, 200);
    const std::vector<int32_t> contexts = {200, 199, 120, 41, 40, 39, 3, 1, 150};
    const std::vector<float> queries = Random(static_cast<int64_t>(contexts.size()) * head_dim, 21);
    for (const int32_t sinks : {1, 4, 16, 20}) {
      for (const int32_t window : {24, 40, 64}) {
        for (const float cap : {0.0f, 5.0f}) {
          const std::vector<float> out = attention.Run(queries, contexts, window, cap, sinks);
          for (size_t q = 0; q < contexts.size(); ++q) {
            const std::vector<double> plain =
                attention.Plain(queries.data() + q * head_dim, contexts[q], window, cap, sinks);
            for (int32_t i = 0; i < head_dim; ++i) {
              ASSERT_NEAR(out[q * head_dim + i], plain[i], 2e-5)
                  << "context " << contexts[q] << ", window " << window << ", sinks " << sinks;
            }
            ASSERT_EQ(attention.Run({queries.begin() + static_cast<ptrdiff_t>(q * head_dim),
                                     queries.begin() + static_cast<ptrdiff_t>((q + 1) * head_dim)},
                                    {contexts[q]}, window, cap, sinks),
                      std::vector<float>(out.begin() + static_cast<ptrdiff_t>(q * head_dim),
                                         out.begin() + static_cast<ptrdiff_t>((q + 1) * head_dim)));
          }
        }
      }
    }
  }
}

TEST_P(OpsTest, PagedAttentionGivesARowTheSameBitsInAnyCompany) {
  Attention attention(ops(), 48, 70);
  const std::vector<float> queries = Random(9 * 48, 12);
  const std::vector<int32_t> contexts = {14, 15, 16, 17, 18, 33, 70, 1, 2};
  for (const int32_t window : {0, 5, 16, 40}) {
    const std::vector<float> together = attention.Run(queries, contexts, window, 0.0f);
    for (int q = 0; q < 9; ++q) {
      const std::vector<float> one(queries.begin() + q * 48, queries.begin() + (q + 1) * 48);
      const std::vector<float> alone = attention.Run(one, {contexts[q]}, window, 0.0f);
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + q * 48)) << q;
    }
  }
}

TEST_P(OpsTest, EmbeddingGathersRowsAndAddsPositions) {
  const std::vector<float> table = Random(10 * 21, 13), positions_table = Random(5 * 21, 14);
  const int32_t ids[] = {9, 0, 9}, positions[] = {4, 0, 1};
  std::vector<float> out(3 * 21);
  EmbeddingParams params;
  params.ids = ids;
  params.positions = positions;
  params.num_tokens = 3;
  params.table = {table.data(), WeightType::kF32, 10, 21};
  params.positions_table = {positions_table.data(), WeightType::kF32, 5, 21};
  params.scale = 2.0f;
  params.out = out.data();
  ops().embedding(params);
  for (int t = 0; t < 3; ++t) {
    for (int i = 0; i < 21; ++i) {
      EXPECT_NEAR(out[t * 21 + i],
                  2.0f * table[ids[t] * 21 + i] + positions_table[positions[t] * 21 + i], 1e-6);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, OpsTest, ::testing::ValuesIn(AvailableOps()),
                         [](const auto& info) { return std::string(info.param->isa); });

}  // namespace
}  // namespace nereid::cpu
