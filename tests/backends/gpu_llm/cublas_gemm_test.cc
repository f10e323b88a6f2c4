// Matrix products by cuBLASLt for row counts that share an algorithm, during and after the trial.
#include "backends/gpu_llm/model/cublas_gemm.h"

#include <random>

#include "tests/backends/gpu_llm/gpu_test.h"

namespace nereid::gpu {
namespace {

using testing::Bf16Bits;
using testing::FromBf16;
using testing::RelativeError;
using testing::ToDevice;
using testing::ToHost;

constexpr int kOutputs = 192, kDepth = 320, kRoom = 640;
// bf16 results: 2^-9 each, relative.
constexpr double kCublasTolerance = 1e-2;
// Candidates of three row counts twice, three of them twice more.
constexpr int kMaxCalls = 3 * 16 * 2 + 3 * 2 + 1;

class GemmTest : public testing::GpuTest<::testing::Test> {
 protected:
  void SetUp() override {
    testing::GpuTest<::testing::Test>::SetUp();
    if (IsSkipped()) return;
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (auto* values : {&weights_, &in_, &before_}) {
      values->resize(values == &weights_ ? kOutputs * kDepth
                     : values == &in_    ? kRoom * kDepth
                                         : kRoom * kOutputs);
      for (uint16_t& value : *values) value = Bf16Bits(normal(random));
    }
  }

  std::vector<float> Reference(int num_rows, bool accumulates) const {
    std::vector<float> result;
    for (int row = 0; row < num_rows; ++row) {
      for (int output = 0; output < kOutputs; ++output) {
        double sum = accumulates ? FromBf16(before_[row * kOutputs + output]) : 0.0;
        for (int i = 0; i < kDepth; ++i)
          sum += double{FromBf16(in_[row * kDepth + i])} * FromBf16(weights_[output * kDepth + i]);
        result.push_back(static_cast<float>(sum));
      }
    }
    return result;
  }

  std::vector<uint16_t> weights_, in_, before_;
};

TEST_F(GemmTest, EveryCallIsCorrectDuringAndAfterTheTrial) {
  CublasGemm gemm = std::move(*CublasGemm::Create());
  const DeviceMemory weights = ToDevice(weights_), in = ToDevice(in_);
  for (const bool accumulates : {false, true}) {
    for (const int num_rows : {1, 7, 300, 257, 575, 576, 577, 640}) {
      const std::vector<float> expected = Reference(num_rows, accumulates);
      int num_calls = 0;
      for (bool is_settled = false; !is_settled; ++num_calls) {
        ASSERT_LT(num_calls, kMaxCalls) << num_rows;
        const DeviceMemory out = ToDevice(before_);
        CublasGemmCall call;
        call.weights = weights.data();
        call.in = in.data();
        call.out = out.data();
        call.num_rows = num_rows;
        call.row_capacity = kRoom;
        call.num_outputs = kOutputs;
        call.depth = kDepth;
        call.accumulates = accumulates;
        ASSERT_TRUE(gemm.Run(call, true, nullptr).ok());
        ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
        is_settled = gemm.TakeNumTrials() == 0;
        std::vector<float> got;
        for (const uint16_t bits : ToHost<uint16_t>(out, size_t{1} * num_rows * kOutputs))
          got.push_back(FromBf16(bits));
        ASSERT_LT(RelativeError(got, expected), kCublasTolerance)
            << num_rows << (accumulates ? " added, call " : ", call ") << num_calls;
      }
    }
  }
}

TEST_F(GemmTest, AnErrorOfTheLibraryNamesItsReason) {
  CublasGemm gemm = std::move(*CublasGemm::Create());
  const DeviceMemory in = ToDevice(in_), out = ToDevice(before_);
  CublasGemmCall call;  // without weights
  call.in = in.data();
  call.out = out.data();
  call.num_rows = 8;
  call.num_outputs = kOutputs;
  call.depth = kDepth;
  const Status status = gemm.Run(call, false, nullptr);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.message(), StrCat("cuBLASLt: product of 8 x 320 by 192 failed: ",
                                     cublasLtGetStatusString(CUBLAS_STATUS_INVALID_VALUE)));
}

}  // namespace
}  // namespace nereid::gpu
