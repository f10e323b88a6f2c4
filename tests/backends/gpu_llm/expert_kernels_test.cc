// Routing, and products of few rows of each expert, against plain loops and against each other.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "backends/gpu_llm/kernels/gemm/gemm.h"
#include "backends/gpu_llm/kernels/gemm/stream_experts.h"
#include "backends/gpu_llm/kernels/gemm/weight_kernels.h"
#include "backends/gpu_llm/kernels/rows/moe.h"
#include "tests/backends/gpu_llm/small_kernels_fixture.h"

namespace nereid::gpu {
namespace {

using testing::RelativeError;
using testing::ToDevice;
using testing::ToHost;

struct MoeCase {
  int num_rows, num_experts, per_token, hidden, inner;
  bool normalizes, norms = false;
};

class MoeTest : public SmallKernelsTest {
 protected:
  // Every pair appears once in sorted order, in a tile of its expert.
  static void CheckSortedPairs(const MoeCase& e, const DeviceMemory& experts,
                               const DeviceMemory& pairs, const DeviceMemory& sorted_index,
                               const DeviceMemory& tiles, int num_tiles, int tile_rows) {
    const int num_pairs = e.num_rows * e.per_token;
    const auto expert_of = ToHost<int32_t>(experts, num_pairs);
    const auto pair_at = ToHost<int32_t>(pairs, num_pairs);
    const auto place_of = ToHost<int32_t>(sorted_index, num_pairs);
    std::vector<int> covered(num_pairs, 0);
    for (const ExpertTile& tile : ToHost<ExpertTile>(tiles, num_tiles)) {
      if (tile.expert < 0) continue;
      EXPECT_LE(tile.count, tile_rows);
      for (int place = tile.first; place < tile.first + tile.count; ++place) {
        ASSERT_LT(place, num_pairs);
        ++covered[place];
        EXPECT_EQ(expert_of[pair_at[place]], tile.expert);
        EXPECT_EQ(place_of[pair_at[place]], place);
      }
    }
    EXPECT_EQ(std::count(covered.begin(), covered.end(), 1), num_pairs);
  }

  // The norm leaves the combined rows as they are without it, and norms what they are rounded to.
  void CheckCombinationWithNorm(const MoeCase& e, const DeviceMemory& outputs,
                                const DeviceMemory& sorted_index,
                                const DeviceMemory& router_weights) {
    const int size = e.num_rows * e.inner;
    const Values before = Random(size), weight = Random(e.inner, 1.0f, 0.2f);
    const DeviceMemory normed = Poison(size);
    std::vector<std::vector<float>> sums;
    for (const bool norms : {false, true}) {
      const DeviceMemory sum = Poison(size);
      ASSERT_EQ(cudaMemcpy(sum.data(), before.bf16(), 2 * size, cudaMemcpyDeviceToDevice),
                cudaSuccess);
      Combine({outputs.as<__nv_bfloat16>(), sorted_index.as<int32_t>(), router_weights.as<float>(),
               sum.as<__nv_bfloat16>(), e.num_rows, e.inner, e.per_token, true,
               norms ? weight.bf16() : nullptr, normed.as<__nv_bfloat16>(), 1e-5f},
              nullptr);
      sums.push_back(Read(sum, size));
    }
    EXPECT_EQ(sums[0], sums[1]);
    std::vector<float> expected(size);
    for (int row = 0; row < e.num_rows; ++row) {
      double squares = 0.0;
      for (int c = 0; c < e.inner; ++c)
        squares += double{sums[0][row * e.inner + c]} * sums[0][row * e.inner + c];
      const auto factor = static_cast<float>(1.0 / std::sqrt(squares / e.inner + 1e-5));
      for (int c = 0; c < e.inner; ++c)
        expected[row * e.inner + c] = sums[0][row * e.inner + c] * factor * weight.host[c];
    }
    EXPECT_LT(RelativeError(Read(normed, size), expected), kSmallKernelTolerance);
  }

  enum class Kernel { kGroupedGemm, kStreamExperts, kTileExperts };
  static constexpr int kGroupedTiles[] = {kSmallExpertTile, kLargeExpertTile};

  void Check(const MoeCase& e, Kernel kernel, std::span<const int> row_counts) {
    const int num_pairs = e.num_rows * e.per_token;
    Values in = Random(e.num_rows * e.hidden);
    const Values router = Random(e.num_experts * e.hidden),
                 weights = Random(static_cast<size_t>(e.num_experts) * e.inner * e.hidden, 0.0f,
                                  1.0f / std::sqrt(static_cast<float>(e.hidden)));
    const DeviceMemory experts = ToDevice(std::vector<int32_t>(num_pairs, -7)),
                       router_weights = ToDevice(std::vector<float>(num_pairs, NAN)),
                       pairs = ToDevice(std::vector<int32_t>(num_pairs, -7)),
                       sorted_index = ToDevice(std::vector<int32_t>(num_pairs, -7));
    const DeviceMemory d_scores = ToDevice(
                           std::vector<float>(RouteScoresSize(e.num_rows, e.num_experts), NAN)),
                       ticket = ToDevice(std::vector<int32_t>(1, 0)),
                       normed = Poison(e.num_rows * e.hidden);
    const Values norm = Random(e.hidden, 1.0f, 0.2f);
    RouteParams route = {};
    route.in = in.bf16();
    route.norm_weight = e.norms ? norm.bf16() : nullptr;
    route.epsilon = 1e-5f;
    route.normed = normed.as<__nv_bfloat16>();
    route.router = router.bf16();
    route.scores = d_scores.as<float>();
    route.experts = experts.as<int32_t>();
    route.router_weights = router_weights.as<float>();
    route.num_rows = e.num_rows;
    route.hidden_size = e.hidden;
    route.num_experts = e.num_experts;
    route.experts_per_token = e.per_token;
    route.normalizes = e.normalizes;
    {
      constexpr int kTileRows = 8;
      const int num_tiles = static_cast<int>(MaxExpertTiles(num_pairs, e.num_experts, kTileRows));
      const DeviceMemory tiles = ToDevice(std::vector<ExpertTile>(num_tiles, {-9, -9, -9}));
      EXPECT_EQ(Route(route,
                      {experts.as<int32_t>(), pairs.as<int32_t>(), sorted_index.as<int32_t>(),
                       tiles.as<ExpertTile>(), num_pairs, e.num_experts, kTileRows, num_tiles},
                      ticket.as<int32_t>(), nullptr),
                cudaSuccess);
      CheckSortedPairs(e, experts, pairs, sorted_index, tiles, num_tiles, kTileRows);
      EXPECT_EQ(ToHost<int32_t>(ticket, 1)[0], 0);
    }
    if (e.norms) {
      std::vector<float> expected(in.host.size());
      for (int row = 0; row < e.num_rows; ++row) {
        double squares = 0.0;
        for (int c = 0; c < e.hidden; ++c)
          squares += double{in.host[row * e.hidden + c]} * in.host[row * e.hidden + c];
        const auto factor = static_cast<float>(1.0 / std::sqrt(squares / e.hidden + 1e-5));
        for (int c = 0; c < e.hidden; ++c)
          expected[row * e.hidden + c] = in.host[row * e.hidden + c] * factor * norm.host[c];
      }
      EXPECT_LT(RelativeError(Read(normed, expected.size()), expected), kSmallKernelTolerance);
      in.host = Read(normed, expected.size());
    }
    const auto chosen = ToHost<int32_t>(experts, num_pairs);
    const auto weight_of = ToHost<float>(router_weights, num_pairs);
    for (int row = 0; row < e.num_rows; ++row) {
      std::vector<float> scores(e.num_experts, 0.0f);
      for (int x = 0; x < e.num_experts; ++x) {
        for (int c = 0; c < e.hidden; ++c)
          scores[x] += in.host[row * e.hidden + c] * router.host[x * e.hidden + c];
      }
      std::vector<int32_t> order(e.num_experts);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](int a, int b) { return scores[a] > scores[b]; });
      float sum = 0.0f;
      for (int i = 0; i < (e.normalizes ? e.per_token : e.num_experts); ++i)
        sum += std::exp(scores[order[i]] - scores[order[0]]);
      for (int i = 0; i < e.per_token; ++i) {
        // With a norm, the kernel rounds the rows before it applies the norm's factor.
        const float tolerance = e.norms ? 0.02f * std::sqrt(static_cast<float>(e.hidden)) : 1e-3f;
        const float score = scores[chosen[row * e.per_token + i]];
        EXPECT_NEAR(score, scores[order[i]], tolerance);
        if (e.norms) continue;
        EXPECT_NEAR(weight_of[row * e.per_token + i],
                    std::exp(scores[order[i]] - scores[order[0]]) / sum, 1e-3f);
      }
    }
    for (const int tile_rows : row_counts) {
      const auto multiply = [&](const GroupedGemmParams& gemm) {
        if (kernel == Kernel::kGroupedGemm) return GroupedGemm(gemm, nullptr);
        WeightMatrix first;
        first.data = gemm.weights;
        first.num_outputs = gemm.num_outputs;
        first.depth = gemm.depth;
        // The second call's tiles are older than the first.
        for (const bool tiles_are_older : {false, true}) {
          const StreamExpertsParams params = {gemm, first, 2 * gemm.expert_stride, e.num_experts,
                                              tiles_are_older};
          EXPECT_EQ(kernel == Kernel::kTileExperts ? TileExperts(params, nullptr)
                                                   : StreamExperts(params, 132, nullptr),
                    cudaSuccess);
        }
      };
      const auto num_tiles = static_cast<int>(MaxExpertTiles(num_pairs, e.num_experts, tile_rows));
      const DeviceMemory tiles = ToDevice(std::vector<ExpertTile>(num_tiles, {-9, -9, -9}));
      SortPairs({experts.as<int32_t>(), pairs.as<int32_t>(), sorted_index.as<int32_t>(),
                 tiles.as<ExpertTile>(), num_pairs, e.num_experts, tile_rows, num_tiles},
                nullptr);
      const DeviceMemory expert_outputs = Poison(num_pairs * e.inner),
                         sum = Poison(e.num_rows * e.inner);
      CheckSortedPairs(e, experts, pairs, sorted_index, tiles, num_tiles, tile_rows);
      GroupedGemmParams gemm = {};
      gemm.in = e.norms ? normed.as<__nv_bfloat16>() : in.bf16();
      gemm.pairs = pairs.as<int32_t>();
      gemm.pairs_per_row = e.per_token;
      gemm.weights = weights.bf16();
      gemm.expert_stride = int64_t{e.inner} * e.hidden;
      gemm.tiles = tiles.as<ExpertTile>();
      gemm.out = expert_outputs.as<__nv_bfloat16>();
      gemm.num_tiles = num_tiles;
      gemm.num_outputs = e.inner;
      gemm.depth = e.hidden;
      gemm.tile_rows = tile_rows;
      multiply(gemm);
      Combine({expert_outputs.as<__nv_bfloat16>(), sorted_index.as<int32_t>(),
               router_weights.as<float>(), sum.as<__nv_bfloat16>(), e.num_rows, e.inner,
               e.per_token, false},
              nullptr);
      std::vector<float> expected(e.num_rows * e.inner, 0.0f);
      for (int pair = 0; pair < num_pairs; ++pair) {
        const int row = pair / e.per_token;
        for (int o = 0; o < e.inner; ++o) {
          const float* w = weights.host.data() + (int64_t{chosen[pair]} * e.inner + o) * e.hidden;
          float value = 0.0f;
          for (int c = 0; c < e.hidden; ++c) value += in.host[row * e.hidden + c] * w[c];
          expected[row * e.inner + o] += weight_of[pair] * value;
        }
      }
      EXPECT_LT(RelativeError(Read(sum, expected.size()), expected), 2 * kSmallKernelTolerance)
          << e.num_rows << " rows, tiles of " << tile_rows;
      CheckCombinationWithNorm(e, expert_outputs, sorted_index, router_weights);
      if (e.inner % 16 != 0) continue;
      // Groups of eight gate columns, then eight up columns.
      const DeviceMemory gated = Poison(num_pairs * e.inner / 2);
      gemm.out = gated.data();
      gemm.gates = true;
      multiply(gemm);
      const auto place_of = ToHost<int32_t>(sorted_index, num_pairs);
      const std::vector<float> got = Read(gated, num_pairs * e.inner / 2);
      std::vector<float> expected_gated(got.size());
      for (int pair = 0; pair < num_pairs; ++pair) {
        const auto dot = [&](int o) {
          const float* w = weights.host.data() + (int64_t{chosen[pair]} * e.inner + o) * e.hidden;
          float value = 0.0f;
          for (int c = 0; c < e.hidden; ++c)
            value += in.host[pair / e.per_token * e.hidden + c] * w[c];
          return value;
        };
        for (int c = 0; c < e.inner / 2; ++c) {
          const float gate = dot(c / 8 * 16 + c % 8);
          expected_gated[int64_t{place_of[pair]} * (e.inner / 2) + c] =
              gate / (1.0f + std::exp(-gate)) * dot(c / 8 * 16 + c % 8 + 8);
        }
      }
      EXPECT_LT(RelativeError(got, expected_gated), 2 * kSmallKernelTolerance) << "gated";
    }
  }
};

constexpr MoeCase kMoeCases[] = {
    {1, 4, 2, 64, 96, true},           {3, 8, 8, 72, 8, false},
    {16, 128, 8, 520, 48, true},       {9, 61, 3, 2056, 16, false},
    {33, 8, 2, 136, 200, true},        {150, 60, 4, 64, 80, false},
    {257, 3, 1, 64, 64, true},         {65, 128, 8, 256, 136, true},
    {1, 128, 8, 520, 272, true, true}, {40, 8, 2, 1032, 528, false, true},
    {17, 200, 8, 72, 16, true, true},  {600, 4, 2, 64, 80, true, true},
    {3, 20, 4, 2056, 32, false, true},
};

TEST_F(MoeTest, AnyNumberOfRowsAndExperts) {
  for (const MoeCase& e : kMoeCases) Check(e, Kernel::kGroupedGemm, kGroupedTiles);
}

class StreamExpertsTest : public MoeTest {
 protected:
  // Scales of an fp8 matrix that differ from row to row.
  void SetRandomScales(const WeightMatrix& matrix) {
    std::uniform_real_distribution<float> factor(0.5f, 1.5f);
    std::vector<float> scales(matrix.num_outputs);
    for (float& scale : scales)
      scale = factor(random_) / std::sqrt(static_cast<float>(matrix.depth));
    ASSERT_EQ(cudaMemcpy(const_cast<float*>(matrix.row_scales), scales.data(), 4 * scales.size(),
                         cudaMemcpyHostToDevice),
              cudaSuccess);
  }
};

TEST_F(StreamExpertsTest, AnyNumberOfRowsAndExperts) {
  for (const MoeCase& e : kMoeCases) {
    Check(e, Kernel::kStreamExperts, kStreamTileRows);
    Check(e, Kernel::kTileExperts, kStreamTileRows);
  }
}

// Against the product of the dequantized weights, whose scales are not rounded to bf16.
TEST_F(StreamExpertsTest, QuantizedWeightsOfAnyShape) {
  struct Case {
    int num_rows, num_experts, per_token, depth, num_outputs;
    int scales_per_block;  // 0: fp8, -1: fp8 with block scales
    bool gates;
  };
  for (const Case& e : {Case{1, 128, 8, 2048, 96, 1, true}, Case{40, 8, 2, 384, 272, 2, false},
                        Case{2, 4, 2, 4224, 64, 1, true}, Case{50, 6, 2, 4224, 48, 2, false},
                        Case{130, 5, 2, 128, 64, 4, true}, Case{64, 60, 4, 896, 80, 1, false},
                        Case{1, 128, 8, 2048, 96, 0, true}, Case{40, 8, 2, 416, 272, 0, false},
                        Case{1, 128, 8, 2048, 96, -1, true}, Case{40, 8, 2, 416, 272, -1, false}}) {
    const bool is_fp8 = e.scales_per_block <= 0, has_block_scales = e.scales_per_block < 0;
    const bool streams = !is_fp8 || !testing::HasNativeKernels();
    const int num_pairs = e.num_rows * e.per_token;
    std::vector<int32_t> chosen;
    std::vector<int32_t> order(e.num_experts);
    std::iota(order.begin(), order.end(), 0);
    for (int row = 0; row < e.num_rows; ++row) {
      std::shuffle(order.begin(), order.end(), random_);
      chosen.insert(chosen.end(), order.begin(), order.begin() + e.per_token);
    }
    const DeviceMemory experts = ToDevice(chosen),
                       pairs = ToDevice(std::vector<int32_t>(num_pairs, -7)),
                       sorted_index = ToDevice(std::vector<int32_t>(num_pairs, -7));
    WeightMatrix matrix;
    matrix.format = is_fp8 ? WeightFormat::kFp8 : WeightFormat::kInt4;
    matrix.scales_per_block = std::max(1, e.scales_per_block);
    matrix.num_outputs = e.num_outputs;
    matrix.depth = e.depth;
    const int64_t values = int64_t{e.num_outputs} * e.depth;
    // The scales of fp8 rows, and then those of blocks, lie behind each expert's matrix.
    const int64_t num_scales = has_block_scales ? NumFp8BlockScales(e.num_outputs, e.depth) : 0;
    const int64_t stride =
        is_fp8 ? values + 4 * (e.num_outputs + num_scales)
               : e.num_outputs / kInt4TileRows * Int4TileBytes(e.depth, e.scales_per_block);
    const DeviceMemory packed = ToDevice(std::vector<uint8_t>(stride * e.num_experts)),
                       weights = Poison(values * e.num_experts);
    const auto matrix_of = [&](int expert) {
      WeightMatrix result = matrix;
      result.data = packed.as<uint8_t>() + expert * stride;
      if (is_fp8)
        result.row_scales =
            reinterpret_cast<float*>(packed.as<uint8_t>() + expert * stride + values);
      if (has_block_scales)
        result.block_scales = reinterpret_cast<const uint32_t*>(result.row_scales + e.num_outputs);
      return result;
    };
    for (int expert = 0; expert < e.num_experts; ++expert) {
      const WeightMatrix one = matrix_of(expert);
      RandomFillMatrix(one, 5 + expert, nullptr);
      if (is_fp8) SetRandomScales(one);
      Dequantize(one, weights.as<__nv_bfloat16>() + expert * values, nullptr);
    }
    matrix = matrix_of(0);
    const Values in = Random(static_cast<size_t>(e.num_rows) * e.depth);
    const size_t num_out = static_cast<size_t>(num_pairs) * e.num_outputs / (e.gates ? 2 : 1);
    for (const int tile_rows : {8, 16, 32, 64}) {
      const auto num_tiles = static_cast<int>(MaxExpertTiles(num_pairs, e.num_experts, tile_rows));
      const DeviceMemory tiles = ToDevice(std::vector<ExpertTile>(num_tiles, {-9, -9, -9})),
                         expected = Poison(num_out), out = Poison(num_out);
      SortPairs({experts.as<int32_t>(), pairs.as<int32_t>(), sorted_index.as<int32_t>(),
                 tiles.as<ExpertTile>(), num_pairs, e.num_experts, tile_rows, num_tiles},
                nullptr);
      GroupedGemmParams gemm = {};
      gemm.in = in.bf16();
      gemm.pairs = pairs.as<int32_t>();
      gemm.pairs_per_row = e.per_token;
      gemm.tiles = tiles.as<ExpertTile>();
      gemm.num_tiles = num_tiles;
      gemm.num_outputs = e.num_outputs;
      gemm.depth = e.depth;
      gemm.gates = e.gates;
      gemm.tile_rows = tile_rows;
      gemm.out = out.data();
      const DeviceMemory tile_out = Poison(num_out);
      if (streams) {
        EXPECT_EQ(StreamExperts({gemm, matrix, stride, e.num_experts, false}, 132, nullptr),
                  cudaSuccess);
      }
      gemm.out = tile_out.data();
      EXPECT_EQ(TileExperts({gemm, matrix, stride, e.num_experts, false}, nullptr), cudaSuccess);
      gemm.weights = weights.as<__nv_bfloat16>();
      gemm.expert_stride = int64_t{e.num_outputs} * e.depth;
      gemm.out = expected.data();
      // GroupedGemm() gets the same order of rows, in tiles of its own size.
      std::vector<ExpertTile> small;
      for (const ExpertTile& tile : ToHost<ExpertTile>(tiles, num_tiles)) {
        for (int done = 0; done < tile.count; done += kSmallExpertTile) {
          small.push_back(
              {tile.expert, tile.first + done, std::min(kSmallExpertTile, tile.count - done)});
        }
      }
      const DeviceMemory small_tiles = ToDevice(small);
      gemm.tiles = small_tiles.as<ExpertTile>();
      gemm.num_tiles = static_cast<int>(small.size());
      gemm.tile_rows = kSmallExpertTile;
      GroupedGemm(gemm, nullptr);
      for (const DeviceMemory* got : {&out, &tile_out}) {
        if (got == &out && !streams) continue;
        EXPECT_LT(RelativeError(Read(*got, num_out), Read(expected, num_out)),
                  4 * kSmallKernelTolerance)
            << e.num_rows << " rows of " << e.depth << ", tiles of " << tile_rows
            << (got == &out ? ", StreamExperts" : ", TileExperts");
      }
    }
  }
}

}  // namespace
}  // namespace nereid::gpu
