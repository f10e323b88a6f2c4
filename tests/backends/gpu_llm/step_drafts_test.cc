// Acceptance of drafts, and the moves of their keys and values.
#include "backends/gpu_llm/step_drafts.h"

#include <gtest/gtest.h>

#include <numeric>

#include "backends/gpu_llm/kernels/attention/cache_layout.h"

namespace nereid::gpu {
namespace {

class StepDraftsTest : public ::testing::Test {
 protected:
  // An entry with a newest token behind `num_cached` others, and drafts.
  void Add(int32_t num_cached, const std::vector<int32_t>& drafts,
           const std::vector<int32_t>& parents, bool returns_row_tokens = false) {
    std::vector<int32_t>& table = tables_.emplace_back(
        (num_cached + static_cast<int32_t>(drafts.size()) + kBlockTokens) / kBlockTokens);
    std::iota(table.begin(), table.end(), 10 * static_cast<int32_t>(tables_.size()));
    parents_.push_back(parents);
    llm::BatchEntry sequence;
    sequence.first_token = static_cast<int32_t>(batch_.token_ids.size());
    sequence.num_tokens = sequence.num_logits = 1 + static_cast<int32_t>(drafts.size());
    sequence.num_draft_tokens = static_cast<int32_t>(drafts.size());
    sequence.num_cached = num_cached;
    sequence.samples = true;
    sequence.returns_row_tokens = returns_row_tokens;
    batch_.entries.push_back(sequence);
    batch_.token_ids.push_back(1);
    batch_.token_ids.insert(batch_.token_ids.end(), drafts.begin(), drafts.end());
  }
  void Take() {
    for (size_t i = 0; i < batch_.entries.size(); ++i) {
      batch_.entries[i].block_table = tables_[i];
      batch_.entries[i].draft_parents = parents_[i];
    }
    ASSERT_TRUE(CheckDraftTrees(batch_).ok());
    planner_.Plan(batch_);
    drafts_.Take(batch_, planner_);
    result_ = {};
    result_.tokens.resize(batch_.entries.size());
  }
  void Accept(size_t sequence, const std::vector<int32_t>& ids) {
    std::vector<float> log_probs(ids.size());
    for (size_t i = 0; i < ids.size(); ++i) log_probs[i] = -0.5f * static_cast<float>(i);
    drafts_.Accept(sequence, ids.data(), log_probs.data(), result_);
  }
  std::vector<int32_t> AcceptedIds(size_t sequence) const {
    std::vector<int32_t> ids;
    for (const llm::SampledToken& token : result_.accepted[sequence]) ids.push_back(token.id);
    return ids;
  }

  StepPlanner planner_{{.num_heads = 8, .num_kv_heads = 2, .num_processors = 16}};
  llm::StepBatch batch_;
  std::vector<std::vector<int32_t>> tables_, parents_;
  StepDrafts drafts_;
  llm::StepResult result_;
};

TEST_F(StepDraftsTest, TreesAreAcceptedAlongTheSampledPath) {
  // 20 -> 30 -> 40, 20 -> 31 -> 41, 21
  Add(62, {20, 21, 30, 31, 40, 41}, {-1, -1, 0, 0, 2, 3}, true);
  Add(5, {20, 21}, {});
  Add(9, {}, {});
  Take();
  Accept(0, {20, 31, 99, 98, 41, 97, 50});
  Accept(1, {20, 22, 23});
  Accept(2, {7});
  EXPECT_EQ(AcceptedIds(0), (std::vector<int32_t>{20, 31, 41}));
  EXPECT_EQ(result_.accepted[0][2].log_prob, -0.5f * 4) << "of the row of 31";
  EXPECT_EQ(result_.accepted_drafts[0], (std::vector<int32_t>{0, 3, 5}));
  EXPECT_EQ(result_.tokens[0].id, 50);
  EXPECT_EQ(result_.tokens[0].log_prob, -0.5f * 6);
  EXPECT_EQ(result_.row_tokens[0], (std::vector<int32_t>{20, 31, 99, 98, 41, 97, 50}));
  EXPECT_TRUE(result_.row_tokens[1].empty());
  EXPECT_EQ(AcceptedIds(1), std::vector<int32_t>{20});
  EXPECT_TRUE(result_.accepted_drafts[1].empty());
  EXPECT_EQ(result_.tokens[1].id, 22);
  EXPECT_TRUE(AcceptedIds(2).empty());
  EXPECT_EQ(result_.tokens[2].id, 7);
  // The newest token is at place 62, in block 10; its drafts go on in block 11.
  ASSERT_EQ(drafts_.ranges().size(), 1u);
  EXPECT_EQ(drafts_.ranges()[0].first, 0);
  ASSERT_EQ(drafts_.ranges()[0].count, 2);
  EXPECT_EQ(drafts_.moves()[0].from, 11 * kBlockTokens + 2);
  EXPECT_EQ(drafts_.moves()[0].to, 11 * kBlockTokens);
  EXPECT_EQ(drafts_.moves()[1].from, 11 * kBlockTokens + 4);
  EXPECT_EQ(drafts_.moves()[1].to, 11 * kBlockTokens + 1);
  EXPECT_TRUE(StepDrafts::IsAccepted(result_, 0, 3));
  EXPECT_FALSE(StepDrafts::IsAccepted(result_, 0, 2));
  EXPECT_TRUE(StepDrafts::IsAccepted(result_, 1, 0));
  EXPECT_FALSE(StepDrafts::IsAccepted(result_, 1, 1));
}

// GPUs that sample nothing move what the first one moves.
TEST_F(StepDraftsTest, TheResultOfAnotherGpuSaysWhatMoves) {
  Add(62, {20, 21, 30, 31, 40, 41}, {-1, -1, 0, 0, 2, 3});
  Add(5, {20, 21}, {});
  Add(9, {}, {});
  Add(30, {7, 8, 9}, {-1, -1, 1});
  Take();
  StepDrafts other;
  other.Take(batch_, planner_);
  Accept(0, {20, 31, 99, 98, 41, 97, 50});
  Accept(1, {20, 21, 23});
  Accept(2, {7});
  Accept(3, {8, 0, 9, 50});
  other.Follow(result_);
  ASSERT_EQ(drafts_.moves().size(), 4u);
  ASSERT_EQ(other.moves().size(), drafts_.moves().size());
  for (size_t i = 0; i < other.moves().size(); ++i) {
    EXPECT_EQ(other.moves()[i].from, drafts_.moves()[i].from) << i;
    EXPECT_EQ(other.moves()[i].to, drafts_.moves()[i].to) << i;
  }
  ASSERT_EQ(other.ranges().size(), drafts_.ranges().size());
  for (size_t i = 0; i < other.ranges().size(); ++i) {
    EXPECT_EQ(other.ranges()[i].first, drafts_.ranges()[i].first) << i;
    EXPECT_EQ(other.ranges()[i].count, drafts_.ranges()[i].count) << i;
  }
}

TEST_F(StepDraftsTest, AcceptedDraftsThatAreInPlaceStayThere) {
  Add(62, {20, 30, 21}, {-1, 0, -1});
  Take();
  Accept(0, {20, 30, 8, 9});
  EXPECT_EQ(result_.accepted_drafts[0], (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(result_.tokens[0].id, 8);
  EXPECT_TRUE(drafts_.moves().empty());
  EXPECT_TRUE(drafts_.ranges().empty());
  Take();
  Accept(0, {llm::kNoToken, 30, 8, 9});
  EXPECT_TRUE(result_.accepted_drafts[0].empty());
  EXPECT_EQ(result_.tokens[0].id, llm::kNoToken);
}

TEST_F(StepDraftsTest, TreesThatAreNoneAreRefused) {
  Add(62, {20, 30}, {-1, 1});
  batch_.entries[0].draft_parents = parents_[0];
  EXPECT_EQ(CheckDraftTrees(batch_).message(),
            "a draft of a tree is before the draft that it follows");
  parents_[0] = {-1};
  batch_.entries[0].draft_parents = parents_[0];
  EXPECT_FALSE(CheckDraftTrees(batch_).ok());
  batch_.Clear();
  Add(0, std::vector<int32_t>(128, 5), std::vector<int32_t>(128, -1));
  batch_.entries[0].draft_parents = parents_.back();
  EXPECT_NE(CheckDraftTrees(batch_).message().find("at most 127"), std::string::npos);
}

TEST(DraftsBefore, ThoseOfATreeAreOnThePath) {
  const std::vector<int32_t> drafts = {20, 21, 30, 31, 40}, parents = {-1, -1, 0, 0, 3};
  std::vector<int32_t> tokens = {1, 2};
  AppendDraftsBefore(drafts, parents, 5, tokens);
  EXPECT_EQ(tokens, (std::vector<int32_t>{1, 2, 20, 31, 40}));
  AppendDraftsBefore(drafts, parents, 0, tokens);
  EXPECT_EQ(tokens.size(), 5u);
  AppendDraftsBefore(drafts, {}, 2, tokens);
  EXPECT_EQ(tokens, (std::vector<int32_t>{1, 2, 20, 31, 40, 20, 21}));
}

}  // namespace
}  // namespace nereid::gpu
