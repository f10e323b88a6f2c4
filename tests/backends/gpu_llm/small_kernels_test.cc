// Norms, activations, residual addition, logits, routing and grouped GEMM, each against the CPU's
// kernel or a plain loop, on the same bf16 values, at odd sizes.
#include <algorithm>
#include <iostream>
#include <numeric>
#include <random>
#include <span>

#include "backends/cpu_reference/ops/op_table.h"
#include "backends/gpu_llm/kernels/gemm/gemm.h"
#include "backends/gpu_llm/kernels/gemm/stream_experts.h"
#include "backends/gpu_llm/kernels/gemm/weight_kernels.h"
#include "backends/gpu_llm/kernels/rows/activation.h"
#include "backends/gpu_llm/kernels/rows/embedding.h"
#include "backends/gpu_llm/kernels/rows/moe.h"
#include "backends/gpu_llm/kernels/rows/norm.h"
#include "backends/gpu_llm/kernels/sampling/logits.h"
#include "tests/backends/gpu_llm/gpu_test.h"

namespace nereid::gpu {
namespace {

using testing::Bf16Bits;
using testing::FromBf16;
using testing::RelativeError;
using testing::ToDevice;
using testing::ToHost;

// A bf16 result: 2^-9 relative, plus some for another order of additions.
constexpr double kSmallKernelTolerance = 4e-3;

class SmallKernelsTest : public testing::GpuTest<::testing::Test> {
 protected:
  // Values that bf16 represents exactly, on both sides.
  struct Values {
    std::vector<float> host;
    DeviceMemory device;
    __nv_bfloat16* bf16() const { return device.as<__nv_bfloat16>(); }
  };
  Values Random(size_t count, float mean = 0.0f, float deviation = 1.0f) {
    std::normal_distribution<float> normal(mean, deviation);
    Values values;
    std::vector<uint16_t> bits(count);
    for (uint16_t& value : bits) {
      value = Bf16Bits(normal(random_));
      values.host.push_back(FromBf16(value));
    }
    values.device = ToDevice(bits);
    return values;
  }
  static DeviceMemory Poison(size_t count) {
    return ToDevice(std::vector<uint16_t>(count, 0x7fc0));  // NaN
  }
  static std::vector<float> Read(const DeviceMemory& memory, size_t count) {
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    std::vector<float> values;
    for (const uint16_t bits : ToHost<uint16_t>(memory, count)) values.push_back(FromBf16(bits));
    return values;
  }

  std::mt19937 random_{11};
  const cpu::OpTable& ops_ = cpu::BestOps();
};

TEST_F(SmallKernelsTest, RmsNormEqualsTheCpus) {
  for (const auto& [rows, size] :
       {std::pair(1, 8), {3, 64}, {31, 776}, {5, 4096}, {3, 4104}, {2, 16384}}) {
    const Values in = Random(rows * size, 3.0f, 2.0f), weight = Random(size, 1.0f, 0.3f);
    const DeviceMemory out = Poison(rows * size);
    RmsNorm({in.bf16(), nullptr, weight.bf16(), out.as<__nv_bfloat16>(), rows, size, 1e-5f},
            nullptr);
    std::vector<float> expected(rows * size);
    ops_.rms_norm(
        {in.host.data(), size, weight.host.data(), 1e-5f, rows, size, expected.data(), size});
    EXPECT_LT(RelativeError(Read(out, rows * size), expected), kSmallKernelTolerance)
        << rows << " " << size;
  }
}

TEST_F(SmallKernelsTest, LayerNormEqualsTheCpus) {
  for (const auto& [rows, size] : {std::pair(1, 8), {3, 64}, {31, 776}, {5, 4096}, {2, 16384}}) {
    const Values in = Random(rows * size, 3.0f, 2.0f), weight = Random(size, 1.0f, 0.3f),
                 bias = Random(size);
    const DeviceMemory out = Poison(rows * size);
    LayerNorm({in.bf16(), nullptr, weight.bf16(), bias.bf16(), out.as<__nv_bfloat16>(), rows, size,
               1e-5f},
              nullptr);
    std::vector<float> expected(rows * size);
    ops_.layer_norm(
        {in.host.data(), weight.host.data(), bias.host.data(), 1e-5f, rows, size, expected.data()});
    EXPECT_LT(RelativeError(Read(out, rows * size), expected), kSmallKernelTolerance)
        << rows << " " << size;
  }
}

TEST_F(SmallKernelsTest, TwoLayerNormsOfTheSameRowsEqualTheCpus) {
  const int rows = 5, size = 6144;
  const Values in = Random(rows * size, 3.0f, 2.0f);
  const Values weights[2] = {Random(size, 1.0f, 0.3f), Random(size, 0.5f)};
  const Values bias = Random(size);
  const DeviceMemory outs[2] = {Poison(rows * size), Poison(rows * size)};
  LayerNorm({in.bf16(), nullptr, weights[0].bf16(), nullptr, outs[0].as<__nv_bfloat16>(), rows,
             size, 1e-5f, weights[1].bf16(), bias.bf16(), outs[1].as<__nv_bfloat16>()},
            nullptr);
  const std::vector<float> none(size);
  for (int i = 0; i < 2; ++i) {
    std::vector<float> expected(rows * size);
    ops_.layer_norm({in.host.data(), weights[i].host.data(),
                     i == 0 ? none.data() : bias.host.data(), 1e-5f, rows, size, expected.data()});
    EXPECT_LT(RelativeError(Read(outs[i], rows * size), expected), kSmallKernelTolerance) << i;
  }
}

TEST_F(SmallKernelsTest, LayerNormSelectsRows) {
  const int size = 40;
  const Values in = Random(7 * size), weight = Random(size), bias = Random(size);
  const std::vector<int32_t> rows = {6, 0, 3};
  const DeviceMemory picked = ToDevice(rows), out = Poison(rows.size() * size);
  LayerNorm({in.bf16(), picked.as<int32_t>(), weight.bf16(), bias.bf16(), out.as<__nv_bfloat16>(),
             3, size, 1e-5f},
            nullptr);
  std::vector<float> expected(rows.size() * size);
  for (size_t i = 0; i < rows.size(); ++i) {
    ops_.layer_norm({in.host.data() + rows[i] * size, weight.host.data(), bias.host.data(), 1e-5f,
                     1, size, expected.data() + i * size});
  }
  EXPECT_LT(RelativeError(Read(out, expected.size()), expected), kSmallKernelTolerance);
}

TEST_F(SmallKernelsTest, ActivationsEqualTheCpus) {
  const std::pair<llm::Activation, cpu::ActivationKind> kinds[] = {
      {llm::Activation::kSilu, cpu::ActivationKind::kSilu},
      {llm::Activation::kGelu, cpu::ActivationKind::kGelu},
      {llm::Activation::kGeluTanh, cpu::ActivationKind::kGeluTanh},
      {llm::Activation::kRelu, cpu::ActivationKind::kRelu},
      {llm::Activation::kQuickGelu, cpu::ActivationKind::kQuickGelu}};
  for (const auto& [kind, cpu_kind] : kinds) {
    for (const bool gated : {false, true}) {
      for (const auto& [rows, inner] : {std::pair(1, 8), {33, 72}, {2, 14336}}) {
        const int width = gated ? 2 * inner : inner;
        const Values in = Random(rows * width, 0.0f, 2.0f), bias = Random(width);
        const DeviceMemory out = Poison(rows * inner);
        Activate({in.bf16(), bias.bf16(), out.as<__nv_bfloat16>(), rows, inner, kind, gated},
                 nullptr);
        std::vector<float> expected(rows * inner), factors(rows * inner);
        for (int row = 0; row < rows; ++row) {
          for (int c = 0; c < inner; ++c) {
            const int at = gated ? c / 8 * 16 + c % 8 : c;
            expected[row * inner + c] = in.host[row * width + at] + bias.host[at];
            if (gated) factors[row * inner + c] = in.host[row * width + at + 8] + bias.host[at + 8];
          }
        }
        ops_.activation({cpu_kind, expected.data(), gated ? factors.data() : nullptr,
                         static_cast<int64_t>(expected.size())});
        EXPECT_LT(RelativeError(Read(out, expected.size()), expected), kSmallKernelTolerance)
            << static_cast<int>(kind) << " " << gated << " " << rows << " " << inner;
      }
    }
  }
}

TEST_F(SmallKernelsTest, ResidualsGetBiasAndNorm) {
  for (const auto& [rows, size] : {std::pair(1, 8), {31, 776}, {2, 16384}}) {
    for (const bool normed : {false, true}) {
      const Values in = Random(rows * size), bias = Random(size), weight = Random(size, 1.0f),
                   residual = Random(rows * size);
      ResidualAdd({in.bf16(), bias.bf16(), normed ? weight.bf16() : nullptr, residual.bf16(), rows,
                   size, 1e-6f},
                  nullptr);
      std::vector<float> sums(rows * size), expected = residual.host;
      for (int i = 0; i < rows * size; ++i) sums[i] = in.host[i] + bias.host[i % size];
      if (normed) {
        ops_.rms_norm({sums.data(), size, weight.host.data(), 1e-6f, rows, size, expected.data(),
                       size, true});
      } else {
        for (int i = 0; i < rows * size; ++i) expected[i] += sums[i];
      }
      EXPECT_LT(RelativeError(Read(residual.device, rows * size), expected), kSmallKernelTolerance);
    }
  }
}

TEST_F(SmallKernelsTest, ResidualsAreNormedForTheNextProduct) {
  for (const auto& [rows, size] : {std::pair(1, 8), {31, 776}, {3, 3584}, {2, 16384}}) {
    for (const bool normed : {false, true}) {
      const Values in = Random(rows * size), weight = Random(size, 1.0f),
                   next = Random(size, 1.0f, 0.3f), residual = Random(rows * size);
      const DeviceMemory out = Poison(rows * size);
      ResidualAdd({in.bf16(), nullptr, normed ? weight.bf16() : nullptr, residual.bf16(), rows,
                   size, 1e-6f, next.bf16(), out.as<__nv_bfloat16>()},
                  nullptr);
      const std::vector<float> sums = Read(residual.device, rows * size);
      std::vector<float> added = residual.host, expected(rows * size);
      if (normed) {
        ops_.rms_norm({in.host.data(), size, weight.host.data(), 1e-6f, rows, size, added.data(),
                       size, true});
      } else {
        for (int i = 0; i < rows * size; ++i) added[i] += in.host[i];
      }
      EXPECT_LT(RelativeError(sums, added), kSmallKernelTolerance) << rows << " " << size;
      ops_.rms_norm(
          {sums.data(), size, next.host.data(), 1e-6f, rows, size, expected.data(), size});
      EXPECT_LT(RelativeError(Read(out, rows * size), expected), kSmallKernelTolerance)
          << rows << " " << size;
    }
  }
}

TEST_F(SmallKernelsTest, LogitsAreCappedAndPadded) {
  const int rows = 3, vocab = 509, stride = 512;
  std::vector<float> logits(rows * stride, NAN);
  std::normal_distribution<float> normal(0.0f, 40.0f);
  for (int i = 0; i < rows * stride; ++i)
    if (i % stride < vocab) logits[i] = normal(random_);
  const Values bias = Random(vocab);
  const DeviceMemory device = ToDevice(logits);
  FinishLogits({device.as<float>(), bias.bf16(), rows, vocab, stride, 30.0f}, nullptr);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  const auto got = ToHost<float>(device, logits.size());
  for (int i = 0; i < rows * stride; ++i) {
    if (i % stride >= vocab) {
      EXPECT_EQ(got[i], -INFINITY);
    } else {
      EXPECT_NEAR(got[i], 30.0f * std::tanh((logits[i] + bias.host[i % stride]) / 30.0f), 1e-4f);
    }
  }
}

TEST_F(SmallKernelsTest, EmbeddingsAreScaledAndGetPositions) {
  const int vocab = 50, size = 72, rows = 5;
  const Values table = Random(vocab * size), positions_table = Random(9 * size);
  const std::vector<int32_t> ids = {49, 0, 7, -2, 7}, last = {3, 11}, positions = {0, 8, 3, 1, 4};
  const DeviceMemory d_ids = ToDevice(ids), d_last = ToDevice(last),
                     d_positions = ToDevice(positions), out = Poison(rows * size);
  EmbeddingParams params = {};
  params.ids = d_ids.as<int32_t>();
  params.last_tokens = d_last.as<int32_t>();
  params.table = table.bf16();
  params.positions = d_positions.as<int32_t>();
  params.position_table = positions_table.bf16();
  params.out = out.as<__nv_bfloat16>();
  params.num_rows = rows;
  params.hidden_size = size;
  params.scale = 8.0f;
  Embed(params, nullptr);
  std::vector<float> expected(rows * size);
  for (int row = 0; row < rows; ++row) {
    const int id = ids[row] < 0 ? last[-1 - ids[row]] : ids[row];
    for (int c = 0; c < size; ++c) {
      expected[row * size + c] =
          table.host[id * size + c] * 8.0f + positions_table.host[positions[row] * size + c];
    }
  }
  EXPECT_LT(RelativeError(Read(out, expected.size()), expected), kSmallKernelTolerance);
}

TEST_F(SmallKernelsTest, TheDriverLoadsTheSelectedForm) {
  const KernelForm form = *testing::FormOfGpu();
  const std::string loaded = DescribeLoadedKernels(form);
  EXPECT_EQ(loaded.find(form == KernelForm::kNative ? "native" : "portable"), 0u) << loaded;
  std::cout << "GPU 0 runs " << loaded << "\n";
}

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

class StreamExpertsTest : public MoeTest {};

TEST_F(StreamExpertsTest, AnyNumberOfRowsAndExperts) {
  for (const MoeCase& e : kMoeCases) {
    Check(e, Kernel::kStreamExperts, kStreamTileRows);
    Check(e, Kernel::kTileExperts, kStreamTileRows);
  }
}

// Against the product of the dequantized weights, whose scales are not rounded to bf16.
TEST_F(StreamExpertsTest, Int4WeightsOfAnyGroupSize) {
  struct Case {
    int num_rows, num_experts, per_token, depth, num_outputs, scales_per_block;
    bool gates;
  };
  for (const Case& e : {Case{1, 128, 8, 2048, 96, 1, true}, Case{40, 8, 2, 384, 272, 2, false},
                        Case{2, 4, 2, 4224, 64, 1, true}, Case{50, 6, 2, 4224, 48, 2, false},
                        Case{130, 5, 2, 128, 64, 4, true}, Case{64, 60, 4, 896, 80, 1, false}}) {
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
    matrix.format = WeightFormat::kInt4;
    matrix.scales_per_block = e.scales_per_block;
    matrix.num_outputs = e.num_outputs * e.num_experts;
    matrix.depth = e.depth;
    const int64_t stride =
        e.num_outputs / kInt4TileRows * Int4TileBytes(e.depth, e.scales_per_block);
    const DeviceMemory packed = ToDevice(std::vector<uint8_t>(stride * e.num_experts)),
                       weights = Poison(int64_t{matrix.num_outputs} * e.depth);
    matrix.data = packed.data();
    RandomFillMatrix(matrix, 5, nullptr);
    Dequantize(matrix, weights.as<__nv_bfloat16>(), nullptr);
    matrix.num_outputs = e.num_outputs;
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
      EXPECT_EQ(StreamExperts({gemm, matrix, stride, e.num_experts, false}, 132, nullptr),
                cudaSuccess);
      gemm.out = tile_out.data();
      EXPECT_EQ(TileExperts({gemm, matrix, stride, e.num_experts, false}, nullptr), cudaSuccess);
      gemm.weights = weights.as<__nv_bfloat16>();
      gemm.expert_stride = int64_t{e.num_outputs} * e.depth;
      gemm.out = expected.data();
      // The sorted order is the first sort's.
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
