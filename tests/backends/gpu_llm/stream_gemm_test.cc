// The stream GEMM against a plain loop, for all formats and row counts, with sizes that end within
// a block's turn, a stage or a group of scales; dequantized weights against the same numbers.
#include "backends/gpu_llm/kernels/gemm/gemm.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <random>
#include <span>

#include "backends/gpu_llm/kernel_registry.h"
#include "backends/gpu_llm/kernels/gemm/gemm_input.h"
#include "backends/gpu_llm/kernels/gemm/weight_kernels.h"
#include "backends/llm_core/model/decoder_spec.h"
#include "nereid/status.h"
#include "tests/backends/gpu_llm/gpu_test.h"

namespace nereid::gpu {
namespace {

using testing::Bf16Bits;
using testing::FromBf16;
using testing::FromFp8;
using testing::RelativeError;
using testing::ToDevice;
using testing::ToHost;

struct GemmCase {
  WeightFormat format;
  int num_outputs, depth;
  int scales_per_block = 1;
  bool has_block_scales = false;
};

class StreamGemmTest : public testing::GpuTest<::testing::TestWithParam<GemmCase>> {
 protected:
  void SetUp() override {
    testing::GpuTest<::testing::TestWithParam<GemmCase>>::SetUp();
    if (IsSkipped()) return;
    const GemmCase& given = GetParam();
    matrix_.format = given.format;
    matrix_.num_outputs = given.num_outputs;
    matrix_.depth = given.depth;
    matrix_.scales_per_block = given.scales_per_block;
    weights_.resize(static_cast<size_t>(given.num_outputs) * given.depth);
    switch (given.format) {
      case WeightFormat::kBf16:
        MakeBf16();
        break;
      case WeightFormat::kFp8:
        MakeFp8();
        break;
      case WeightFormat::kInt4:
        MakeInt4();
        break;
    }
    matrix_.data = device_weights_.data();
    matrix_.row_scales = device_scales_.as<float>();
    if (given.has_block_scales) matrix_.block_scales = device_block_scales_.as<uint32_t>();
    device_in_ = Normal(in_, static_cast<size_t>(kStreamMaxRows) * given.depth);
    device_norm_ = Normal(norm_, given.depth);
    std::vector<int32_t> rows(kStreamMaxRows);
    for (int i = 0; i < kStreamMaxRows; ++i) rows[i] = kStreamMaxRows - 1 - i;
    rows_ = ToDevice(rows);
    partials_ = ToDevice(std::vector<float>(kPartials, NAN));
    tickets_ = ToDevice(std::vector<int32_t>(kMaxSplitTickets, 0));
    device_bias_ = Normal(bias_, given.num_outputs);
  }

  DeviceMemory Normal(std::vector<uint16_t>& values, size_t count) {
    std::normal_distribution<float> normal;
    values.resize(count);
    for (uint16_t& value : values) value = Bf16Bits(normal(random_));
    return ToDevice(values);
  }
  void MakeBf16() {
    std::vector<uint16_t> bits;
    device_weights_ = Normal(bits, weights_.size());
    for (size_t i = 0; i < bits.size(); ++i) weights_[i] = FromBf16(bits[i]);
  }
  void MakeFp8() {
    std::vector<uint8_t> bytes(weights_.size());
    std::vector<float> scales;
    std::vector<uint32_t> block_scales(NumFp8BlockScales(matrix_.num_outputs, matrix_.depth));
    // Scales have at most four significant bits, so that a weight times its scale is exact in bf16.
    for (uint32_t& word : block_scales) {
      const auto some = [&] { return Bf16Bits(0.125f * static_cast<float>(4 + random_() % 11)); };
      word = some();
      word |= uint32_t{some()} << 16;
    }
    for (int row = 0; row < matrix_.num_outputs; ++row) {
      scales.push_back(0.01f + static_cast<float>(row % 7));
      for (int c = 0; c < matrix_.depth; ++c) {
        const size_t i = static_cast<size_t>(row) * matrix_.depth + c;
        do bytes[i] = static_cast<uint8_t>(random_());  // all values but the two that are NaN
        while ((bytes[i] & 0x7f) == 0x7f);
        float scale = scales.back();
        if (GetParam().has_block_scales) {
          const uint32_t word =
              block_scales[c / kFp8BlockColumns * NumFp8Tiles(matrix_.num_outputs) +
                           row / kFp8TileRows];
          scale *= FromBf16(static_cast<uint16_t>(
              row % kFp8TileRows < kFp8ScaleRows ? word & 0xffffu : word >> 16));
        }
        weights_[i] = FromFp8(bytes[i]) * scale;
      }
    }
    device_block_scales_ = ToDevice(block_scales);
    device_weights_ = ToDevice(bytes);
    device_scales_ = ToDevice(scales);
  }
  void MakeInt4() {
    const int per_block = matrix_.scales_per_block, group = kInt4BlockColumns / per_block;
    const int64_t tile_bytes = Int4TileBytes(matrix_.depth, per_block);
    std::vector<uint32_t> words(matrix_.num_outputs / kInt4TileRows * tile_bytes / 4);
    std::uniform_real_distribution<float> some(0.5f, 2.0f);
    for (int row = 0; row < matrix_.num_outputs; ++row) {
      float scale = 0.0f;
      int zero = 0;
      for (int c = 0; c < matrix_.depth; ++c) {
        uint32_t* block = words.data() + row / kInt4TileRows * tile_bytes / 4 +
                          c / kInt4BlockColumns * Int4BlockBytes(per_block) / 4;
        if (c % group == 0) {
          scale = FromBf16(Bf16Bits(some(random_)));
          zero = static_cast<int>(random_() % 17);
          block[kInt4ValueBytes / 4 + c % kInt4BlockColumns / group * kInt4TileRows +
                row % kInt4TileRows] = Int4ScaleWord(scale, zero);
        }
        const uint32_t value = random_() % 16;
        const Int4Location place = LocateInInt4Block(row % kInt4TileRows, c % kInt4BlockColumns);
        block[place.word] |= value << place.shift;
        weights_[static_cast<size_t>(row) * matrix_.depth + c] =
            static_cast<float>(static_cast<int>(value) - zero) * scale;
      }
    }
    device_weights_ = ToDevice(words);
  }

  // [num_rows, num_outputs]; `norms`: of the rows in reverse order.
  std::vector<float> Reference(int num_rows, bool norms) const {
    std::vector<float> result;
    const int num_outputs = matrix_.num_outputs, depth = matrix_.depth;
    for (int i = 0; i < num_rows; ++i) {
      const int row = norms ? kStreamMaxRows - 1 - i : i;
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
        const float* weights = &weights_[static_cast<size_t>(output) * depth];
        double sum = 0.0;
        for (int k = 0; k < depth; ++k) sum += x[k] * weights[k];
        result.push_back(static_cast<float>(sum));
      }
    }
    return result;
  }

  void Run(int num_rows, GemmEpilogue output, bool norms, const DeviceMemory& out,
           const llm::Activation* activation = nullptr) {
    ASSERT_TRUE(CanStream(CurrentForm(), matrix_, num_rows, norms));
    StreamGemmParams params = {};
    params.weights = matrix_;
    params.in = device_in_.as<__nv_bfloat16>();
    params.rows = norms ? rows_.as<int32_t>() : nullptr;
    params.norm_weight = norms ? device_norm_.as<__nv_bfloat16>() : nullptr;
    params.out = out.data();
    params.num_rows = num_rows;
    params.epsilon = 1e-5f;
    params.output = output;
    if (activation != nullptr)
      params.bias = device_bias_.as<__nv_bfloat16>(), params.activation = *activation;
    StreamGemm(params, kProcessors, nullptr);
    ASSERT_EQ(cudaGetLastError(), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }

  // What a kernel with biases and an activation makes of the product [.., num_outputs].
  std::vector<float> Finished(std::span<const float> product, GemmEpilogue output,
                              llm::Activation kind) const {
    std::vector<float> sums(product.begin(), product.end()), gated;
    const int outputs = matrix_.num_outputs;
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += FromBf16(bias_[i % outputs]);
    if (output == GemmEpilogue::kAdd) {
      for (float& sum : sums) sum += 3.0f;
      return sums;
    }
    if (output == GemmEpilogue::kActivate) {
      for (float& sum : sums) sum = Activated(kind, sum);
      return sums;
    }
    for (size_t i = 0; i < sums.size() / 2; ++i) {
      const float* pair = &sums[i / 8 * 16 + i % 8];
      gated.push_back(Activated(kind, pair[0]) * pair[8]);
    }
    return gated;
  }
  static float Activated(llm::Activation kind, float x) {
    switch (kind) {
      case llm::Activation::kSilu:
        return x / (1.0f + std::exp(-x));
      case llm::Activation::kGelu:
        return 0.5f * x * (1.0f + std::erf(x * 0.70710678f));
      case llm::Activation::kGeluTanh:
        return 0.5f * x * (1.0f + std::tanh(0.7978845608f * (x + 0.044715f * x * x * x)));
      case llm::Activation::kQuickGelu:
        return x / (1.0f + std::exp(-1.702f * x));
      case llm::Activation::kRelu:
        break;
    }
    return std::max(x, 0.0f);
  }

  SplitScratch scratch() const {
    return {partials_.as<float>(), tickets_.as<int32_t>(), kPartials};
  }
  void ExpectTicketsAreZero() const {
    const std::vector<int32_t> left = ToHost<int32_t>(tickets_, kMaxSplitTickets);
    EXPECT_EQ(std::count(left.begin(), left.end(), 0), kMaxSplitTickets);
  }

  static std::vector<float> Floats(const std::vector<uint16_t>& bits) {
    std::vector<float> values;
    for (const uint16_t value : bits) values.push_back(FromBf16(value));
    return values;
  }

  std::mt19937 random_{5};
  WeightMatrix matrix_;
  std::vector<float> weights_;
  std::vector<uint16_t> in_, norm_, bias_;
  DeviceMemory device_weights_, device_scales_, device_in_, device_norm_, device_bias_, rows_;
  DeviceMemory device_block_scales_, partials_, tickets_;
  static constexpr int kProcessors = 132;
  static constexpr int64_t kPartials = int64_t{16} << 20;
};

constexpr llm::Activation kActivations[] = {llm::Activation::kSilu, llm::Activation::kGelu,
                                            llm::Activation::kGeluTanh, llm::Activation::kRelu,
                                            llm::Activation::kQuickGelu};
constexpr GemmEpilogue kFinishes[] = {GemmEpilogue::kAdd, GemmEpilogue::kActivate,
                                      GemmEpilogue::kGate};

TEST_P(StreamGemmTest, FloatsEqualAPlainLoop) {
  const std::vector<float> product = Reference(kStreamMaxRows, false);
  const std::vector<float> normed = Reference(kStreamMaxRows, true);
  // For int4 weights a kernel may round the input to integers whose largest has 14 bits.
  const double tolerance = matrix_.format == WeightFormat::kInt4 ? 4e-5 : 1e-5;
  for (const int rows : {1, 2, 3, 5, 8, 9, 15, 16}) {
    if (!CanStream(CurrentForm(), matrix_, rows, false)) continue;
    const size_t count = static_cast<size_t>(rows) * matrix_.num_outputs;
    const DeviceMemory out = ToDevice(std::vector<float>(count, NAN));
    Run(rows, GemmEpilogue::kFloat, false, out);
    EXPECT_LT(RelativeError(ToHost<float>(out, count), std::span(product).first(count)), tolerance)
        << rows;
    if (!CanStream(CurrentForm(), matrix_, rows, true)) continue;
    Run(rows, GemmEpilogue::kFloat, true, out);  // rows times the norm's weights are rounded
    EXPECT_LT(RelativeError(ToHost<float>(out, count), std::span(normed).first(count)), 4e-3)
        << rows;
  }
}

TEST_P(StreamGemmTest, SumsAndGatesEqualAPlainLoop) {
  for (const int rows : {4, 11}) {
    if (!CanStream(CurrentForm(), matrix_, rows, false)) continue;
    const int outputs = matrix_.num_outputs;
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
    Run(rows, GemmEpilogue::kAdd, false, out);
    EXPECT_LT(RelativeError(Floats(ToHost<uint16_t>(out, before.size())), sums), 4e-3);
    Run(rows, GemmEpilogue::kBf16, false, out);
    EXPECT_LT(RelativeError(Floats(ToHost<uint16_t>(out, before.size())), product), 4e-3);
    Run(rows, GemmEpilogue::kSiluGate, false, out);
    EXPECT_LT(RelativeError(Floats(ToHost<uint16_t>(out, gated.size())), gated), 4e-3);
  }
}

TEST_P(StreamGemmTest, BiasesAndActivationsEqualAPlainLoop) {
  if (!testing::HasNativeKernels()) GTEST_SKIP() << "separate kernels in this form";
  for (const int rows : {1, 8, 11}) {
    if (!CanStream(CurrentForm(), matrix_, rows, false)) continue;
    const std::vector<float> product = Reference(rows, false);
    for (const llm::Activation kind : kActivations) {
      for (const GemmEpilogue output : kFinishes) {
        const std::vector<float> expected = Finished(product, output, kind);
        const std::vector<uint16_t> before(product.size(), Bf16Bits(3.0f));
        const DeviceMemory to = ToDevice(before);
        Run(rows, output, false, to, &kind);
        EXPECT_LT(RelativeError(Floats(ToHost<uint16_t>(to, expected.size())), expected), 4e-3)
            << rows << " rows, epilogue " << static_cast<int>(output) << ", activation "
            << static_cast<int>(kind);
      }
    }
  }
}

TEST_P(StreamGemmTest, DequantizedWeightsAreEqual) {
  if (matrix_.format == WeightFormat::kBf16) GTEST_SKIP() << "nothing to unpack";
  const DeviceMemory out = ToDevice(std::vector<uint16_t>(weights_.size(), 0x7fff));
  Dequantize(matrix_, out.as<__nv_bfloat16>(), nullptr);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const std::vector<uint16_t> got = ToHost<uint16_t>(out, weights_.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], Bf16Bits(weights_[i])) << i;
}

// Row counts up to and above a block's, every split of the depth, and sizes that end within a step
// or leave warps without outputs or blocks without a slice.
TEST_P(StreamGemmTest, SplitGemmEqualsAPlainLoop) {
  constexpr int kMostRows = 257;
  // The portable kernel takes bf16 inputs alone.
  const bool is_fp8 = matrix_.format == WeightFormat::kFp8 && testing::HasNativeKernels();
  matrix_.quantizes_input = is_fp8;
  ASSERT_TRUE(CanSplit(CurrentForm(), matrix_));
  const int outputs = matrix_.num_outputs, depth = matrix_.depth;
  const size_t in_count = static_cast<size_t>(kMostRows) * depth;
  std::vector<float> x, row_factors(kMostRows, 1.0f);
  DeviceMemory in;
  if (is_fp8) {
    std::vector<uint8_t> bytes(in_count);
    for (uint8_t& byte : bytes) {
      do byte = static_cast<uint8_t>(random_());
      while ((byte & 0x7f) == 0x7f);
      x.push_back(FromFp8(byte));
    }
    for (int row = 0; row < kMostRows; ++row)
      row_factors[row] = 0.25f + static_cast<float>(row % 3);
    in = ToDevice(bytes);
  } else {
    std::vector<uint16_t> bits;
    in = Normal(bits, in_count);
    for (const uint16_t one : bits) x.push_back(FromBf16(one));
  }
  const DeviceMemory factors = ToDevice(row_factors);
  std::vector<float> product(static_cast<size_t>(kMostRows) * outputs);
  for (int output = 0; output < outputs; ++output) {
    std::vector<float> weights(&weights_[static_cast<size_t>(output) * depth],
                               &weights_[static_cast<size_t>(output) * depth] + depth);
    // Rounded as in the kernel, which applies the scales of fp8 rows to the sums.
    if (matrix_.format != WeightFormat::kFp8) {
      for (float& weight : weights) weight = FromBf16(Bf16Bits(weight));
    }
    for (int row = 0; row < kMostRows; ++row) {
      double sum = 0.0;
      const float* from = &x[static_cast<size_t>(row) * depth];
      for (int k = 0; k < depth; ++k) sum += double{from[k]} * weights[k];
      product[static_cast<size_t>(row) * outputs + output] =
          static_cast<float>(sum * row_factors[row]);
    }
  }
  const double tolerance = is_fp8 ? 4e-3 : 5e-5;  // fp8 sums have about 14 bits
  const int last_split = testing::HasNativeKernels() ? kEqualShares : kMaxSplit;
  for (const int rows :
       {1, 3, 8, 9, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 200, 255, 256, 257}) {
    const std::span<const float> expected =
        std::span(product).first(static_cast<size_t>(rows) * outputs);
    int groups = 0;
    const auto run = [&](GemmEpilogue output, int split, const DeviceMemory& out,
                         const llm::Activation* activation = nullptr) {
      SplitGemmParams params = {matrix_, in.data(), factors.as<float>(), out.data(), rows, output,
                                split,   scratch()};
      if (activation != nullptr)
        params.bias = device_bias_.as<__nv_bfloat16>(), params.activation = *activation;
      params.groups = groups;
      ASSERT_EQ(SplitGemm(params, nullptr), cudaSuccess);
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    };
    for (int split = 0; split <= last_split; ++split) {
      const DeviceMemory out = ToDevice(std::vector<float>(expected.size(), NAN));
      run(GemmEpilogue::kFloat, split, out);
      const std::vector<float> first = ToHost<float>(out, expected.size());
      EXPECT_LT(RelativeError(first, expected), tolerance) << rows << " rows, split " << split;
      run(GemmEpilogue::kFloat, split, out);
      EXPECT_EQ(first, ToHost<float>(out, expected.size())) << "not the same twice";
      // The number of groups follows from those of slices and rows, so that each number of slices
      // is tested with each number of groups for some number of rows.
      groups = 1 + (split + rows) % kMaxSplitGroups;
      const DeviceMemory grouped = ToDevice(std::vector<float>(expected.size(), NAN));
      run(GemmEpilogue::kFloat, split, grouped);
      EXPECT_LT(RelativeError(ToHost<float>(grouped, expected.size()), expected), tolerance)
          << rows << " rows, split " << split << ", " << groups << " groups";
      groups = 0;
    }
    // Ends are compared with the same ends of the kernel's own sums, which are checked above: the
    // error of fp8 sums would be twice as large in the product of two.
    const std::vector<uint16_t> before(expected.size(), Bf16Bits(3.0f));
    for (const int split : {1, 3, last_split}) {
      groups = rows % 2 == 0 ? 0 : 1 + (split + rows / 2) % kMaxSplitGroups;
      const DeviceMemory floats = ToDevice(std::vector<float>(expected.size(), NAN));
      run(GemmEpilogue::kFloat, split, floats);
      const std::vector<float> sums = ToHost<float>(floats, expected.size());
      const auto expect = [&](GemmEpilogue output, const std::vector<float>& wanted,
                              const llm::Activation* activation = nullptr) {
        const DeviceMemory out = ToDevice(before);
        run(output, split, out, activation);
        EXPECT_LT(RelativeError(Floats(ToHost<uint16_t>(out, wanted.size())), wanted), 4e-3)
            << rows << " rows, split " << split << ", epilogue " << static_cast<int>(output);
      };
      std::vector<float> added, gated;
      for (const float sum : sums) added.push_back(sum + 3.0f);
      for (size_t i = 0; i < sums.size() / 2; ++i) {
        const float* pair = &sums[i / 8 * 16 + i % 8];
        gated.push_back(Activated(llm::Activation::kSilu, pair[0]) * pair[8]);
      }
      expect(GemmEpilogue::kAdd, added);
      expect(GemmEpilogue::kBf16, sums);
      expect(GemmEpilogue::kSiluGate, gated);
      if (!testing::HasNativeKernels()) continue;
      const llm::Activation kind = kActivations[rows % std::size(kActivations)];
      for (const GemmEpilogue output : kFinishes)
        expect(output, Finished(sums, output, kind), &kind);
    }
  }
  ExpectTicketsAreZero();
}

constexpr auto kBf16 = WeightFormat::kBf16;
constexpr auto kFp8 = WeightFormat::kFp8;
constexpr auto kInt4 = WeightFormat::kInt4;

INSTANTIATE_TEST_SUITE_P(
    Sizes, StreamGemmTest,
    ::testing::Values(
        GemmCase{kBf16, 16, 256}, GemmCase{kBf16, 32, 4096}, GemmCase{kBf16, 400, 736},
        GemmCase{kBf16, 4304, 512}, GemmCase{kBf16, 64, 14336}, GemmCase{kBf16, 1040, 4096},
        GemmCase{kFp8, 16, 256}, GemmCase{kFp8, 32, 4096}, GemmCase{kFp8, 400, 736},
        GemmCase{kFp8, 4304, 512}, GemmCase{kFp8, 64, 14336}, GemmCase{kFp8, 16, 256, 1, true},
        GemmCase{kFp8, 400, 736, 1, true}, GemmCase{kFp8, 4304, 512, 1, true},
        GemmCase{kFp8, 64, 14336, 1, true}, GemmCase{kInt4, 16, 256}, GemmCase{kInt4, 32, 4096},
        GemmCase{kInt4, 400, 736, 4}, GemmCase{kInt4, 4304, 512, 2}, GemmCase{kInt4, 64, 14336},
        GemmCase{kInt4, 32, 24576}, GemmCase{kInt4, 48, 200, 4}),
    [](const auto& info) {
      const GemmCase& given = info.param;
      const char* format = given.format == kBf16 ? "bf16" : given.format == kFp8 ? "fp8" : "int4";
      return StrCat(format, given.has_block_scales ? "_blocks" : "", "_", given.num_outputs, "x",
                    given.depth, "_", given.scales_per_block);
    });

class GatherColumnsTest : public testing::GpuTest<::testing::Test> {};

TEST_F(GatherColumnsTest, ColumnsAreReorderedAndScaled) {
  const int depth = 600, num_rows = 3;
  std::vector<uint16_t> in;
  std::vector<int32_t> order;
  std::vector<float> scale;
  for (int i = 0; i < 5 * depth; ++i) in.push_back(Bf16Bits(static_cast<float>(i % 251)));
  for (int c = 0; c < depth; ++c) {
    order.push_back((c * 7 + 3) % depth);  // 7 and 600 have no common factor
    scale.push_back(c % 2 == 0 ? 0.5f : 2.0f);
  }
  const std::vector<int32_t> rows = {4, 0, 2};
  const DeviceMemory device_in = ToDevice(in), device_order = ToDevice(order),
                     device_scale = ToDevice(scale), device_rows = ToDevice(rows);
  const DeviceMemory out = ToDevice(std::vector<uint16_t>(num_rows * depth, 0x7fff));
  GatherColumns(
      {device_in.as<__nv_bfloat16>(), device_rows.as<int32_t>(), device_order.as<int32_t>(),
       device_scale.as<float>(), out.as<__nv_bfloat16>(), num_rows, depth},
      nullptr);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const std::vector<uint16_t> got = ToHost<uint16_t>(out, num_rows * depth);
  for (int row = 0; row < num_rows; ++row) {
    for (int c = 0; c < depth; ++c) {
      ASSERT_EQ(got[row * depth + c],
                Bf16Bits(FromBf16(in[rows[row] * depth + order[c]]) * scale[order[c]]));
    }
  }
}

}  // namespace
}  // namespace nereid::gpu
