// What a step returns from made-up logits and hidden states: sampled tokens as llm::Sampler's,
// outputs that sequences request, and hidden states.
#include <cmath>
#include <numeric>
#include <random>

#include "backends/gpu_llm/hidden_state_outputs.h"
#include "backends/gpu_llm/logit_outputs.h"
#include "backends/gpu_llm/step_sampler.h"
#include "backends/gpu_llm/step_upload.h"
#include "tests/backends/gpu_llm/gpu_test.h"

namespace nereid::gpu {
namespace {

using testing::Bf16Bits;
using testing::ToDevice;
using testing::ToHost;

constexpr int32_t kVocabSize = 509, kStride = 512, kMaxRows = 16;

class StepOutputsTest : public testing::GpuTest<::testing::Test> {
 protected:
  void SetUp() override {
    testing::GpuTest<::testing::Test>::SetUp();
    if (IsSkipped()) return;
    std::normal_distribution<float> number(0.0f, 3.0f);
    // Padded columns are never the most likely ones, as the decoder writes them.
    host_.assign(size_t{kMaxRows} * kStride, -INFINITY);
    for (int32_t row = 0; row < kMaxRows; ++row)
      for (int32_t i = 0; i < kVocabSize; ++i) host_[row * kStride + i] = number(random_);
    rows_ = ToDevice(host_);
    last_tokens_ = ToDevice(std::vector<int32_t>(kMaxRows, -7));
    logits_ = {rows_.as<float>(), kStride, kVocabSize, last_tokens_.as<int32_t>()};
    host_logits_.emplace(logits_);
  }

  // An entry that decodes: a newest token and `num_drafts` drafts.
  llm::BatchEntry& Add(const llm::SamplingParams* params, int32_t num_drafts = 0) {
    llm::BatchEntry& entry = batch_.entries.emplace_back();
    entry.slot = static_cast<int32_t>(batch_.entries.size()) - 1;
    entry.first_token = static_cast<int32_t>(batch_.token_ids.size());
    entry.num_tokens = entry.num_logits = 1 + num_drafts;
    entry.num_draft_tokens = num_drafts;
    entry.num_cached = 3;
    entry.block_table = table_;
    entry.samples = true;
    entry.sampling = {params, history_, 2, {}};
    for (int32_t i = 0; i <= num_drafts; ++i) batch_.token_ids.push_back(5 + i);
    return entry;
  }
  std::span<const float> Row(int32_t row) const {
    return std::span(host_).subspan(static_cast<size_t>(row) * kStride, kVocabSize);
  }
  double LogSum(int32_t row) const {
    double sum = 0.0;
    for (const float logit : Row(row)) sum += std::exp(static_cast<double>(logit));
    return std::log(sum);
  }

  std::mt19937 random_{11};
  std::vector<float> host_;
  DeviceMemory rows_, last_tokens_;
  StepLogits logits_;
  std::optional<HostLogits> host_logits_;
  const std::vector<int32_t> history_ = {1, 2, 3, 4}, table_ = {0};
  llm::StepBatch batch_;
};

TEST_F(StepOutputsTest, TokensAreThoseOfTheHostsSampler) {
  auto sampler = StepSampler::Create(logits_, kMaxRows, true);
  ASSERT_TRUE(sampler.ok()) << sampler.status().message();
  auto upload = StepUpload::Create(1 << 14, kMaxRows, 1 << 10);
  ASSERT_TRUE(upload.ok()) << upload.status().message();
  llm::SamplingParams greedy, drawn, penalized, allowed;
  drawn.temperature = 0.9f;
  drawn.top_p = 0.8f;
  drawn.seed = 77;
  penalized.frequency_penalty = 2.5f;
  allowed.allowed_ids = {8, 9, 10};  // drawn on the host
  for (llm::SamplingParams* params : {&greedy, &drawn, &penalized, &allowed}) {
    params->returns_log_probs = true;
    Add(params);
  }
  StepPlanner planner({.num_heads = 2, .num_kv_heads = 1});
  for (int32_t step = 0; step < 3; ++step) {
    const int32_t buffer_index = step % 2;
    planner.Plan(batch_, buffer_index);
    sampler->Plan(batch_);
    ASSERT_TRUE(
        upload->Start(planner.words(), sampler->items(), sampler->edits(), buffer_index, nullptr)
            .ok());
    const StepShape shape = planner.shape();
    const StepSampler::Launch launch = {shape, *upload, nullptr, nullptr};
    sampler->FindMostLikely(launch, 0, shape.num_sampled);
    ASSERT_TRUE(sampler->Draw(launch, batch_, buffer_index, *host_logits_).ok());
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    const std::vector<int32_t> last = ToHost<int32_t>(last_tokens_, kMaxRows);
    for (int32_t i = 0; i < 4; ++i) {
      std::vector<float> row(Row(i).begin(), Row(i).end());
      llm::Sampler on_host;
      const llm::SampledToken expected = on_host.Sample(row, batch_.entries[i].sampling);
      EXPECT_EQ(sampler->ids(buffer_index)[i], expected.id) << "entry " << i;
      EXPECT_NEAR(sampler->log_probs(buffer_index)[i], expected.log_prob, 1e-4) << "entry " << i;
      EXPECT_EQ(last[i], expected.id) << "entry " << i;
    }
    // Rules have changed the logits.
    ASSERT_EQ(cudaMemcpy(rows_.data(), host_.data(), rows_.size_bytes(), cudaMemcpyHostToDevice),
              cudaSuccess);
  }
}

TEST_F(StepOutputsTest, AGpuThatDoesNotDrawHasNoItems) {
  auto sampler = StepSampler::Create(logits_, kMaxRows, false);
  ASSERT_TRUE(sampler.ok());
  llm::SamplingParams drawn;
  drawn.temperature = 1.0f;
  Add(&drawn);
  sampler->Plan(batch_);
  EXPECT_TRUE(sampler->items().empty());
}

TEST_F(StepOutputsTest, RequestedLogitsAndLogProbabilitiesAreThoseOfTheRows) {
  auto outputs = LogitOutputs::Create(logits_, kMaxRows, 64);
  ASSERT_TRUE(outputs.ok()) << outputs.status().message();
  llm::SamplingParams greedy;
  const std::vector<int32_t> next_ids = {17, 4};
  Add(&greedy);
  llm::BatchEntry& wanted = Add(&greedy, 2);
  wanted.returns_logits = true;
  wanted.next_ids = next_ids;  // of its first two rows
  const std::vector<StepPlanner::LogitRow> owners = {{0, 0}, {1, 0}, {1, 1}, {1, 2}};
  std::vector<float> sums;
  for (int32_t row = 0; row < 4; ++row) sums.push_back(static_cast<float>(LogSum(row)));
  const DeviceMemory log_sums = ToDevice(sums);
  const DeviceMemory ids = ToDevice(std::vector<int32_t>{-1, next_ids[0], next_ids[1], -1});
  for (const int32_t buffer_index : {0, 1, 0}) {
    outputs->Begin(buffer_index);
    llm::StepResult result;
    ASSERT_TRUE(outputs
                    ->Extract(batch_, {owners, 0, ids.as<int32_t>(), log_sums.as<float>()},
                              buffer_index, *host_logits_, nullptr, result)
                    .ok());
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    outputs->Take(buffer_index, 2, result);
    ASSERT_EQ(result.logits.size(), 2u);
    EXPECT_TRUE(result.logits[0].empty());
    ASSERT_EQ(result.logits[1].size(), 3u * kVocabSize);
    for (int32_t row = 0; row < 3; ++row) {
      EXPECT_TRUE(std::equal(Row(row + 1).begin(), Row(row + 1).end(),
                             result.logits[1].begin() + row * kVocabSize));
    }
    ASSERT_EQ(result.prompt_log_probs.size(), 2u);
    ASSERT_EQ(result.prompt_log_probs[1].size(), 2u);
    for (int32_t i = 0; i < 2; ++i) {
      EXPECT_NEAR(result.prompt_log_probs[1][i], Row(i + 1)[next_ids[i]] - LogSum(i + 1), 1e-4);
    }
  }
}

TEST_F(StepOutputsTest, TopTokensAndCandidatesAreThoseOfTheHost) {
  auto outputs = LogitOutputs::Create(logits_, kMaxRows, 64);
  ASSERT_TRUE(outputs.ok());
  llm::SamplingParams greedy;
  Add(&greedy).num_top_tokens = 5;
  Add(&greedy).num_candidates = 3;
  std::vector<float> sums;
  for (int32_t row = 0; row < 2; ++row) sums.push_back(static_cast<float>(LogSum(row)));
  const DeviceMemory log_sums = ToDevice(sums);
  const std::vector<int32_t> first_rows = {0, 1};
  llm::StepResult result;
  outputs->Begin(1);
  ASSERT_TRUE(outputs->FindTopTokens(batch_, first_rows, log_sums.as<float>(), 1, nullptr).ok());
  ASSERT_TRUE(outputs->FindCandidates(batch_, first_rows, *host_logits_, nullptr, result).ok());
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  outputs->Take(1, 2, result);
  std::vector<llm::SampledToken> expected;
  llm::FindTopTokens(Row(0), 5, expected);
  ASSERT_EQ(result.top_tokens.size(), 2u);
  ASSERT_EQ(result.top_tokens[0].size(), 5u);
  EXPECT_TRUE(result.top_tokens[1].empty());
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(result.top_tokens[0][i].id, expected[i].id);
    EXPECT_NEAR(result.top_tokens[0][i].log_prob, expected[i].log_prob, 1e-4);
  }
  llm::FindTopTokens(Row(1), 3, expected);
  ASSERT_EQ(result.candidates.size(), 2u);
  ASSERT_EQ(result.candidates[1].size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(result.candidates[1][i].id, expected[i].id);
}

class HiddenStateOutputsTest : public testing::GpuTest<::testing::Test> {
 protected:
  static constexpr int32_t kHidden = 16, kRows = 9;

  void Make() {
    auto made = HiddenStates::Create({0, 2}, kHidden, kRows);
    ASSERT_TRUE(made.ok()) << made.status().message();
    states_.emplace(std::move(*made));
    std::vector<uint16_t> bits(static_cast<size_t>(kRows) * 2 * kHidden);
    for (size_t i = 0; i < bits.size(); ++i) bits[i] = Bf16Bits(static_cast<float>(i));
    ASSERT_EQ(cudaMemcpy(states_->rows(), bits.data(), 2 * bits.size(), cudaMemcpyHostToDevice),
              cudaSuccess);
    // Entries of 2, 1, 3 and 3 rows, of which the second one requests none.
    for (const int32_t num_tokens : {2, 1, 3, 3}) {
      llm::BatchEntry& entry = batch_.entries.emplace_back();
      entry.first_token = static_cast<int32_t>(batch_.token_ids.size());
      entry.num_tokens = num_tokens;
      entry.returns_hidden_states = num_tokens != 1;
      batch_.token_ids.resize(batch_.token_ids.size() + num_tokens);
    }
  }

  std::optional<HiddenStates> states_;
  llm::StepBatch batch_;
};

TEST_F(HiddenStateOutputsTest, EntriesGetTheirRowsInBothBuffers) {
  Make();
  if (HasFatalFailure()) return;
  HiddenStateOutputs outputs;
  for (const int32_t buffer_index : {0, 1, 0}) {
    outputs.Clear(buffer_index);
    llm::StepResult result;
    ASSERT_TRUE(outputs.Return(batch_, &*states_, buffer_index, nullptr, result).ok());
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    outputs.Take(&*states_, buffer_index, 4, result);
    ASSERT_EQ(result.hidden_states.size(), 4u);
    EXPECT_TRUE(result.hidden_states[1].empty());
    EXPECT_FALSE(result.keeps_hidden_states);
    for (const size_t i : {size_t{0}, size_t{2}, size_t{3}}) {
      const llm::BatchEntry& entry = batch_.entries[i];
      ASSERT_EQ(result.hidden_states[i].size(), size_t(entry.num_tokens) * 2 * kHidden);
      for (size_t j = 0; j < result.hidden_states[i].size(); ++j) {
        EXPECT_EQ(result.hidden_states[i][j], testing::FromBf16(Bf16Bits(static_cast<float>(
                                                  size_t(entry.first_token) * 2 * kHidden + j))));
      }
    }
  }
  outputs.Clear(1);
  llm::StepResult without;
  outputs.Take(&*states_, 1, 4, without);
  EXPECT_TRUE(without.hidden_states.empty());
}

TEST_F(HiddenStateOutputsTest, OnTheDeviceNothingIsCopied) {
  Make();
  if (HasFatalFailure()) return;
  HiddenStateOutputs outputs;
  outputs.SetPlace(llm::HiddenStatePlace::kDevice);
  llm::StepResult result;
  ASSERT_TRUE(outputs.Return(batch_, &*states_, 0, nullptr, result).ok());
  EXPECT_TRUE(result.keeps_hidden_states);
  outputs.Take(&*states_, 0, 4, result);
  EXPECT_TRUE(result.hidden_states.empty());
  EXPECT_EQ(outputs.Return(batch_, nullptr, 0, nullptr, result).code(), StatusCode::kInternal);
}

}  // namespace
}  // namespace nereid::gpu
