// Rows quantized to fp8 against their input; matrix products of fp8 by fp8 against a plain loop
// over the quantized numbers.
#include "backends/gpu_llm/kernels/gemm/gemm_input.h"

#include <random>

#include "backends/gpu_llm/model/linear.h"
#include "tests/backends/gpu_llm/gpu_test.h"

namespace nereid::gpu {
namespace {

using testing::Bf16Bits;
using testing::FromBf16;
using testing::FromFp8;
using testing::RelativeError;
using testing::ToDevice;
using testing::ToHost;

class QuantizeRowsTest : public testing::GpuTest<::testing::Test> {
 protected:
  std::vector<uint16_t> Normal(size_t count) {
    std::normal_distribution<float> normal;
    std::vector<uint16_t> values(count);
    for (uint16_t& value : values) value = Bf16Bits(normal(random_));
    return values;
  }
  std::mt19937 random_{7};
};

TEST_F(QuantizeRowsTest, RowsAreWithinHalfAStepOfTheInput) {
  for (const int depth : {16, 744, 4096, 14336}) {
    const int num_rows = 5;
    std::vector<uint16_t> in = Normal(static_cast<size_t>(num_rows) * depth);
    const std::vector<uint16_t> norm = Normal(depth);
    std::fill_n(in.begin() + 2 * depth, depth, 0);  // a row of zeros
    in[depth + 3] = Bf16Bits(3000.0f);              // an outlier in its row
    const std::vector<int32_t> rows = {4, 2, 0, 3, 1};
    const DeviceMemory device_in = ToDevice(in), device_norm = ToDevice(norm),
                       device_rows = ToDevice(rows);
    const DeviceMemory out = ToDevice(std::vector<uint8_t>(num_rows * depth, 0x7f));
    const DeviceMemory factors = ToDevice(std::vector<float>(num_rows, NAN));
    for (const bool norms : {false, true}) {
      QuantizeRows({device_in.as<__nv_bfloat16>(), device_rows.as<int32_t>(),
                    norms ? device_norm.as<__nv_bfloat16>() : nullptr, out.as<uint8_t>(),
                    factors.as<float>(), num_rows, depth, 1e-5f},
                   nullptr);
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      const auto bytes = ToHost<uint8_t>(out, static_cast<size_t>(num_rows) * depth);
      const auto factor = ToHost<float>(factors, num_rows);
      for (int row = 0; row < num_rows; ++row) {
        const uint16_t* from = &in[static_cast<size_t>(rows[row]) * depth];
        double squares = 0.0;
        for (int c = 0; c < depth; ++c) squares += std::pow(double{FromBf16(from[c])}, 2);
        const double root = norms ? 1.0 / std::sqrt(squares / depth + 1e-5) : 1.0;
        for (int c = 0; c < depth; ++c) {
          const double expected = FromBf16(from[c]) * root * (norms ? FromBf16(norm[c]) : 1.0f);
          const double got =
              double{FromFp8(bytes[static_cast<size_t>(row) * depth + c])} * factor[row];
          // Three mantissa bits, or a step of the smallest exponent.
          ASSERT_NEAR(got, expected, std::abs(expected) / 15.9 + factor[row] * 0x1p-9)
              << depth << ' ' << row << ' ' << c;
        }
      }
    }
  }
}

TEST_F(QuantizeRowsTest, ProductsOfFp8EqualAPlainLoop) {
  for (const auto& [outputs, depth] : {std::pair{48, 256}, {400, 736}, {4096, 512}, {64, 14336}}) {
    std::vector<uint8_t> bytes(static_cast<size_t>(outputs) * depth);
    for (uint8_t& byte : bytes) {
      do byte = static_cast<uint8_t>(random_());
      while ((byte & 0x7f) == 0x7f);
    }
    std::vector<float> scales;
    for (int i = 0; i < outputs; ++i) scales.push_back(0.01f + static_cast<float>(i % 7));
    const DeviceMemory device_weights = ToDevice(bytes), device_scales = ToDevice(scales);
    GpuWeights weights;
    weights.lm_head.format = WeightFormat::kFp8;
    weights.lm_head.data = device_weights.data();
    weights.lm_head.row_scales = device_scales.as<float>();
    weights.lm_head.num_outputs = outputs;
    weights.lm_head.depth = depth;
    weights.lm_head.quantizes_input = true;
    auto runner = LinearRunner::Create(weights, 300, 132);
    ASSERT_TRUE(runner.ok()) << runner.status().message();
    for (const int rows : {9, 33, 64, 257}) {
      const std::vector<uint16_t> in = Normal(static_cast<size_t>(rows) * depth);
      const DeviceMemory device_in = ToDevice(in);
      const DeviceMemory rounded = ToDevice(std::vector<uint8_t>(in.size()));
      const DeviceMemory factors = ToDevice(std::vector<float>(rows));
      QuantizeRows({device_in.as<__nv_bfloat16>(), nullptr, nullptr, rounded.as<uint8_t>(),
                    factors.as<float>(), rows, depth, 0.0f},
                   nullptr);
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      const auto x = ToHost<uint8_t>(rounded, in.size());
      const auto factor = ToHost<float>(factors, rows);
      std::vector<float> expected, sums;
      for (int row = 0; row < rows; ++row) {
        for (int output = 0; output < outputs; ++output) {
          double sum = 0.0;
          for (int k = 0; k < depth; ++k) {
            sum += double{FromFp8(x[static_cast<size_t>(row) * depth + k])} *
                   FromFp8(bytes[static_cast<size_t>(output) * depth + k]);
          }
          expected.push_back(static_cast<float>(sum * factor[row] * scales[output]));
          sums.push_back(expected.back() + 3.0f);
        }
      }
      const std::vector<uint16_t> before(expected.size(), Bf16Bits(3.0f));
      const DeviceMemory out = ToDevice(before);
      LinearCall call;
      call.weights = &weights.lm_head;
      call.in = device_in.as<__nv_bfloat16>();
      call.output = GemmEpilogue::kAdd;
      call.out = out.data();
      const Status status = runner->Run(call, rows, true, nullptr);
      ASSERT_TRUE(status.ok()) << status.message();
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      std::vector<float> got;
      for (const uint16_t bits : ToHost<uint16_t>(out, expected.size()))
        got.push_back(FromBf16(bits));
      // bf16 output, and sums of 14 bits in the tensor cores.
      EXPECT_LT(RelativeError(got, sums), 1e-2) << rows << ' ' << outputs << ' ' << depth;
    }
  }
}

}  // namespace
}  // namespace nereid::gpu
