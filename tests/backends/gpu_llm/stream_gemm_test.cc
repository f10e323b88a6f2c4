// The streaming product against a plain loop, over all row counts and sizes that end within a block's
// turn.
#include "gpu_llm/kernels/stream_gemm.h"

#include <random>

#include "gpu_test.h"

namespace nereid::gpu {
namespace {

using testing::Bf16Bits;
using testing::FromBf16;
using testing::RelativeError;
using testing::ToDevice;
using testing::ToHost;

struct Size {
  int num_outputs, depth;
};

class StreamGemmTest : public testing::GpuTest<::testing::TestWithParam<Size>> {
 protected:
  void SetUp() override {
    testing::GpuTest<::testing::TestWithParam<Size>>::SetUp();
    if (IsSkipped()) return;
    const auto [num_outputs, depth] = GetParam();
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<uint16_t>& values, size_t count) {
      values.resize(count);
      for (uint16_t& value : values) value = Bf16Bits(normal(random));
      return ToDevice(values);
    };
    device_weights_ = fill(weights_, static_cast<size_t>(num_outputs) * depth);
    device_in_ = fill(in_, static_cast<size_t>(kStreamMaxRows) * depth);
    device_norm_ = fill(norm_, depth);
    rows_ = ToDevice(std::vector<int32_t>{7, 6, 5, 4, 3, 2, 1, 0});
  }

  // [num_rows, num_outputs]
  std::vector<float> Reference(int num_rows, bool norms) const {
    std::vector<float> result;
    const auto [num_outputs, depth] = GetParam();
    for (int i = 0; i < num_rows; ++i) {
      const int row = norms ? 7 - i : i;
      std::vector<double> x(depth);
      double squares = 0.0;
      for (int k = 0; k < depth; ++k) {
        x[k] = FromBf16(in_[row * depth + k]);
        squares += x[k] * x[k];
      }
      for (int k = 0; norms && k < depth; ++k) {
        x[k] *= FromBf16(norm_[k]) / std::sqrt(squares / depth + 1e-5);
      }
      for (int output = 0; output < num_outputs; ++output) {
        double sum = 0.0;
        for (int k = 0; k < depth; ++k) sum += x[k] * FromBf16(weights_[output * depth + k]);
        result.push_back(static_cast<float>(sum));
      }
    }
    return result;
  }

  // `norms`: of the rows in reverse.
  void Run(int num_rows, StreamOutput output, bool norms, const DeviceMemory& out) {
    const auto [num_outputs, depth] = GetParam();
    ASSERT_TRUE(CanStream(num_rows, num_outputs, depth, norms));
    StreamGemm({device_weights_.as<__nv_bfloat16>(), device_in_.as<__nv_bfloat16>(),
                norms ? rows_.as<int32_t>() : nullptr,
                norms ? device_norm_.as<__nv_bfloat16>() : nullptr, out.data(), num_rows,
                num_outputs, depth, 1e-5f, output},
               132, nullptr);
    ASSERT_EQ(cudaGetLastError(), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }

  static std::vector<float> Floats(const std::vector<uint16_t>& bits) {
    std::vector<float> values;
    for (const uint16_t value : bits) values.push_back(FromBf16(value));
    return values;
  }

  std::vector<uint16_t> weights_, in_, norm_;
  DeviceMemory device_weights_, device_in_, device_norm_, rows_;
};

TEST_P(StreamGemmTest, FloatsEqualAPlainLoop) {
  for (int rows = 1; rows <= kStreamMaxRows; ++rows) {
    const size_t count = static_cast<size_t>(rows) * GetParam().num_outputs;
    const DeviceMemory out = ToDevice(std::vector<float>(count, NAN));
    Run(rows, StreamOutput::kFloat, false, out);
    EXPECT_LT(RelativeError(ToHost<float>(out, count), Reference(rows, false)), 1e-5) << rows;
    if (rows % 3 == 0 || static_cast<int64_t>(rows) * GetParam().depth > 48000) continue;
    Run(rows, StreamOutput::kFloat, true, out);  // the normed row is rounded to bf16
    EXPECT_LT(RelativeError(ToHost<float>(out, count), Reference(rows, true)), 4e-3) << rows;
  }
}

TEST_P(StreamGemmTest, SumsAndGatesEqualAPlainLoop) {
  const int rows = 5, outputs = GetParam().num_outputs;
  const std::vector<float> product = Reference(rows, false);
  const std::vector<uint16_t> before(rows * outputs, Bf16Bits(3.0f));
  std::vector<float> sums = product, gated(rows * outputs / 2);
  for (float& sum : sums) sum += 3.0f;
  for (int row = 0; row < rows; ++row) {
    for (int i = 0; i < outputs / 2; ++i) {
      const float* pair = &product[row * outputs + i / 8 * 16 + i % 8];
      gated[row * outputs / 2 + i] = pair[0] / (1.0f + std::exp(-pair[0])) * pair[8];
    }
  }
  const DeviceMemory out = ToDevice(before);
  Run(rows, StreamOutput::kAdd, false, out);
  EXPECT_LT(RelativeError(Floats(ToHost<uint16_t>(out, before.size())), sums), 4e-3);
  Run(rows, StreamOutput::kBf16, false, out);
  EXPECT_LT(RelativeError(Floats(ToHost<uint16_t>(out, before.size())), product), 4e-3);
  Run(rows, StreamOutput::kSiluGate, false, out);
  EXPECT_LT(RelativeError(Floats(ToHost<uint16_t>(out, gated.size())), gated), 4e-3);
}

INSTANTIATE_TEST_SUITE_P(Sizes, StreamGemmTest,
                         ::testing::Values(Size{16, 256}, Size{32, 4096}, Size{400, 768},
                                           Size{9616, 512}, Size{64, 14336}),
                         [](const auto& info) {
                           return std::to_string(info.param.num_outputs) + "x" +
                                  std::to_string(info.param.depth);
                         });

}  // namespace
}  // namespace nereid::gpu
