// Which steps run before the first request.
#include "backends/gpu_llm/step_warm_up.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "backends/gpu_llm/model/algorithm_trial.h"
#include "backends/gpu_llm/step_drafts.h"
#include "backends/gpu_llm/step_plan.h"

namespace nereid::gpu {
namespace {

// Checks that steps respect the limits.
class CheckingExecutor : public llm::Executor {
 public:
  CheckingExecutor(int32_t max_num_sequences, int32_t max_num_tokens) {
    limits_.vocab_size = 100;
    limits_.max_positions = 256;
    limits_.max_num_sequences = max_num_sequences;
    limits_.max_num_sampled = limits_.max_num_tokens = max_num_tokens;
    limits_.block_size = 64;
    limits_.num_blocks = 4;
  }
  const llm::ExecutorLimits& limits() const override { return limits_; }
  llm::ExecutorCounts counts() const override { return {.num_recorded_steps = num_recorded_}; }
  Status Submit(const llm::StepBatch& batch) override {
    int32_t next = 0;
    std::set<int32_t> slots;
    for (const llm::BatchEntry& entry : batch.entries) {
      EXPECT_EQ(entry.first_token, next);
      EXPECT_GT(entry.num_tokens, 0);
      EXPECT_TRUE(entry.samples);
      EXPECT_LE(entry.num_tokens, limits_.max_positions);
      EXPECT_LE(entry.num_tokens, limits_.block_size * std::ssize(entry.block_table));
      for (const int32_t block : entry.block_table) EXPECT_LT(block, limits_.num_blocks);
      EXPECT_LT(entry.slot, limits_.max_num_sequences);
      EXPECT_TRUE(slots.insert(entry.slot).second);
      next += entry.num_tokens;
    }
    EXPECT_EQ(next, std::ssize(batch.token_ids));
    EXPECT_LE(next, limits_.max_num_tokens);
    EXPECT_FALSE(batch.entries.empty());
    return {};
  }
  Result<llm::StepResult> Collect() override { return llm::StepResult(); }

  llm::ExecutorLimits limits_;
  int64_t num_recorded_ = 0;
};

// Replays steps of a size from the third one on, as an executor does that has chosen its algorithms
// in the first one and recorded the second one.
class RecordingExecutor : public CheckingExecutor {
 public:
  using CheckingExecutor::CheckingExecutor;
  Status Submit(const llm::StepBatch& batch) override {
    int32_t next = 0, num_drafts = 0;
    for (const llm::BatchEntry& entry : batch.entries) {
      EXPECT_EQ(entry.num_tokens, 1 + entry.num_draft_tokens);
      EXPECT_EQ(entry.num_logits, entry.num_tokens);
      has_trees_ |= !entry.draft_parents.empty();
      returns_hidden_states_ |= entry.returns_hidden_states;
      most_drafts_ = std::max(most_drafts_, entry.num_draft_tokens);
      next += entry.num_tokens;
      num_drafts += entry.num_draft_tokens;
    }
    EXPECT_GT(num_drafts, 0);
    EXPECT_TRUE(CheckDraftTrees(batch).ok());
    const int32_t size = StepPlanner::PaddedDrafts(next, limits_.max_num_sampled);
    if (records_ && ++num_steps_[size] > 2) ++num_recorded_;
    if (!records_) ++num_steps_[size];
    return CheckingExecutor::Submit(batch);
  }

  bool records_ = true;
  std::map<int32_t, int> num_steps_;  // by padded rows
  bool has_trees_ = false, returns_hidden_states_ = false;
  int32_t most_drafts_ = 0;
};

TEST(DraftWarmUpTest, EverySizeOfStepsWithDraftsIsRecorded) {
  for (const int32_t max_num_sequences : {1, 3, 16, 512}) {
    for (const int32_t max_drafts : {1, 2, 8, 64}) {
      SCOPED_TRACE(testing::Message() << max_num_sequences << " " << max_drafts);
      constexpr int32_t kMostRows = 512;
      RecordingExecutor executor(max_num_sequences, kMostRows);
      const auto costs = WarmUpDraftSteps(executor, {max_drafts, false, false});
      ASSERT_TRUE(costs.ok());
      std::map<int32_t, int> expected;  // three until one is replayed, and three that are timed
      const int32_t most = std::min(kMostRows, max_num_sequences * (1 + max_drafts));
      for (int32_t rows = 2; rows <= most; ++rows) {
        expected[StepPlanner::PaddedDrafts(rows, kMostRows)] = 6;
      }
      EXPECT_EQ(executor.num_steps_, expected);
      ASSERT_EQ(costs->size(), expected.size());
      for (size_t i = 0; i < costs->size(); ++i) {
        EXPECT_GE((*costs)[i].cost, 0.0f);
        if (i > 0) {
          EXPECT_GT((*costs)[i].num_tokens, (*costs)[i - 1].num_tokens);
        }
      }
      EXPECT_LE(executor.most_drafts_, max_drafts);
      EXPECT_FALSE(executor.has_trees_);
      EXPECT_FALSE(executor.returns_hidden_states_);
    }
  }
}

TEST(DraftWarmUpTest, TreesAndHiddenStatesAreThoseOfTheDrafter) {
  RecordingExecutor executor(4, 512);
  ASSERT_TRUE(WarmUpDraftSteps(executor, {127, true, true}).ok());
  EXPECT_TRUE(executor.has_trees_);
  EXPECT_TRUE(executor.returns_hidden_states_);
  EXPECT_EQ(executor.num_steps_.rbegin()->first, 512);
}

TEST(DraftWarmUpTest, ShortSequencesAndSmallCachesHaveFewDrafts) {
  RecordingExecutor executor(8, 512);
  executor.limits_.num_blocks = 1;
  ASSERT_TRUE(WarmUpDraftSteps(executor, {127, true, false}).ok());
  EXPECT_EQ(executor.num_steps_.rbegin()->first, 512);
  executor.limits_.max_positions = 2;
  executor.num_steps_.clear();
  executor.most_drafts_ = 0;
  ASSERT_TRUE(WarmUpDraftSteps(executor, {8, false, false}).ok());
  EXPECT_EQ(executor.most_drafts_, 1);
  EXPECT_EQ(executor.num_steps_.rbegin()->first, 16);
  executor.limits_.max_positions = 1;
  executor.num_steps_.clear();
  ASSERT_TRUE(WarmUpDraftSteps(executor, {8, false, false}).ok());
  EXPECT_TRUE(executor.num_steps_.empty());
}

TEST(DraftWarmUpTest, WithoutGraphsASizeHasSomeSteps) {
  RecordingExecutor executor(1, 128);
  executor.records_ = false;
  ASSERT_TRUE(WarmUpDraftSteps(executor, {3, false, false}).ok());
  EXPECT_EQ(executor.num_steps_.size(), 3u);
  for (const auto& [size, count] : executor.num_steps_) EXPECT_EQ(count, 19) << size;
}

// Notes the number of rows of each step, with the number of sequences that decode.
class NotingExecutor : public CheckingExecutor {
 public:
  using CheckingExecutor::CheckingExecutor;
  Status Submit(const llm::StepBatch& batch) override {
    const auto rows = static_cast<int32_t>(batch.token_ids.size());
    const auto num_decode = static_cast<int32_t>(
        std::count_if(batch.entries.begin(), batch.entries.end(),
                      [](const llm::BatchEntry& entry) { return entry.num_tokens == 1; }));
    steps_.emplace_back(rows, num_decode);
    if (rows == num_decode) ++num_recorded_;  // as a decode step that is recorded at once
    is_decode_ = rows == num_decode;
    return CheckingExecutor::Submit(batch);
  }
  Result<llm::StepResult> Collect() override {
    llm::StepResult result;
    result.is_typical = !is_decode_;
    return result;
  }

  std::vector<std::pair<int32_t, int32_t>> steps_;
  bool is_decode_ = false;
};

TEST(StepWarmUpTest, PromptsAndSequencesOfEverySizeHaveAStep) {
  NotingExecutor executor(96, 4096);
  executor.limits_.num_blocks = 64;
  executor.limits_.max_positions = 1000;  // so large steps have several prompts
  ASSERT_TRUE(WarmUpSteps(executor, std::chrono::hours(1)).ok());
  std::set<int32_t> prompts, decoding, expected_prompts, expected_decoding;
  for (const auto& [rows, num_decode] : executor.steps_) {
    EXPECT_TRUE(num_decode == 1 || num_decode == rows) << rows << " " << num_decode;
    EXPECT_TRUE((rows == num_decode ? decoding : prompts).insert(rows).second) << rows;
  }
  for (int32_t rows = 2; rows <= 4096; ++rows) expected_prompts.insert(TrialRows(rows));
  for (int32_t rows = 1; rows <= 96; ++rows)
    expected_decoding.insert(StepPlanner::PaddedBatch(rows));
  EXPECT_EQ(prompts, expected_prompts);
  EXPECT_EQ(decoding, expected_decoding);
  const auto first_large = std::find_if(executor.steps_.begin(), executor.steps_.end(),
                                        [](const auto& step) { return step.first > 512; });
  const auto last_small = std::find(executor.steps_.begin(), executor.steps_.end(),
                                    std::pair<int32_t, int32_t>(64, 64));
  EXPECT_LT(last_small, first_large);
}

TEST(StepWarmUpTest, OneSequenceASmallCacheAndFewTokens) {
  NotingExecutor executor(1, 100);
  executor.limits_.num_blocks = 1;
  ASSERT_TRUE(WarmUpSteps(executor, std::chrono::hours(1)).ok());
  for (const auto& [rows, num_decode] : executor.steps_) EXPECT_LE(rows, 64);
  EXPECT_EQ(
      std::count(executor.steps_.begin(), executor.steps_.end(), std::pair<int32_t, int32_t>(1, 1)),
      1);
}

TEST(StepWarmUpTest, WithoutTimeNoStepRuns) {
  NotingExecutor executor(8, 512);
  ASSERT_TRUE(WarmUpSteps(executor, std::chrono::milliseconds(0)).ok());
  EXPECT_TRUE(executor.steps_.empty());
}

}  // namespace
}  // namespace nereid::gpu
