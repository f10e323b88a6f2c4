// The experts' GEMM for many rows and the sort ahead of it, against plain loops over sampled
// outputs and against the grouped GEMM, with uneven numbers of rows.
#include "backends/gpu_llm/kernels/gemm/expert_gemm.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "backends/gpu_llm/kernel_registry.h"
#include "backends/gpu_llm/kernels/gemm/gemm_input.h"
#include "backends/gpu_llm/kernels/gemm/stream_experts.h"
#include "backends/gpu_llm/kernels/gemm/weight_kernels.h"
#include "backends/gpu_llm/kernels/rows/expert_rows.h"
#include "tests/backends/gpu_llm/gpu_test.h"

namespace nereid::gpu {
namespace {

using testing::FromBf16;
using testing::RelativeError;
using testing::ToDevice;
using testing::ToHost;

// A bf16 result: 2^-9 relative, plus some for another order of additions.
constexpr double kExpertGemmTolerance = 4e-3;
constexpr int kNumProcessors = 132;

DeviceMemory Allocate(int64_t bytes) {
  Result<DeviceMemory> memory = DeviceMemory::Allocate(bytes, "a test");
  EXPECT_TRUE(memory.ok());
  EXPECT_EQ(cudaMemset(memory->data(), 0xff, bytes), cudaSuccess);  // NaN
  return std::move(*memory);
}

DeviceMemory RandomBf16(int64_t count, float magnitude, uint32_t seed) {
  DeviceMemory memory = Allocate(2 * count);
  RandomFill(memory.as<__nv_bfloat16>(), count, magnitude, seed, nullptr);
  return memory;
}

std::vector<float> RowToHost(const DeviceMemory& memory, int64_t row, int64_t size) {
  std::vector<uint16_t> bits(size);
  EXPECT_EQ(
      cudaMemcpy(bits.data(), memory.as<uint16_t>() + row * size, 2 * size, cudaMemcpyDeviceToHost),
      cudaSuccess);
  std::vector<float> values;
  for (const uint16_t value : bits) values.push_back(FromBf16(value));
  return values;
}

float Dot(const std::vector<float>& a, const std::vector<float>& b) {
  return static_cast<float>(std::inner_product(a.begin(), a.end(), b.begin(), 0.0));
}

class ExpertGemmTest : public testing::GpuTest<::testing::Test> {
 protected:
  struct Problem {
    int num_outputs, depth;
    std::vector<int32_t> first_rows;
    DeviceMemory weights, in, d_first_rows;  // weights and input in bf16
    // In another format.
    WeightMatrix packed;
    int64_t stride_bytes = 0;
    int64_t scale_stride = 0;
    DeviceMemory packed_weights, packed_in, row_scales, block_scales, in_scales;
    int num_rows() const { return first_rows.back(); }
    int num_experts() const { return static_cast<int>(first_rows.size()) - 1; }
    int64_t matrix_size() const { return int64_t{num_outputs} * depth; }
  };

  static Problem MakeProblem(int num_outputs, int depth, const std::vector<int>& rows) {
    Problem problem;
    problem.num_outputs = num_outputs;
    problem.depth = depth;
    problem.first_rows = {0};
    for (const int count : rows) problem.first_rows.push_back(problem.first_rows.back() + count);
    problem.weights =
        RandomBf16(problem.matrix_size() * problem.num_experts(), 2.0f / std::sqrt(depth), 5);
    problem.in = RandomBf16(int64_t{problem.num_rows()} * depth, 1.0f, 6);
    problem.d_first_rows = ToDevice(problem.first_rows);
    return problem;
  }

  // Replaces the weights by those of the format, rounded to bf16, and the input.
  static void Pack(Problem& problem, WeightFormat format, int scales_per_block,
                   bool has_block_scales = false) {
    WeightMatrix& matrix = problem.packed;
    matrix.format = format;
    matrix.scales_per_block = scales_per_block;
    matrix.num_outputs = problem.num_outputs;
    matrix.depth = problem.depth;
    const int num_experts = problem.num_experts();
    problem.stride_bytes =
        format == WeightFormat::kFp8
            ? problem.matrix_size()
            : problem.num_outputs / kInt4TileRows * Int4TileBytes(problem.depth, scales_per_block) +
                  256;
    problem.packed_weights = Allocate(problem.stride_bytes * num_experts);
    const int64_t num_scales = std::max<int64_t>(
        problem.num_outputs, NumFp8BlockScales(problem.num_outputs, problem.depth));
    problem.scale_stride = num_scales;
    problem.row_scales = Allocate(4 * num_scales * num_experts);
    problem.block_scales = Allocate(4 * num_scales * num_experts);
    for (int expert = 0; expert < num_experts; ++expert) {
      WeightMatrix one = matrix;
      one.data = problem.packed_weights.as<char>() + expert * problem.stride_bytes;
      one.row_scales = problem.row_scales.as<float>() + expert * num_scales;
      if (has_block_scales)
        one.block_scales = problem.block_scales.as<uint32_t>() + expert * num_scales;
      RandomFillMatrix(one, 20 + expert, nullptr);
      Dequantize(one, problem.weights.as<__nv_bfloat16>() + expert * problem.matrix_size(),
                 nullptr);
    }
    matrix.data = problem.packed_weights.data();
    matrix.row_scales = problem.row_scales.as<float>();
    if (has_block_scales) matrix.block_scales = problem.block_scales.as<uint32_t>();
    matrix.quantizes_input = format == WeightFormat::kFp8 && testing::HasNativeKernels();
    if (!matrix.quantizes_input) return;
    const int64_t count = int64_t{problem.num_rows()} * problem.depth;
    problem.packed_in = Allocate(count);
    problem.in_scales = Allocate(int64_t{4} * problem.num_rows());
    QuantizeRows({problem.in.as<__nv_bfloat16>(), nullptr, nullptr, problem.packed_in.as<uint8_t>(),
                  problem.in_scales.as<float>(), problem.num_rows(), problem.depth, 0.0f},
                 nullptr);
    // The input as a matrix of weights in fp8 with a scale for each row.
    WeightMatrix in = matrix;
    in.num_outputs = problem.num_rows();
    in.data = problem.packed_in.data();
    in.row_scales = problem.in_scales.as<float>();
    in.block_scales = nullptr;
    Dequantize(in, problem.in.as<__nv_bfloat16>(), nullptr);
  }

  static ExpertGemmParams Params(const Problem& problem, GemmEpilogue output,
                                 const DeviceMemory& out) {
    ExpertGemmParams params = {};
    params.weights.data = problem.weights.data();
    params.weights.num_outputs = problem.num_outputs;
    params.weights.depth = problem.depth;
    params.stride_bytes = 2 * problem.matrix_size();
    if (problem.packed.data != nullptr) {
      params.weights = problem.packed;
      params.stride_bytes = problem.stride_bytes;
      params.scale_stride = problem.scale_stride;
    }
    params.first_rows = problem.d_first_rows.as<int32_t>();
    const bool quantizes = problem.packed.quantizes_input;
    params.in = quantizes ? problem.packed_in.data() : problem.in.data();
    params.in_scales = problem.in_scales.as<float>();
    params.out = out.data();
    params.num_rows = problem.num_rows();
    params.num_experts = problem.num_experts();
    params.output = output;
    return params;
  }

  static DeviceMemory Run(const Problem& problem, GemmEpilogue output) {
    const int row_size =
        output == GemmEpilogue::kSiluGate ? problem.num_outputs / 2 : problem.num_outputs;
    DeviceMemory out = Allocate(int64_t{2} * (problem.num_rows() + 1) * row_size);
    const ExpertGemmParams params = Params(problem, output, out);
    EXPECT_TRUE(CanRunExpertGemm(CurrentForm(), params.weights));
    EXPECT_EQ(ExpertGemm(params, kNumProcessors, nullptr), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    for (const float value : RowToHost(out, problem.num_rows(), row_size))
      EXPECT_TRUE(std::isnan(value));  // nothing is written behind the last row
    return out;
  }

  // Sampled outputs of every row.
  static void CheckSamples(const Problem& problem, GemmEpilogue output, const DeviceMemory& out) {
    const bool gates = output == GemmEpilogue::kSiluGate;
    const int row_size = gates ? problem.num_outputs / 2 : problem.num_outputs;
    std::vector<int> columns = {0, row_size - 1, row_size / 2};
    std::mt19937 random(3);
    while (columns.size() < 10) columns.push_back(static_cast<int>(random() % row_size));
    std::vector<float> got, expected;
    for (int expert = 0; expert < problem.num_experts(); ++expert) {
      const auto weights_of = [&](int row) {
        return RowToHost(problem.weights, int64_t{expert} * problem.num_outputs + row,
                         problem.depth);
      };
      std::vector<std::vector<float>> weights, up_weights;
      for (const int c : columns) {
        weights.push_back(weights_of(gates ? c / 8 * 16 + c % 8 : c));
        if (gates) up_weights.push_back(weights_of(c / 8 * 16 + c % 8 + 8));
      }
      for (int row = problem.first_rows[expert]; row < problem.first_rows[expert + 1]; ++row) {
        const std::vector<float> in = RowToHost(problem.in, row, problem.depth);
        const std::vector<float> out_row = RowToHost(out, row, row_size);
        for (size_t i = 0; i < columns.size(); ++i) {
          float value = Dot(in, weights[i]);
          if (gates) value = value / (1.0f + std::exp(-value)) * Dot(in, up_weights[i]);
          expected.push_back(value);
          got.push_back(out_row[columns[i]]);
        }
      }
    }
    // Unpacked weights are rounded once more than those of the kernel.
    const double tolerance = (problem.packed.data == nullptr ? 2 : 3) * kExpertGemmTolerance;
    EXPECT_LT(RelativeError(got, expected), tolerance);
  }

  // All outputs.
  static void CheckAgainstGroupedGemm(const Problem& problem, GemmEpilogue output,
                                      const DeviceMemory& out) {
    const bool gates = output == GemmEpilogue::kSiluGate;
    const int64_t count =
        int64_t{problem.num_rows()} * (gates ? problem.num_outputs / 2 : problem.num_outputs);
    std::vector<ExpertTile> tiles;
    for (int expert = 0; expert < problem.num_experts(); ++expert) {
      const int last = problem.first_rows[expert + 1];
      for (int row = problem.first_rows[expert]; row < last; row += kLargeExpertTile)
        tiles.push_back({expert, row, std::min(kLargeExpertTile, last - row)});
    }
    const DeviceMemory d_tiles = ToDevice(tiles), expected = Allocate(2 * count);
    GroupedGemmParams gemm = {};
    gemm.in = problem.in.as<__nv_bfloat16>();
    gemm.weights = problem.weights.as<__nv_bfloat16>();
    gemm.expert_stride = problem.matrix_size();
    gemm.tiles = d_tiles.as<ExpertTile>();
    gemm.num_tiles = static_cast<int>(tiles.size());
    gemm.tile_rows = kLargeExpertTile;
    gemm.num_outputs = problem.num_outputs;
    gemm.depth = problem.depth;
    gemm.gates = gates;
    gemm.out = expected.data();
    GroupedGemm(gemm, nullptr);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    // Unpacked weights are rounded once more than those of the kernel.
    const double tolerance =
        problem.packed.data == nullptr ? kExpertGemmTolerance : 3 * kExpertGemmTolerance;
    EXPECT_LT(RelativeError(RowToHost(out, 0, count), RowToHost(expected, 0, count)), tolerance);
  }

  static void Check(int num_outputs, int depth, const std::vector<int>& rows,
                    WeightFormat format = WeightFormat::kBf16, int scales_per_block = 1,
                    bool has_block_scales = false) {
    SCOPED_TRACE(::testing::Message()
                 << num_outputs << " x " << depth << ", format " << static_cast<int>(format) << ", "
                 << scales_per_block << (has_block_scales ? ", block scales" : ""));
    Problem problem = MakeProblem(num_outputs, depth, rows);
    if (format != WeightFormat::kBf16) Pack(problem, format, scales_per_block, has_block_scales);
    for (const GemmEpilogue output : {GemmEpilogue::kBf16, GemmEpilogue::kSiluGate}) {
      if (output == GemmEpilogue::kSiluGate && num_outputs % 16 != 0) continue;
      const DeviceMemory out = Run(problem, output);
      CheckSamples(problem, output, out);
      CheckAgainstGroupedGemm(problem, output, out);
    }
  }
};

TEST_F(ExpertGemmTest, UnevenRowsAndOddSizes) {
  Check(16, 8, {1});
  Check(48, 72, {3, 0, 40});
  Check(168, 72, {3, 0, 140});
  Check(272, 200, {0, 1, 31, 32, 33, 127, 128, 129, 0, 160, 161, 192, 223, 224, 255, 256, 257});
  Check(272, 200, {0, 0, 300, 513, 0, 769});
  Check(512, 1032, {2000});
  std::vector<int> many(512, 0);
  for (size_t i = 0; i < many.size(); i += 3) many[i] = static_cast<int>(i % 50);
  Check(128, 64, many);
}

TEST_F(ExpertGemmTest, QuantizedWeights) {
  const std::vector<int> uneven = {0, 1, 31, 32, 33, 129, 161, 0, 193, 225, 257, 300};
  for (const int scales : {1, 2, 4}) Check(272, 384, uneven, WeightFormat::kInt4, scales);
  Check(16, 128, {1}, WeightFormat::kInt4);
  Check(1536, 2048, {0, 1, 127, 128, 129, 513, 20}, WeightFormat::kInt4);
  Check(2048, 768, {0, 1, 127, 300, 513, 20}, WeightFormat::kInt4);
  Check(4096, 14336, {1, 0, 257}, WeightFormat::kInt4);
  for (const bool has_block_scales : {false, true}) {
    const auto check = [&](int num_outputs, int depth, const std::vector<int>& rows) {
      Check(num_outputs, depth, rows, WeightFormat::kFp8, 1, has_block_scales);
    };
    check(272, 208, uneven);
    check(1536, 2048, {0, 1, 127, 128, 129, 513, 20});
    check(2048, 768, {0, 1, 127, 300, 513, 20});
    check(4096, 14336, {1, 0, 257});
  }
}

TEST_F(ExpertGemmTest, ShapesOfMixtures) {
  Check(1536, 2048, {0, 1, 127, 128, 129, 300, 64, 513, 20});  // Qwen3-30B-A3B
  Check(2048, 768, {0, 1, 127, 128, 129, 300, 64, 513, 20});
  Check(28672, 4096, {1, 0, 257});  // Mixtral-8x7B
  Check(4096, 14336, {1, 0, 257});
}

TEST_F(ExpertGemmTest, FloatOutputsOfOneMatrix) {
  for (const int num_outputs : {8, 60, 128, 300}) {
    for (const int rows : {1, 33, 700}) {
      const Problem problem = MakeProblem(num_outputs, 264, {rows});
      const DeviceMemory out = Allocate(int64_t{4} * rows * num_outputs);
      ExpertGemmParams params = Params(problem, GemmEpilogue::kFloat, out);
      params.first_rows = nullptr;
      params.copies_weights_early = rows > 1;
      ASSERT_EQ(ExpertGemm(params, kNumProcessors, nullptr), cudaSuccess);
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      const auto got = ToHost<float>(out, size_t{1} * rows * num_outputs);
      std::vector<float> expected;
      std::vector<std::vector<float>> weights;
      for (int o = 0; o < num_outputs; ++o) weights.push_back(RowToHost(problem.weights, o, 264));
      for (int row = 0; row < rows; ++row) {
        const std::vector<float> in = RowToHost(problem.in, row, 264);
        for (int o = 0; o < num_outputs; ++o) expected.push_back(Dot(in, weights[o]));
      }
      EXPECT_LT(RelativeError(got, expected), 1e-5) << rows << " x " << num_outputs;
    }
  }
}

TEST_F(ExpertGemmTest, ProductsAreAddedToTheOutputs) {
  for (const int rows : {1, 33, 700}) {
    const Problem problem = MakeProblem(272, 264, {rows});
    const int64_t count = int64_t{rows} * 272;
    const std::vector<float> product = RowToHost(Run(problem, GemmEpilogue::kBf16), 0, count);
    const DeviceMemory out = RandomBf16(count, 2.0f, 9);
    std::vector<float> expected = RowToHost(out, 0, count);
    for (int64_t i = 0; i < count; ++i) expected[i] += product[i];
    ExpertGemmParams params = Params(problem, GemmEpilogue::kAdd, out);
    params.first_rows = nullptr;
    params.copies_weights_early = true;
    ASSERT_EQ(ExpertGemm(params, kNumProcessors, nullptr), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_LT(RelativeError(RowToHost(out, 0, count), expected), kExpertGemmTolerance) << rows;
  }
}

TEST_F(ExpertGemmTest, ResultsOfARowDoNotDependOnOtherRows) {
  const Problem together = MakeProblem(272, 520, {700, 1, 200, 0, 129});
  Problem alone = MakeProblem(272, 520, {1, 1, 1, 1, 1});
  const std::vector<float> many =
      RowToHost(Run(together, GemmEpilogue::kBf16), 0, int64_t{together.num_rows()} * 272);
  for (int expert = 0; expert < 5; ++expert) {
    const int first = together.first_rows[expert], last = together.first_rows[expert + 1];
    for (int row = first; row < last; row += 37) {
      ASSERT_EQ(cudaMemcpy(alone.in.as<char>() + expert * 520 * 2,
                           together.in.as<char>() + int64_t{row} * 520 * 2, 520 * 2,
                           cudaMemcpyDeviceToDevice),
                cudaSuccess);
      const std::vector<float> one = RowToHost(Run(alone, GemmEpilogue::kBf16), expert, 272);
      for (int c = 0; c < 272; ++c) ASSERT_EQ(one[c], many[int64_t{row} * 272 + c]) << row;
    }
  }
}

// Batch-invariant steps use both kernels.
TEST_F(ExpertGemmTest, StreamedExpertsGiveTheSameBits) {
  for (const int scales_per_block : {0, 1, 4}) {  // 0: bf16
    Problem problem = MakeProblem(272, 520, {30, 1, 200, 0, 9, 64});
    if (scales_per_block > 0) Pack(problem, WeightFormat::kInt4, scales_per_block);
    for (const GemmEpilogue output : {GemmEpilogue::kBf16, GemmEpilogue::kSiluGate}) {
      const bool gates = output == GemmEpilogue::kSiluGate;
      const int64_t count = int64_t{problem.num_rows()} * (gates ? 136 : 272);
      const ExpertGemmParams params = Params(problem, output, problem.in);
      if (!StreamsLikeExpertGemm(CurrentForm(), params.weights)) continue;  // the portable form
      const std::vector<float> expected = RowToHost(Run(problem, output), 0, count);
      for (const int tile_rows : {8, 16, 32, 64}) {
        std::vector<ExpertTile> tiles;
        for (int expert = 0; expert < problem.num_experts(); ++expert) {
          const int last = problem.first_rows[expert + 1];
          for (int row = problem.first_rows[expert]; row < last; row += tile_rows)
            tiles.push_back({expert, row, std::min(tile_rows, last - row)});
        }
        const DeviceMemory d_tiles = ToDevice(tiles), out = Allocate(2 * count);
        GroupedGemmParams gemm = {};
        gemm.in = problem.in.as<__nv_bfloat16>();
        gemm.tiles = d_tiles.as<ExpertTile>();
        gemm.num_tiles = static_cast<int>(tiles.size());
        gemm.tile_rows = tile_rows;
        gemm.num_outputs = problem.num_outputs;
        gemm.depth = problem.depth;
        gemm.gates = gates;
        gemm.out = out.data();
        ASSERT_EQ(
            StreamExperts({gemm, params.weights, params.stride_bytes, problem.num_experts(), false},
                          kNumProcessors, nullptr),
            cudaSuccess);
        ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
        EXPECT_EQ(RowToHost(out, 0, count), expected) << tile_rows << " " << scales_per_block;
      }
    }
  }
}

// Batch-invariant products of few rows use tiles of rows.
TEST_F(ExpertGemmTest, TilesOfRowsGiveTheSameBits) {
  if (!testing::HasNativeKernels()) GTEST_SKIP() << "the portable form has no such product";
  for (const int rows : {1, 9, 77, 256}) {
    for (const auto& [num_outputs, depth] : {std::pair{272, 520}, {4112, 1024}, {40, 8}}) {
      const Problem problem = MakeProblem(num_outputs, depth, {rows});
      const int64_t count = int64_t{rows} * num_outputs;
      for (const GemmEpilogue output : {GemmEpilogue::kBf16, GemmEpilogue::kAdd}) {
        const DeviceMemory out = RandomBf16(count, 2.0f, 9);
        ExpertGemmParams params = Params(problem, output, out);
        params.first_rows = nullptr;
        ASSERT_EQ(ExpertGemm(params, kNumProcessors, nullptr), cudaSuccess);
        const std::vector<float> expected = RowToHost(out, 0, count);
        for (const int tile_rows : {8, 16, 32, 64}) {
          const DeviceMemory got = RandomBf16(count, 2.0f, 9);
          GroupedGemmParams gemm = {};
          gemm.in = problem.in.as<__nv_bfloat16>();
          gemm.num_rows = rows;
          gemm.num_tiles = (rows + tile_rows - 1) / tile_rows;
          gemm.tile_rows = tile_rows;
          gemm.num_outputs = num_outputs;
          gemm.depth = depth;
          gemm.accumulates = output == GemmEpilogue::kAdd;
          gemm.out = got.data();
          ASSERT_EQ(StreamExperts({gemm, params.weights, 0, 1, true}, kNumProcessors, nullptr),
                    cudaSuccess);
          EXPECT_EQ(RowToHost(got, 0, count), expected)
              << rows << " x " << num_outputs << ", tiles of " << tile_rows;
        }
      }
    }
  }
}

TEST_F(ExpertGemmTest, RowsAreSortedByExpert) {
  struct Case {
    int num_rows, num_experts, per_token, hidden;
  };
  for (const Case& c :
       {Case{1, 8, 2, 8}, Case{77, 128, 8, 520}, Case{1030, 5, 3, 2056}, Case{300, 512, 32, 64}}) {
    const int num_pairs = c.num_rows * c.per_token;
    std::mt19937 random(7);
    std::vector<int32_t> experts, order(c.num_experts);
    std::iota(order.begin(), order.end(), 0);
    for (int row = 0; row < c.num_rows; ++row) {
      std::shuffle(order.begin(), order.end(), random);
      experts.insert(experts.end(), order.begin(), order.begin() + c.per_token);
    }
    const DeviceMemory d_experts = ToDevice(experts), sorted_index = Allocate(4 * num_pairs),
                       first_rows = Allocate(4 * (c.num_experts + 1)),
                       counts = ToDevice(std::vector<int32_t>(c.num_experts + 1, 0)),
                       in = RandomBf16(int64_t{c.num_rows} * c.hidden, 1.0f, 8),
                       out = Allocate(int64_t{2} * num_pairs * c.hidden);
    std::vector<float> scales(c.num_rows);
    std::iota(scales.begin(), scales.end(), 1.0f);
    const DeviceMemory in_scales = ToDevice(scales), out_scales = Allocate(4 * num_pairs);
    SortExpertRows({d_experts.as<int32_t>(), sorted_index.as<int32_t>(), first_rows.as<int32_t>(),
                    counts.as<int32_t>(), in.data(), out.data(), in_scales.as<float>(),
                    out_scales.as<float>(), c.num_rows, c.num_experts, c.per_token, 2 * c.hidden},
                   nullptr);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    for (const int32_t count : ToHost<int32_t>(counts, c.num_experts + 1)) EXPECT_EQ(count, 0);
    const auto first = ToHost<int32_t>(first_rows, c.num_experts + 1);
    const auto places = ToHost<int32_t>(sorted_index, num_pairs);
    const auto got_scales = ToHost<float>(out_scales, num_pairs);
    std::vector<bool> taken(num_pairs, false);
    for (int pair = 0; pair < num_pairs; ++pair) {
      ASSERT_GE(places[pair], first[experts[pair]]);
      ASSERT_LT(places[pair], first[experts[pair] + 1]);
      EXPECT_FALSE(taken[places[pair]]);
      taken[places[pair]] = true;
      EXPECT_EQ(got_scales[places[pair]], scales[pair / c.per_token]);
      if (pair % 7 == 0) {
        EXPECT_EQ(RowToHost(out, places[pair], c.hidden),
                  RowToHost(in, pair / c.per_token, c.hidden));
      }
    }
    EXPECT_EQ(first[0], 0);
    EXPECT_EQ(first[c.num_experts], num_pairs);
  }
}

}  // namespace
}  // namespace nereid::gpu
