// Medusa heads: lists of paths, trees of the likeliest paths, the drafter with heads whose tokens
// are known, and the sizes of a file of heads.
#include "backends/llm_core/speculation/medusa_drafter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "backends/llm_core/speculation/draft_tree.h"
#include "backends/llm_core/speculation/medusa_weights.h"

namespace nereid::llm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string ErrorOf(std::string_view text, int32_t max_depth = 3) {
  return ParseTreeChoices(text, max_depth, kMaxMedusaTokens).status().message();
}

// Parents and ranks.
std::vector<std::pair<int32_t, int32_t>> NodesOf(std::string_view text) {
  const auto choices = ParseTreeChoices(text, 3, kMaxMedusaTokens);
  EXPECT_TRUE(choices.ok()) << choices.status().message();
  std::vector<std::pair<int32_t, int32_t>> nodes;
  for (const TreeChoice& choice : *choices) nodes.emplace_back(choice.parent, choice.rank);
  return nodes;
}

TEST(TreeChoicesTest, PathsAreReadInEachForm) {
  const std::vector<std::pair<int32_t, int32_t>> expected = {{-1, 0}, {0, 0}, {-1, 15}, {1, 2}};
  EXPECT_EQ(NodesOf("{0}, {0, 0}, {15}, {0, 0, 2}"), expected);
  EXPECT_EQ(NodesOf("{{0},{0,0},{15},{0,0,2}}"), expected);
  EXPECT_EQ(NodesOf(" [[0], [0, 0], [15], [0, 0, 2]] "), expected);
  EXPECT_EQ(NodesOf("[0],[0,0],[15],[0,0,2]"), expected);
  EXPECT_EQ(NodesOf("{0,1},{3},{0}"),
            (std::vector<std::pair<int32_t, int32_t>>{{-1, 0}, {0, 1}, {-1, 3}}))
      << "a parent comes before its child";
}

TEST(TreeChoicesTest, OtherListsAreRefusedWithTheirPath) {
  EXPECT_EQ(ErrorOf("{0},{0,16}"), "path {0, 16}: rank 16, expected 0 to 15");
  EXPECT_EQ(ErrorOf("{0},{1,0}"), "path {1, 0}: its parent {1} is not in the list");
  EXPECT_EQ(ErrorOf("{0},{0,0},{0,0,0}", 2), "path {0, 0, 0} has 3 ranks, expected at most 2");
  EXPECT_EQ(ErrorOf("{0},{1},{0}"), "path {0} is twice in the list");
  EXPECT_THAT(ErrorOf(""), HasSubstr("at least one path"));
  EXPECT_THAT(ErrorOf("{}"), HasSubstr("a path is empty"));
  EXPECT_THAT(ErrorOf("{0},{"), HasSubstr("the end"));
  EXPECT_THAT(ErrorOf("{0}}"), HasSubstr("'}' at byte 3"));
  EXPECT_THAT(ErrorOf("{0},1"), HasSubstr("'1' at byte 4"));
  EXPECT_THAT(ErrorOf("{-1}"), HasSubstr("'-' at byte 1"));
  EXPECT_THAT(ErrorOf("{0},{{1}}"), HasSubstr("expected a list of paths"));
  EXPECT_THAT(ErrorOf("{99999999999}"), HasSubstr("at byte 1"));
  std::string many = "{0}";
  for (int i = 0; i < 127; ++i) many += ",{0," + std::to_string(i) + "}";
  EXPECT_EQ(ErrorOf(many), "got 128 paths, expected at most 127");
}

// Log probabilities at random, in descending order for each depth; tokens count the ranks.
std::vector<SampledToken> DrawRanked(std::mt19937& random, int32_t num_depths, int32_t num_ranks) {
  std::vector<SampledToken> tokens;
  for (int32_t depth = 0; depth < num_depths; ++depth) {
    std::vector<float> log_probs;
    for (int32_t rank = 0; rank < num_ranks; ++rank) {
      log_probs.push_back(-std::uniform_real_distribution<float>(0.01f, 4.0f)(random));
    }
    std::sort(log_probs.rbegin(), log_probs.rend());
    for (int32_t rank = 0; rank < num_ranks; ++rank) {
      tokens.push_back({100 * depth + rank, log_probs[static_cast<size_t>(rank)]});
    }
  }
  return tokens;
}

// All paths of ranks, by brute force.
void SumAll(const RankedTokens& ranked, int32_t depth, float before, std::vector<float>& sums) {
  if (depth == ranked.num_depths()) return;
  for (int32_t rank = 0; rank < ranked.num_ranks; ++rank) {
    const SampledToken& token = ranked.At(depth, rank);
    if (token.id == kNoToken) continue;
    sums.push_back(before + token.log_prob);
    SumAll(ranked, depth + 1, sums.back(), sums);
  }
}

TEST(RankedTreeTest, TheLikeliestPathsAreDraftedInOrder) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    std::vector<SampledToken> tokens = DrawRanked(random, 3, 4);
    if (round % 2 == 1) tokens[static_cast<size_t>(round) % 12].id = kNoToken;
    const RankedTokens ranked = {tokens, 4};
    std::vector<int32_t> drafts, parents, path;
    GrowTree(ranked, 30, drafts, parents);
    ASSERT_EQ(drafts.size(), 30u);
    ASSERT_TRUE(IsTree(parents, drafts.size()));
    std::vector<float> sums, found;
    SumAll(ranked, 0, 0.0f, sums);
    std::sort(sums.rbegin(), sums.rend());
    for (int32_t draft = 0; draft < 30; ++draft) {
      FindPath(parents, draft, path);
      float sum = 0.0f;
      for (const int32_t each : path) {
        const int32_t token = drafts[static_cast<size_t>(each)];
        sum += ranked.At(token / 100, token % 100).log_prob;
      }
      EXPECT_FLOAT_EQ(sum, sums[static_cast<size_t>(draft)]) << round << " " << draft;
    }
  }
}

TEST(RankedTreeTest, AnExplicitTreeLeavesOutWhatIsNotDrafted) {
  std::mt19937 random(3);
  std::vector<SampledToken> tokens = DrawRanked(random, 2, 3);
  const auto choices = *ParseTreeChoices("{0},{0,0},{1},{1,0},{0,2},{1,2}", 2, 3);
  std::vector<int32_t> drafts, parents;
  FillTree(choices, {tokens, 3}, 10, drafts, parents);
  EXPECT_THAT(drafts, ElementsAre(0, 100, 1, 100, 102, 102));
  EXPECT_THAT(parents, ElementsAre(-1, 0, -1, 2, 0, 2));
  tokens[0].id = kNoToken;
  drafts.clear();
  parents.clear();
  FillTree(choices, {tokens, 3}, 2, drafts, parents);
  EXPECT_THAT(drafts, ElementsAre(1, 100));
  EXPECT_THAT(parents, ElementsAre(-1, 0));
}

// Heads whose tokens are the value of the row, the head and the rank.
class KnownHeads : public MedusaHeads {
 public:
  explicit KnownHeads(int32_t num_rows) : MedusaHeads(num_rows) {}
  int32_t num_heads() const override { return 3; }
  HiddenStatePlace place() const override { return HiddenStatePlace::kHost; }
  void Keep(const HiddenRows& rows, std::span<const int32_t> kept) override {
    values_.resize(8);
    for (size_t i = 0; i < kept.size(); ++i) {
      values_[static_cast<size_t>(kept[i])] = static_cast<int32_t>(rows.values[i]);
    }
  }
  Status Run(std::span<const int32_t> rows, int32_t num_heads, int32_t num_tokens,
             std::vector<SampledToken>& tokens) override {
    tokens.clear();
    ++num_runs;
    for (const int32_t row : rows) {
      for (int32_t head = 0; head < num_heads; ++head) {
        for (int32_t rank = 0; rank < num_tokens; ++rank) {
          tokens.push_back({1000 * values_[static_cast<size_t>(row)] + 100 * head + rank,
                            -0.1f - static_cast<float>(rank)});
        }
      }
    }
    return fails ? UnavailableError("the device has failed") : Status();
  }
  int num_runs = 0;
  bool fails = false;

 private:
  std::vector<int32_t> values_;
};

class MedusaDrafterTest : public ::testing::Test {
 protected:
  void Start(int32_t num_rows, std::vector<TreeChoice> choices = {}) {
    auto heads = std::make_unique<KnownHeads>(num_rows);
    heads_ = heads.get();
    drafter_ = std::make_unique<MedusaDrafter>(std::move(heads), std::move(choices));
  }
  void Observe(size_t sequence, int32_t first_position, std::vector<float> values) {
    drafter_->Observe(states_[sequence], first_position,
                      {.values = values, .num_rows = static_cast<int32_t>(values.size())});
    drafter_->FinishObserving();
  }
  // The drafts for sequences of so many tokens.
  void Propose(std::vector<size_t> lengths, int32_t max_drafts, bool takes_trees = true) {
    std::vector<DraftQuery> queries(lengths.size());
    drafts_.assign(lengths.size(), {});
    parents_.assign(lengths.size(), {});
    const TokenIds tokens(20, 1);
    for (size_t i = 0; i < lengths.size(); ++i) {
      queries[i].tokens = std::span(tokens).first(lengths[i]);
      queries[i].max_drafts = max_drafts;
      queries[i].state = &states_[i];
      queries[i].sampling = &sampling_;
      queries[i].banned_ids = banned_;
      queries[i].drafts = &drafts_[i];
      queries[i].parents = &parents_[i];
      queries[i].takes_trees = takes_trees;
    }
    drafter_->Propose(queries);
  }

  KnownHeads* heads_ = nullptr;
  std::unique_ptr<MedusaDrafter> drafter_;
  std::unique_ptr<DrafterState> states_[3];
  SamplingParams sampling_;
  TokenIds banned_;
  std::vector<std::vector<int32_t>> drafts_, parents_;
};

TEST_F(MedusaDrafterTest, TheHiddenStateBeforeTheNewestTokenIsRead) {
  Start(4);
  Observe(0, 0, {5, 6, 7});
  Observe(1, 8, {9});
  Propose({4, 10}, 4);
  EXPECT_THAT(drafts_[0], ElementsAre(7000, 7100, 7200, 7001));
  EXPECT_THAT(parents_[0], ElementsAre(-1, 0, 1, -1));
  EXPECT_THAT(drafts_[1], ElementsAre(9000, 9100, 9200, 9001));
  Propose({5, 10}, 1);  // of the first, another token was run since
  EXPECT_TRUE(drafts_[0].empty());
  EXPECT_THAT(drafts_[1], ElementsAre(9000));
  Propose({4}, 7, /*takes_trees=*/false);
  EXPECT_THAT(drafts_[0], ElementsAre(7000, 7100, 7200));
  EXPECT_TRUE(parents_[0].empty());
}

TEST_F(MedusaDrafterTest, AnExplicitTreeHasItsTokens) {
  Start(4, *ParseTreeChoices("{1},{0},{0,3}", 3, kMaxMedusaTokens));
  Observe(0, 0, {2});
  Propose({2}, 10);
  EXPECT_THAT(drafts_[0], ElementsAre(2001, 2000, 2103));
  EXPECT_THAT(parents_[0], ElementsAre(-1, -1, 1));
  banned_ = {2000};
  Propose({2}, 10);
  EXPECT_THAT(drafts_[0], ElementsAre(2001));
}

TEST_F(MedusaDrafterTest, ASequenceWithoutARowGetsNoDraftsUntilAnotherEnds) {
  Start(1);
  Observe(0, 0, {1});
  Observe(1, 0, {2});
  Propose({2, 2}, 2);
  EXPECT_EQ(drafts_[0].size(), 2u);
  EXPECT_TRUE(drafts_[1].empty());
  states_[0].reset();
  Observe(1, 1, {3});
  Propose({2, 3}, 2);
  EXPECT_TRUE(drafts_[0].empty());
  EXPECT_THAT(drafts_[1], ElementsAre(3000, 3100));
}

TEST_F(MedusaDrafterTest, HeadsThatHaveFailedAreNotCalledAgain) {
  Start(4);
  Observe(0, 0, {1});
  heads_->fails = true;
  Propose({2}, 2);
  EXPECT_TRUE(drafts_[0].empty());
  heads_->fails = false;
  Propose({2}, 2);
  EXPECT_TRUE(drafts_[0].empty());
  EXPECT_EQ(heads_->num_runs, 1);
}

// The error for a head of hidden size 2 that knows so many of a model's 64 tokens.
std::string ErrorOfSmallVocabulary(int64_t num_rows) {
  const std::vector<uint8_t> zeros(static_cast<size_t>(std::max<int64_t>(16, 8 * num_rows)));
  const auto bytes = [&](int64_t size) {
    return std::span(zeros).first(static_cast<size_t>(size));
  };
  TensorMap tensors;
  tensors["blocks.0.layers.0.weight"] = {CheckpointDataType::kF32, {2, 2}, bytes(16)};
  tensors["lm_heads.0.weight"] = {CheckpointDataType::kF32, {num_rows, 2}, bytes(8 * num_rows)};
  tensors["token_map"] = {CheckpointDataType::kI64, {num_rows}, bytes(8 * num_rows)};
  DecoderSpec target;
  target.hidden_size = 2;
  target.vocab_size = 64;
  const Checkpoint checkpoint = Checkpoint::FromParts("heads", R"({"num_heads":1})", "", tensors);
  return ReadMedusaWeights(checkpoint, target).status().message();
}

TEST(MedusaWeightsTest, HeadsWithFewerTokensThanAreRankedAreRefused) {
  for (const int64_t num_rows : {0, 1, 15}) {
    EXPECT_EQ(ErrorOfSmallVocabulary(num_rows),
              "Medusa heads 'heads': the heads have a vocabulary of " + std::to_string(num_rows) +
                  " tokens, expected at least 16");
  }
  EXPECT_EQ(ErrorOfSmallVocabulary(16), "");
}

}  // namespace
}  // namespace nereid::llm
