// The edits of a row of logits have the same effect as llm_core's sampler.
#include "backends/gpu_llm/draw_plan.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace nereid::gpu {
namespace {

constexpr int32_t kVocab = 50;

// Applies a list of edits as the device does.
std::vector<float> Apply(const DrawItem& item, std::span<const LogitEdit> edits,
                         std::vector<float> logits) {
  for (const LogitEdit& edit : edits.subspan(item.first_edit, item.num_edits)) {
    float& logit = logits[edit.id];
    logit += edit.bias;
    if (edit.count > 0) {
      logit = logit < 0.0f ? logit * item.repetition_penalty : logit / item.repetition_penalty;
      logit -= item.presence_penalty + item.frequency_penalty * static_cast<float>(edit.count);
    }
    if (edit.count == kBannedToken) logit = -std::numeric_limits<float>::infinity();
  }
  return logits;
}

class DrawPlanTest : public ::testing::Test {
 protected:
  void Add(const llm::SamplingParams& params, std::span<const int32_t> tokens,
           std::span<const int32_t> banned = {}, int32_t num_logits = 1) {
    llm::BatchEntry& sequence = batch_.entries.emplace_back();
    sequence.num_logits = num_logits;
    sequence.samples = num_logits > 0;
    sequence.sampling = {&params, tokens, 0, banned};
  }

  llm::StepBatch batch_;
};

TEST_F(DrawPlanTest, EditsEqualTheRules) {
  std::mt19937 random(5);
  DrawPlanner planner(kVocab, 1000);
  for (int round = 0; round < 200; ++round) {
    std::vector<int32_t> tokens(random() % 30 + 1);
    for (int32_t& id : tokens) id = static_cast<int32_t>(random() % 12);
    if (tokens.size() > 1 && random() % 3 == 0) tokens[1] = kVocab + 10;  // virtual
    llm::SamplingParams params;
    if (random() % 2 == 0) params.repetition_penalty = 1.5f;
    if (random() % 2 == 0) params.presence_penalty = 0.25f;
    if (random() % 2 == 0) params.frequency_penalty = -0.5f;
    if (random() % 2 == 0) params.no_repeat_ngram_size = static_cast<int32_t>(random() % 3 + 1);
    if (random() % 2 == 0) params.bad_words = {{3}, {tokens.back(), 7}, {1, 2, 3}};
    if (random() % 2 == 0) {
      params.embedding_bias.assign(kVocab, 0.0f);
      params.embedding_bias[tokens[0]] = 2.0f;
      params.embedding_bias[40] = -1.0f;
    }
    if (random() % 2 == 0) params.logit_bias = {{tokens[0], 1.5f}, {tokens[0], 0.25f}, {41, -8.0f}};
    const std::vector<int32_t> banned = {9, 45, kVocab + 3};
    batch_.Clear();
    Add(params, tokens,
        round % 2 == 0 ? std::span<const int32_t>(banned) : std::span<const int32_t>());
    planner.Plan(batch_);
    std::vector<float> logits(kVocab);
    for (float& logit : logits) logit = static_cast<float>(random() % 1024) / 128.0f - 4.0f;
    std::vector<float> expected = logits;
    // All candidates by rank: the tokens that the sampler's rules leave.
    const auto candidates = llm::Sampler().Candidates(expected, batch_.entries[0].sampling, 1);
    const std::vector<float> got =
        planner.items().empty() ? logits : Apply(planner.items()[0], planner.edits(), logits);
    for (int32_t id = 0; id < kVocab; ++id) EXPECT_FLOAT_EQ(got[id], expected[id]) << id;
    ASSERT_EQ(candidates.size(), 1u);
  }
}

TEST_F(DrawPlanTest, RowsWithAllowedIdsAreSampledOnTheHost) {
  const std::vector<int32_t> tokens = {1, 2, 3};
  llm::SamplingParams params;
  params.allowed_ids = {4, 5};
  Add(params, tokens);
  DrawPlanner planner(kVocab, 1000);
  planner.Plan(batch_);
  EXPECT_TRUE(planner.items().empty());
  ASSERT_EQ(planner.on_host().size(), 1u);
}

TEST_F(DrawPlanTest, RowsWithMasksAreSampledOnTheDevice) {
  const std::vector<int32_t> tokens = {1, 2, 3};
  const std::vector<uint32_t> first = {1, 2}, second = {3, 4};
  llm::SamplingParams greedy, allowing;
  allowing.allowed_ids = {4, 5};
  Add(greedy, tokens);
  Add(greedy, tokens);
  batch_.entries.back().token_masks = first;
  Add(allowing, tokens);
  batch_.entries.back().token_masks = first;
  Add(greedy, tokens);
  batch_.entries.back().token_masks = second;
  DrawPlanner planner(kVocab, 1000);
  planner.Plan(batch_);
  ASSERT_EQ(planner.items().size(), 2u);
  EXPECT_EQ(planner.items()[0].row, 1);
  EXPECT_EQ(planner.items()[0].mask_row, 0);
  EXPECT_EQ(planner.items()[1].row, 3);
  EXPECT_EQ(planner.items()[1].mask_row, 1);
  ASSERT_EQ(planner.masks().size(), 2u);
  EXPECT_EQ(planner.masks()[0].data(), first.data());
  EXPECT_EQ(planner.masks()[1].data(), second.data());
  ASSERT_EQ(planner.on_host().size(), 1u);
  batch_.Clear();
  Add(greedy, tokens);
  planner.Plan(batch_);
  EXPECT_TRUE(planner.items().empty());
  EXPECT_TRUE(planner.masks().empty());
}

// Each position of a chain has the rules, the mask and the randomness of a step of its own.
TEST_F(DrawPlanTest, DraftsAreCountedByTheRowsBehindThem) {
  const std::vector<int32_t> tokens = {1, 2, 3};
  const std::vector<uint32_t> masks = {1, 2, 3, 4, 5, 6};
  llm::SamplingParams greedy, penalised, allowing;
  penalised.temperature = 0.5f;
  penalised.top_p = 0.9f;
  penalised.frequency_penalty = 1.0f;
  penalised.bad_words = {{7, 20}};
  allowing.allowed_ids = {4, 5};
  const auto add = [&](const llm::SamplingParams& params) {
    Add(params, tokens, {}, 3);
    llm::BatchEntry& sequence = batch_.entries.back();
    sequence.first_token = static_cast<int32_t>(batch_.token_ids.size());
    sequence.num_tokens = 3;
    sequence.num_draft_tokens = 2;
    batch_.token_ids.insert(batch_.token_ids.end(), {3, 7, 2});
  };
  add(greedy);
  add(penalised);
  batch_.entries.back().token_masks = masks;
  add(allowing);
  DrawPlanner planner(kVocab, 1000);
  planner.Plan(batch_);
  ASSERT_EQ(planner.items().size(), 3u);
  for (int32_t index = 0; index < 3; ++index) {
    const DrawItem& item = planner.items()[index];
    EXPECT_EQ(item.row, 3 + index);
    EXPECT_EQ(item.position, 3u + index);
    EXPECT_EQ(item.mask_row, index);
    EXPECT_EQ(planner.masks()[index].data(), masks.data() + 2 * index);
    EXPECT_EQ(planner.masks()[index].size(), 2u);
    const auto edits = planner.edits().subspan(item.first_edit, item.num_edits);
    const auto count_of = [&](int32_t id) {
      for (const LogitEdit& edit : edits) {
        if (edit.id == id) return edit.count;
      }
      return 0;
    };
    EXPECT_EQ(count_of(7), index >= 1 ? 1 : 0);
    EXPECT_EQ(count_of(2), index == 2 ? 2 : 1);
    EXPECT_EQ(count_of(20), index == 1 ? kBannedToken : 0) << "behind 7 alone";
  }
  ASSERT_EQ(planner.on_host().size(), 3u);
  for (int32_t index = 0; index < 3; ++index) {
    EXPECT_EQ(planner.on_host()[index].sequence, 2);
    EXPECT_EQ(planner.on_host()[index].index, index);
    EXPECT_EQ(planner.on_host()[index].row, 6 + index);
  }
}

// Each position of a tree has the rules and the randomness of the sequence that leads to it.
TEST_F(DrawPlanTest, DraftsOfATreeAreCountedByTheRowsBelowThem) {
  const std::vector<int32_t> tokens = {1, 2, 3}, parents = {-1, -1, 0};
  llm::SamplingParams penalised;
  penalised.temperature = 0.5f;
  penalised.top_p = 0.9f;
  penalised.frequency_penalty = 1.0f;
  Add(penalised, tokens, {}, 3);
  llm::BatchEntry& sequence = batch_.entries.back();
  sequence.first_token = 0;
  sequence.num_tokens = 4;
  sequence.num_draft_tokens = 3;
  sequence.draft_parents = parents;
  batch_.token_ids = {3, 7, 8, 9};
  DrawPlanner planner(kVocab, 1000);
  planner.Plan(batch_);
  ASSERT_EQ(planner.items().size(), 4u);
  const std::vector<std::vector<int32_t>> counted = {{}, {7}, {8}, {7, 9}};
  for (size_t index = 0; index < 4; ++index) {
    const DrawItem& item = planner.items()[index];
    EXPECT_EQ(item.position, 3u + counted[index].size());
    std::vector<int32_t> ids;
    for (const LogitEdit& edit : planner.edits().subspan(item.first_edit, item.num_edits))
      if (edit.id > 3) ids.push_back(edit.id);
    EXPECT_EQ(ids, counted[index]);
  }
}

// The host compares both distributions of a drawn draft; the position behind the drafts is sampled
// like any other.
TEST_F(DrawPlanTest, DraftsWithLogitsAreVerifiedOnTheHost) {
  const std::vector<int32_t> tokens = {1, 2, 3};
  const std::vector<float> logits(2 * kVocab, 0.0f);
  llm::SamplingParams greedy, sampled;
  sampled.top_p = 0.9f;
  for (const llm::SamplingParams* params : {&sampled, &greedy}) {
    Add(*params, tokens, {}, 3);
    llm::BatchEntry& sequence = batch_.entries.back();
    sequence.first_token = static_cast<int32_t>(batch_.token_ids.size());
    sequence.num_tokens = 3;
    sequence.num_draft_tokens = 2;
    sequence.draft_logits = logits;
    batch_.token_ids.insert(batch_.token_ids.end(), {3, 7, 8});
  }
  DrawPlanner planner(kVocab, 1000);
  planner.Plan(batch_);
  ASSERT_EQ(planner.on_host().size(), 2u);
  for (int32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(planner.on_host()[i].sequence, 0);
    EXPECT_EQ(planner.on_host()[i].index, i);
    EXPECT_EQ(planner.on_host()[i].row, i);
  }
  ASSERT_EQ(planner.items().size(), 1u);
  EXPECT_EQ(planner.items()[0].row, 2);
  EXPECT_EQ(planner.items()[0].position, 5u);
}

TEST_F(DrawPlanTest, OnlyRowsThatNeedItAreListed) {
  const std::vector<int32_t> tokens = {1, 2, 3};
  const std::vector<int32_t> banned = {5};
  llm::SamplingParams greedy, warm;
  warm.temperature = 0.5f;
  warm.top_p = 0.9f;
  warm.seed = 0x100000002u;
  Add(greedy, tokens);
  Add(warm, tokens, {}, 3);
  Add(warm, tokens, {}, 0);
  Add(greedy, tokens, banned);
  DrawPlanner planner(kVocab, 10);
  planner.Plan(batch_);
  ASSERT_EQ(planner.items().size(), 2u);
  const DrawItem& first = planner.items()[0];
  EXPECT_EQ(first.row, 1);  // sampled rows come first
  EXPECT_EQ(first.is_greedy, 0);
  EXPECT_EQ(first.num_edits, 0);
  EXPECT_FLOAT_EQ(first.scale, 2.0f);
  EXPECT_EQ(first.position, 3u);
  EXPECT_EQ(first.seed_low, 2u);
  EXPECT_EQ(first.seed_high, 1u);
  const DrawItem& second = planner.items()[1];
  EXPECT_EQ(second.row, 2);
  EXPECT_EQ(second.is_greedy, 1);
  ASSERT_EQ(second.num_edits, 1);
  EXPECT_EQ(planner.edits()[second.first_edit].id, 5);
  EXPECT_EQ(planner.edits()[second.first_edit].count, kBannedToken);
}

TEST_F(DrawPlanTest, RowsWithTooManyEditsAreSampledOnTheHost) {
  std::vector<int32_t> tokens(30);
  for (int32_t i = 0; i < 30; ++i) tokens[i] = i;
  llm::SamplingParams penalised;
  penalised.presence_penalty = 1.0f;
  Add(penalised, tokens);
  Add(penalised, std::span(tokens).first(10));
  DrawPlanner planner(kVocab, 20);
  planner.Plan(batch_);
  ASSERT_EQ(planner.on_host().size(), 1u);
  EXPECT_EQ(planner.on_host()[0].row, 0);
  ASSERT_EQ(planner.items().size(), 1u);
  EXPECT_EQ(planner.items()[0].num_edits, 10);
  EXPECT_EQ(planner.edits().size(), 10u);
}

}  // namespace
}  // namespace nereid::gpu
