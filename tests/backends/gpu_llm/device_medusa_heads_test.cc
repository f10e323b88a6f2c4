// Medusa heads on the device against a plain loop in double with the same bf16 weights.
#include "backends/gpu_llm/model/device_medusa_heads.h"

#include <deque>
#include <random>

#include "backends/gpu_llm/kernels/sampling/rank_tokens.h"
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
    norm_.epsilon = 1e-5f;
  }

  llm::ResolvedWeight Weight(int rows, int columns, float deviation) {
    std::normal_distribution<float> normal(0.0f, deviation);
    auto& bytes = bytes_.emplace_back(size_t(2) * rows * std::max(1, columns));
    for (size_t i = 0; i < bytes.size(); i += 2) {
      const uint16_t bits = Bf16Bits(normal(random_));
      std::memcpy(&bytes[i], &bits, 2);
    }
    llm::ResolvedWeight weight;
    weight.source = columns > 0 ? llm::Matrix("w", rows, columns) : llm::Vector("b", rows);
    weight.tensor = {llm::CheckpointDataType::kBF16, weight.source.tensor_shape, bytes};
    return weight;
  }
  static float At(const llm::ResolvedWeight& weight, int64_t i) {
    uint16_t bits;
    std::memcpy(&bits, weight.tensor.bytes.data() + 2 * i, 2);
    return FromBf16(bits);
  }

  struct Shape {
    int num_blocks = 1;
    bool has_bias = true, shares_lm_head = false, maps_ids = false;
  };

  void MakeHeads(const Shape& shape) {
    heads_ = {};
    heads_.model.spec.hidden_size = kHidden;
    heads_.num_heads = kHeads;
    heads_.num_blocks = shape.num_blocks;
    heads_.draft_vocab_size = kVocab;
    heads_.shares_lm_head = shape.shares_lm_head;
    for (int32_t id = 0; id < kVocab && shape.maps_ids; ++id)
      heads_.target_ids.push_back(3 * id + 1);
    const auto set = [&](int32_t layer, llm::WeightKind kind, const llm::ResolvedWeight& weight) {
      heads_.model.weights[{layer, kind, llm::kNoExpert}] = weight;
    };
    for (int head = 0; head < kHeads; ++head) {
      for (int block = 0; block < shape.num_blocks; ++block) {
        const int32_t layer = heads_.BlockLayer(head, block);
        set(layer, llm::WeightKind::kResidualBlock, Weight(kHidden, kHidden, 0.15f));
        if (shape.has_bias)
          set(layer, llm::WeightKind::kResidualBlockBias, Weight(kHidden, 0, 0.5f));
      }
      lm_heads_[head] = shape.shares_lm_head && head > 0 ? lm_heads_[0] : MakeLmHead();
      if (!shape.shares_lm_head)
        set(heads_.OutputLayer(head), llm::WeightKind::kLmHead, lm_heads_[head]);
    }
  }
  // Two tokens have equal logits.
  llm::ResolvedWeight MakeLmHead() {
    const llm::ResolvedWeight lm_head = Weight(kVocab, kHidden, 0.1f);
    auto& bytes = bytes_.back();
    std::copy_n(bytes.begin() + 2 * kHidden * 7, 2 * kHidden, bytes.begin() + 2 * kHidden * 150);
    return lm_head;
  }

  std::unique_ptr<DeviceMedusaHeads> Make(llm::NormKind norm) {
    norm_.kind = norm;
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
    options.norm = norm_;
    options.final_norm = {
        device_norm_[0].as<__nv_bfloat16>(),
        norm == llm::NormKind::kLayer ? device_norm_[1].as<__nv_bfloat16>() : nullptr};
    options.captured = [this] { return &captured_; };
    if (heads_.shares_lm_head) {  // of the model, with padding rows
      std::vector<uint8_t> bytes(lm_heads_[0].tensor.bytes.begin(),
                                 lm_heads_[0].tensor.bytes.end());
      bytes.resize(size_t(2) * kHidden * PaddedVocabulary(kVocab));
      shared_bytes_ = testing::ToDevice(bytes);
      shared_.data = shared_bytes_.data();
      shared_.num_outputs = PaddedVocabulary(kVocab);
      shared_.depth = kHidden;
      options.lm_head = &shared_;
    }
    auto made = DeviceMedusaHeads::Create(heads_, options);
    EXPECT_TRUE(made.ok()) << made.status().message();
    return made.ok() ? std::move(*made) : nullptr;
  }

  // The log probabilities of all tokens of a head, for a captured row.
  std::vector<double> Reference(int row, int head) const {
    std::vector<double> x(kHidden), next(kHidden);
    double mean = 0.0, square = 0.0;
    const bool is_layer = norm_.kind == llm::NormKind::kLayer;
    for (int i = 0; i < kHidden; ++i) mean += (x[i] = FromBf16(states_[row * kHidden + i]));
    mean = is_layer ? mean / kHidden : 0.0;
    for (double& value : x) square += (value - mean) * (value - mean);
    const double scale = 1.0 / std::sqrt(square / kHidden + norm_.epsilon);
    for (int i = 0; i < kHidden; ++i) {
      x[i] = (x[i] - mean) * scale * FromBf16(norm_weight_[i]);
      if (is_layer) x[i] += FromBf16(norm_bias_[i]);
    }
    for (int block = 0; block < heads_.num_blocks; ++block) {
      const auto find = [&](llm::WeightKind kind) {
        const auto found =
            heads_.model.weights.find({heads_.BlockLayer(head, block), kind, llm::kNoExpert});
        return found == heads_.model.weights.end() ? nullptr : &found->second;
      };
      const auto* const weight = find(llm::WeightKind::kResidualBlock);
      const auto* const bias = find(llm::WeightKind::kResidualBlockBias);
      for (int i = 0; i < kHidden; ++i) {
        double sum = bias != nullptr ? At(*bias, i) : 0.0;
        for (int j = 0; j < kHidden; ++j) sum += x[j] * At(*weight, i * kHidden + j);
        next[i] = x[i] + sum / (1.0 + std::exp(-sum));
      }
      x = next;
    }
    std::vector<double> logits(kVocab);
    double sum = 0.0;
    for (int id = 0; id < kVocab; ++id) {
      for (int j = 0; j < kHidden; ++j) logits[id] += x[j] * At(lm_heads_[head], id * kHidden + j);
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
          llm::SampledToken& token = tokens[next];
          if (!heads_.target_ids.empty()) {
            ASSERT_EQ(token.id % 3, 1);
            token.id /= 3;
          }
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
  llm::NormSpec norm_;
  std::deque<std::vector<uint8_t>> bytes_;
  llm::MedusaWeights heads_;
  llm::ResolvedWeight lm_heads_[kHeads];
  GpuMatrix shared_;
  DeviceMemory shared_bytes_;
  std::vector<uint16_t> norm_weight_, norm_bias_, states_;
  DeviceMemory device_norm_[2];
  HiddenStates captured_;
};

TEST_F(DeviceMedusaHeadsTest, TokensAreThoseOfAPlainLoop) {
  for (const llm::NormKind norm : {llm::NormKind::kRms, llm::NormKind::kLayer}) {
    for (const Shape& shape : {Shape{1}, Shape{2}, Shape{3, false}, Shape{1, true, true},
                               Shape{1, false, false, true}}) {
      SCOPED_TRACE(shape.num_blocks);
      MakeHeads(shape);
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
  MakeHeads({});
  heads_.model.weights.erase(
      {heads_.BlockLayer(2, 0), llm::WeightKind::kResidualBlock, llm::kNoExpert});
  const auto uneven = DeviceMedusaHeads::Create(heads_, {});
  ASSERT_FALSE(uneven.ok());
  EXPECT_EQ(uneven.status().message(), "Medusa head 2 has no weight or bias that others have");
  MakeHeads({});
  const std::unique_ptr<DeviceMedusaHeads> heads = Make(llm::NormKind::kRms);
  ASSERT_NE(heads, nullptr);
  std::vector<llm::SampledToken> tokens;
  EXPECT_FALSE(heads->Run(std::vector<int32_t>{0}, kHeads + 1, 4, tokens).ok());
  EXPECT_FALSE(heads->Run(std::vector<int32_t>{0}, kHeads, 21, tokens).ok());
  captured_ = std::move(*HiddenStates::Create({0, 1}, kHidden, kRows));
  heads->Keep({.num_rows = 1}, std::vector<int32_t>{0});
  EXPECT_FALSE(heads->FinishKeeping().ok());
}

// Many splits, the last of which is short, and equal logits in different ones.
TEST_F(DeviceMedusaHeadsTest, TheLikeliestTokensOfLargeVocabulariesAreRanked) {
  for (const int vocab : {5, 4096, 4097, 50000, 128256}) {
    constexpr int kNumRows = 3;
    const int stride = vocab + 7, count = std::min(vocab, kMaxRankedTokens);
    std::normal_distribution<float> normal(0.0f, 3.0f);
    std::vector<float> logits(size_t(kNumRows) * stride, 100.0f);
    for (int row = 0; row < kNumRows; ++row) {
      for (int id = 0; id < vocab; ++id)
        logits[size_t(row) * stride + id] = std::round(4.0f * normal(random_)) / 4.0f;
    }
    const DeviceMemory device_logits = testing::ToDevice(logits);
    const DeviceMemory partials =
        testing::ToDevice(std::vector<uint8_t>(sizeof(RankPartial) * kMaxRankSplits * kNumRows));
    const DeviceMemory tickets = testing::ToDevice(std::vector<int32_t>(kNumRows, 0));
    const DeviceMemory ids = testing::ToDevice(std::vector<int32_t>(kNumRows * kMaxRankedTokens));
    const DeviceMemory log_probs =
        testing::ToDevice(std::vector<float>(kNumRows * kMaxRankedTokens));
    for (int round = 0; round < 2; ++round) {
      RankTokens({device_logits.as<float>(), partials.as<RankPartial>(), tickets.as<int32_t>(),
                  ids.as<int32_t>(), log_probs.as<float>(), kNumRows, vocab, stride, count},
                 nullptr);
    }
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    const auto got = testing::ToHost<int32_t>(ids, kNumRows * kMaxRankedTokens);
    const auto got_log_probs = testing::ToHost<float>(log_probs, kNumRows * kMaxRankedTokens);
    for (int row = 0; row < kNumRows; ++row) {
      const float* const of_row = logits.data() + size_t(row) * stride;
      std::vector<int32_t> order(vocab);
      for (int id = 0; id < vocab; ++id) order[id] = id;
      std::stable_sort(order.begin(), order.end(),
                       [&](int32_t a, int32_t b) { return of_row[a] > of_row[b]; });
      double sum = 0.0;
      for (int id = 0; id < vocab; ++id) sum += std::exp(double{of_row[id]});
      for (int k = 0; k < count; ++k) {
        EXPECT_EQ(got[row * kMaxRankedTokens + k], order[k]) << vocab << " " << k;
        EXPECT_NEAR(got_log_probs[row * kMaxRankedTokens + k], of_row[order[k]] - std::log(sum),
                    1e-4);
      }
    }
  }
}

}  // namespace
}  // namespace nereid::gpu
