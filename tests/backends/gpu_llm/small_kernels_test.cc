// Norms, activations, residual addition, logits and embeddings, each against the CPU's kernel or a
// plain loop, on the same bf16 values, at sizes that are no multiples of what a kernel computes at
// once.
#include <algorithm>
#include <iostream>
#include <random>
#include <span>

#include "backends/gpu_llm/kernels/rows/activation.h"
#include "backends/gpu_llm/kernels/rows/embedding.h"
#include "backends/gpu_llm/kernels/rows/norm.h"
#include "backends/gpu_llm/kernels/sampling/logits.h"
#include "tests/backends/gpu_llm/small_kernels_fixture.h"

namespace nereid::gpu {
namespace {

using testing::Bf16Bits;
using testing::FromBf16;
using testing::RelativeError;
using testing::ToDevice;
using testing::ToHost;

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

}  // namespace
}  // namespace nereid::gpu
