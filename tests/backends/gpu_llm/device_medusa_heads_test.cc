// Medusa heads on the device against a plain loop in double with the same bf16 weights.
#include "backends/gpu_llm/model/device_medusa_heads.h"

#include <deque>
#include <random>

#include "tests/backends/gpu_llm/gpu_test.h"

namespace nereid::gpu {
namespace {

using testing::Bf16Bits;
using testing::FromBf16;

class DeviceMedusaHeadsTest : public testing::GpuTest<::testing::Test> {
 protected:
  static constexpr int kHidden = 96, kVocab = 203, kHeads = 3, kKept = 80, kRows = 90;

  void SetUp() override {
    testing::GpuTest<::testing::Test>::SetUp();
    if (IsSkipped()) return;
    spec_.hidden_size = kHidden;
    spec_.vocab_size = kVocab;
    spec_.norm.epsilon = 1e-5f;
  }

  const llm::ResolvedWeight* Weight(int rows, int columns, float deviation) {
    std::normal_distribution<float> normal(0.0f, deviation);
    auto& bytes = bytes_.emplace_back(size_t(2) * rows * std::max(1, columns));
    for (size_t i = 0; i < bytes.size(); i += 2) {
      const uint16_t bits = Bf16Bits(normal(random_));
      std::memcpy(&bytes[i], &bits, 2);
    }
    llm::ResolvedWeight& weight = weights_.emplace_back();
    weight.source = columns > 0 ? llm::Matrix("w", rows, columns) : llm::Vector("b", rows);
    weight.tensor = {llm::CheckpointDataType::kBF16, weight.source.tensor_shape, bytes};
    return &weight;
  }
  static float At(const llm::ResolvedWeight& weight, int64_t i) {
    uint16_t bits;
    std::memcpy(&bits, weight.tensor.bytes.data() + 2 * i, 2);
    return FromBf16(bits);
  }

  void MakeHeads(int num_blocks) {
    heads_.clear();
    for (int head = 0; head < kHeads; ++head) {
      MedusaHeadSource& source = heads_.emplace_back();
      for (int block = 0; block < num_blocks; ++block)
        source.blocks.push_back({Weight(kHidden, kHidden, 0.15f), Weight(kHidden, 0, 0.5f)});
      source.lm_head = Weight(kVocab, kHidden, 0.3f);
      // Equal logits.
      auto& bytes = bytes_.back();
      std::copy_n(bytes.begin() + 2 * kHidden * 7, 2 * kHidden, bytes.begin() + 2 * kHidden * 150);
    }
  }

  std::unique_ptr<DeviceMedusaHeads> Make(llm::NormKind norm) {
    spec_.norm.kind = norm;
    std::normal_distribution<float> normal(1.0f, 0.2f);
    norm_weight_.resize(kHidden);
    norm_bias_.resize(kHidden);
    for (uint16_t& bits : norm_weight_) bits = Bf16Bits(normal(random_));
    for (uint16_t& bits : norm_bias_) bits = Bf16Bits(normal(random_) - 1.0f);
    device_norm_[0] = testing::ToDevice(norm_weight_);
    device_norm_[1] = testing::ToDevice(norm_bias_);
    captured_ = std::move(*HiddenStates::Create({1}, kHidden, kRows));
    states_.resize(kRows * kHidden);
    for (uint16_t& bits : states_) bits = Bf16Bits(2.0f * normal(random_) - 1.5f);
    EXPECT_EQ(
        cudaMemcpy(captured_.rows(), states_.data(), 2 * states_.size(), cudaMemcpyHostToDevice),
        cudaSuccess);
    MedusaOptions options;
    options.num_kept_rows = kKept;
    options.spec = &spec_;
    options.final_norm = {
        device_norm_[0].as<__nv_bfloat16>(),
        norm == llm::NormKind::kLayer ? device_norm_[1].as<__nv_bfloat16>() : nullptr};
    options.captured = &captured_;
    auto made = DeviceMedusaHeads::Create(heads_, options);
    EXPECT_TRUE(made.ok()) << made.status().message();
    return made.ok() ? std::move(*made) : nullptr;
  }

  // The log probabilities of all tokens of a head, for a captured row.
  std::vector<double> Reference(int row, int head) const {
    std::vector<double> x(kHidden), next(kHidden);
    double mean = 0.0, square = 0.0;
    const bool is_layer = spec_.norm.kind == llm::NormKind::kLayer;
    for (int i = 0; i < kHidden; ++i) mean += (x[i] = FromBf16(states_[row * kHidden + i]));
    mean = is_layer ? mean / kHidden : 0.0;
    for (double& value : x) square += (value - mean) * (value - mean);
    const double scale = 1.0 / std::sqrt(square / kHidden + spec_.norm.epsilon);
    for (int i = 0; i < kHidden; ++i) {
      x[i] = (x[i] - mean) * scale * FromBf16(norm_weight_[i]);
      if (is_layer) x[i] += FromBf16(norm_bias_[i]);
    }
    for (const MedusaHeadSource::Block& block : heads_[head].blocks) {
      for (int i = 0; i < kHidden; ++i) {
        double sum = At(*block.bias, i);
        for (int j = 0; j < kHidden; ++j) sum += x[j] * At(*block.weight, i * kHidden + j);
        next[i] = x[i] + sum / (1.0 + std::exp(-sum));
      }
      x = next;
    }
    std::vector<double> logits(kVocab);
    double sum = 0.0;
    for (int id = 0; id < kVocab; ++id) {
      for (int j = 0; j < kHidden; ++j)
        logits[id] += x[j] * At(*heads_[head].lm_head, id * kHidden + j);
      sum += std::exp(logits[id]);
    }
    for (double& logit : logits) logit -= std::log(sum);
    return logits;
  }

  // `rows`: kept rows; `from`: the captured row of each.
  void Check(DeviceMedusaHeads& heads, std::span<const int32_t> rows, std::span<const int32_t> from,
             int num_heads, int num_tokens) {
    std::vector<llm::SampledToken> tokens;
    const Status status = heads.Run(rows, num_heads, num_tokens, tokens);
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(tokens.size(), rows.size() * num_heads * num_tokens);
    size_t next = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      for (int head = 0; head < num_heads; ++head) {
        std::vector<double> expected = Reference(from[i], head);
        std::vector<double> sorted = expected;
        std::sort(sorted.rbegin(), sorted.rend());
        for (int k = 0; k < num_tokens; ++k, ++next) {
          const llm::SampledToken& token = tokens[next];
          ASSERT_TRUE(token.id >= 0 && token.id < kVocab);
          // bf16 inputs of the products: near ties may be in another order.
          EXPECT_NEAR(token.log_prob, expected[token.id], kTolerance) << i << " " << head;
          EXPECT_NEAR(token.log_prob, sorted[k], kTolerance) << i << " " << head;
          if (k > 0 && tokens[next - 1].log_prob == token.log_prob) {
            EXPECT_LT(tokens[next - 1].id, token.id);
          } else if (k > 0) {
            EXPECT_GT(tokens[next - 1].log_prob, token.log_prob);
          }
        }
      }
    }
  }

  static constexpr double kTolerance = 0.12;
  std::mt19937 random_{3};
  llm::DecoderSpec spec_;
  std::deque<std::vector<uint8_t>> bytes_;
  std::deque<llm::ResolvedWeight> weights_;
  std::vector<MedusaHeadSource> heads_;
  std::vector<uint16_t> norm_weight_, norm_bias_, states_;
  DeviceMemory device_norm_[2];
  HiddenStates captured_;
};

TEST_F(DeviceMedusaHeadsTest, TokensAreThoseOfAPlainLoop) {
  for (const llm::NormKind norm : {llm::NormKind::kRms, llm::NormKind::kLayer}) {
    for (const int num_blocks : {0, 1, 2}) {
      SCOPED_TRACE(num_blocks);
      MakeHeads(num_blocks);
      const std::unique_ptr<DeviceMedusaHeads> heads = Make(norm);
      ASSERT_NE(heads, nullptr);
      EXPECT_EQ(heads->num_heads(), kHeads);
      std::vector<int32_t> kept;
      heads->pool()->Take(70, kept);
      // Rows side by side, and rows of a tree.
      heads->Keep({.num_rows = 3, .first_row = 5}, std::span(kept).first(3));
      const std::vector<int32_t> places = {80, 2};
      heads->Keep({.num_rows = 2, .step_rows = places}, std::span(kept).subspan(3, 2));
      ASSERT_TRUE(heads->FinishKeeping().ok());
      Check(*heads, std::span(kept).first(5), std::vector<int32_t>{5, 6, 7, 80, 2}, kHeads, 16);
      Check(*heads, std::span(kept).subspan(4, 1), std::vector<int32_t>{2}, 2, 3);
      // More rows than one pass computes.
      heads->Keep({.num_rows = 70, .first_row = 10}, kept);
      ASSERT_TRUE(heads->FinishKeeping().ok());
      std::vector<int32_t> from(70);
      for (int32_t i = 0; i < 70; ++i) from[i] = 10 + i;
      Check(*heads, kept, from, kHeads, 4);
      if (HasFailure()) return;
    }
  }
}

TEST_F(DeviceMedusaHeadsTest, WhatDoesNotFitIsRefused) {
  MakeHeads(1);
  heads_[2].blocks.clear();
  MedusaOptions options;
  options.spec = &spec_;
  const auto uneven = DeviceMedusaHeads::Create(heads_, options);
  ASSERT_FALSE(uneven.ok());
  EXPECT_EQ(uneven.status().message(), "Medusa head 2 has 0 residual blocks, head 0 has 1");
  MakeHeads(1);
  const std::unique_ptr<DeviceMedusaHeads> heads = Make(llm::NormKind::kRms);
  ASSERT_NE(heads, nullptr);
  std::vector<llm::SampledToken> tokens;
  EXPECT_FALSE(heads->Run(std::vector<int32_t>{0}, kHeads + 1, 4, tokens).ok());
  EXPECT_FALSE(heads->Run(std::vector<int32_t>{0}, kHeads, 21, tokens).ok());
  captured_ = std::move(*HiddenStates::Create({0, 1}, kHidden, kRows));
  heads->Keep({.num_rows = 1}, std::vector<int32_t>{0});
  EXPECT_FALSE(heads->FinishKeeping().ok());
}

}  // namespace
}  // namespace nereid::gpu
