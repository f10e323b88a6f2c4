// The small ops (norms, activations, rope, embedding) compared with plain loops in double
// precision; odd sizes first.
#include <gtest/gtest.h>

#include <cmath>

#include "backends/cpu_reference/ops/op_table.h"
#include "tests/backends/cpu_reference/ops_fixture.h"

namespace nereid::cpu {
namespace {

using testing::Random;

class SmallOpsTest : public testing::OpsTest {};

TEST_P(SmallOpsTest, NormsEqualPlainLoops) {
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

TEST_P(SmallOpsTest, ActivationsEqualTheirFormulas) {
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
  const auto relu = run(ActivationKind::kRelu, nullptr),
             quick = run(ActivationKind::kQuickGelu, nullptr);
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
    EXPECT_NEAR(quick[i], x / (1.0 + std::exp(-1.702 * x)), slack);
  }
}

TEST_P(SmallOpsTest, RopeRotatesTheFirstDimensionsOfEachHead) {
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

TEST_P(SmallOpsTest, EmbeddingGathersRowsAndAddsPositions) {
  const std::vector<float> table = Random(10 * 21, 13), positions_table = Random(5 * 21, 14);
  const int32_t ids[] = {9, 0, 9}, positions[] = {4, 0, 1};
  std::vector<float> out(3 * 21);
  EmbeddingParams params;
  params.ids = ids;
  params.positions = positions;
  params.num_tokens = 3;
  params.table = {table.data(), WeightFormat::kF32, 10, 21};
  params.positions_table = {positions_table.data(), WeightFormat::kF32, 5, 21};
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

NEREID_TEST_ON_EVERY_ISA(SmallOpsTest);

}  // namespace
}  // namespace nereid::cpu
