// The EAGLE-3 drafter with a head whose logits are known: what it draws, and what it does when the
// head has no memory or fails.
#include "backends/llm_core/speculation/eagle3_drafter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "backends/llm_core/speculation/eagle3_head.h"

namespace nereid::llm {
namespace {

constexpr int32_t kVocabulary = 20, kDraftVocabulary = 6;

struct HeadLog {
  int num_runs = 0;
  int32_t num_reserved = 0;  // at the newest call
  bool has_memory = true, fails = false;
};

// Draft id (token + 1) % 6 is the likeliest behind `token`, with this distance to the others.
class KnownHead : public DraftHead {
 public:
  KnownHead(HeadLog& log, float distance) : log_(log), distance_(distance) {}
  int32_t feature_size() const override { return 2; }
  int32_t hidden_size() const override { return 1; }
  int32_t vocab_size() const override { return kVocabulary; }
  int32_t max_positions() const override { return 64; }
  std::span<const int32_t> target_ids() const override { return target_ids_; }
  std::unique_ptr<HeadCache> MakeCache() const override { return std::make_unique<Cache>(log_); }
  Status Run(std::span<HeadEntry> entries) override {
    ++log_.num_runs;
    if (log_.fails) return UnavailableError("the device has failed");
    for (HeadEntry& entry : entries) {
      static_cast<Cache&>(*entry.cache).rows += static_cast<int32_t>(entry.tokens.size());
      entry.logits.assign(kDraftVocabulary, 0.0f);
      entry.logits[(entry.tokens.back() + 1) % kDraftVocabulary] = distance_;
      entry.next_hidden = {0.0f};
    }
    return {};
  }

 private:
  struct Cache : public HeadCache {
    explicit Cache(HeadLog& log) : log(log) {}
    int32_t num_rows() const override { return rows; }
    void Truncate(int32_t num_rows) override { rows = std::min(rows, num_rows); }
    bool Reserve(int32_t num_rows) override {
      log.num_reserved = num_rows;
      return log.has_memory;
    }
    HeadLog& log;
    int32_t rows = 0;
  };

  HeadLog& log_;
  const float distance_;
  const std::vector<int32_t> target_ids_ = {3, 4, 5, 6, 7, 19};
};

class Eagle3DrafterTest : public ::testing::Test {
 protected:
  void Start(float distance) {
    drafter_ = std::make_unique<Eagle3Drafter>(
        MakeHostChains(std::make_unique<KnownHead>(log_, distance)));
    state_.reset();
    const std::vector<float> values(2 * (tokens_.size() - 1), 1.0f);
    drafter_->Observe(state_, 0,
                      {.values = values, .num_rows = static_cast<int32_t>(tokens_.size()) - 1});
  }
  TokenIds Propose(int32_t max_drafts, bool takes_trees = false) {
    TokenIds drafts;
    parents_.clear();
    DraftQuery query;
    query.tokens = tokens_;
    query.max_drafts = max_drafts;
    query.state = &state_;
    query.num_prompt = 1;
    query.sampling = &sampling_;
    query.banned_ids = banned_;
    query.drafts = &drafts;
    query.parents = &parents_;
    query.takes_trees = takes_trees;
    drafter_->Propose(std::span(&query, 1));
    num_steps_ = query.num_steps;
    return drafts;
  }

  int32_t num_steps_ = 0;  // of the last proposal
  HeadLog log_;
  const TokenIds tokens_ = {1, 8, 2};
  std::vector<int32_t> parents_;
  SamplingParams sampling_;
  TokenIds banned_;
  std::unique_ptr<Eagle3Drafter> drafter_;
  std::unique_ptr<DrafterState> state_;
};

TEST_F(Eagle3DrafterTest, AGreedyRequestGetsTheLikeliestTokensWithAndWithoutRules) {
  const TokenIds expected = {6, 4, 19};  // behind 2, 6 and 4: draft ids 3, 1 and 5
  for (const bool has_rules : {false, true}) {
    if (has_rules) sampling_.logit_bias = {{0, 1.0f}};  // of a token that the head does not know
    Start(5.0f);
    EXPECT_EQ(Propose(3), expected);
    EXPECT_EQ(log_.num_reserved, 2 + 3 - 1) << "rows of two tokens, and of two drafts";
  }
}

// exp(1.1) / (exp(1.1) + 5) is 0.38, exp(0.7) / (exp(0.7) + 5) is 0.29.
TEST_F(Eagle3DrafterTest, AProposalEndsBeforeAnUnlikelyToken) {
  for (const bool has_rules : {false, true}) {
    if (has_rules) sampling_.logit_bias = {{0, 1.0f}};
    Start(1.1f);
    EXPECT_EQ(Propose(3).size(), 3u);
    Start(0.7f);
    EXPECT_TRUE(Propose(3).empty());
  }
}

// The chain's tokens have 0.38, and all others 0.125 each. The second token of the chain is reached
// with 0.14.
TEST_F(Eagle3DrafterTest, ATreeHasTheLikeliestPathsBesideTheChain) {
  for (const float least_path : {0.0f, Eagle3Drafter::kLeastPath}) {
    const int num_before = log_.num_runs;
    Start(1.1f);
    drafter_->DraftTrees({}, least_path);
    EXPECT_EQ(Propose(5, true), (TokenIds{6, 4, 3, 4, 5}));
    EXPECT_EQ(parents_, (std::vector<int32_t>{-1, 0, -1, -1, -1}));
    const int num_rows = least_path == 0.0f ? 5 : 2;  // up to the token that is too unlikely
    EXPECT_EQ(log_.num_runs - num_before, num_rows);
    EXPECT_EQ(num_steps_, num_rows);
    EXPECT_EQ(drafter_->DraftingSteps(1), 1);
    EXPECT_EQ(drafter_->DraftingSteps(15), least_path == 0.0f ? 15 : 2) << "as it was before";
  }
  Start(1.1f);
  drafter_->DraftTrees();
  EXPECT_EQ(Propose(3, false), (TokenIds{6, 4, 19}));
  EXPECT_TRUE(parents_.empty());
  // 0.29: the chain ends, and its token is a leaf like others.
  Start(0.7f);
  drafter_->DraftTrees();
  EXPECT_EQ(Propose(5, true), (TokenIds{6, 3, 4}));
  EXPECT_EQ(parents_, (std::vector<int32_t>{-1, -1, -1}));
}

TEST_F(Eagle3DrafterTest, ATreeHasNoTokenThatTheRulesBan) {
  Start(1.1f);
  drafter_->DraftTrees();
  banned_ = {3, 4};
  const TokenIds drafts = Propose(5, true);
  EXPECT_EQ(drafts.front(), 6);
  for (const int32_t id : banned_) EXPECT_EQ(std::count(drafts.begin(), drafts.end(), id), 0) << id;
}

TEST_F(Eagle3DrafterTest, ExplicitPathsHaveTheirRanks) {
  Start(1.1f);
  EXPECT_EQ(drafter_->default_max_drafts(), 8);
  drafter_->DraftTrees(*ParseCombChoices("{0},{2},{0,0},{0,1}", 8, 16));
  EXPECT_EQ(drafter_->default_max_drafts(), 4);
  EXPECT_EQ(Propose(8, true), (TokenIds{6, 4, 4, 3}));
  EXPECT_EQ(parents_, (std::vector<int32_t>{-1, -1, 0, 0}));
  EXPECT_EQ(log_.num_runs, 2);
  const Status refused = ParseCombChoices("{0},{1},{1,0}", 8, 16).status();
  EXPECT_EQ(refused.code(), StatusCode::kUnsupported);
  EXPECT_EQ(refused.message(),
            "a path of 2 ranks goes on behind rank 1: expected rank 0 before the last one, since "
            "the head drafts along its likeliest tokens only");
}

TEST_F(Eagle3DrafterTest, WithoutMemoryThereAreNoDraftsUntilThereIsSome) {
  Start(5.0f);
  log_.has_memory = false;
  EXPECT_TRUE(Propose(3).empty());
  EXPECT_EQ(log_.num_runs, 0);
  log_.has_memory = true;
  EXPECT_EQ(Propose(3).size(), 3u);
}

TEST_F(Eagle3DrafterTest, AHeadThatHasFailedIsNotCalledAgain) {
  Start(5.0f);
  log_.fails = true;
  EXPECT_TRUE(Propose(3).empty());
  log_.fails = false;
  EXPECT_TRUE(Propose(3).empty());
  EXPECT_EQ(log_.num_runs, 1);
}

// Chains on a device: what is kept, from which rows of the step, and what is asked for.
class KeepingChains : public DraftChains {
 public:
  struct Log {
    std::vector<std::pair<int32_t, int32_t>> kept;  // row of the step, row of the store
    int num_finished = 0;
    std::vector<DraftChain> chains;
    bool fails = false;
  };
  KeepingChains(Log& log, int32_t num_rows) : DraftChains(num_rows), log_(log) {}
  int32_t max_positions() const override { return 4096; }
  std::unique_ptr<HeadCache> MakeCache() const override {
    return std::make_unique<RowCountingCache>();
  }
  HiddenStatePlace place() const override { return HiddenStatePlace::kDevice; }
  void Keep(const HiddenRows& rows, std::span<const int32_t> kept) override {
    EXPECT_EQ(rows.num_rows, static_cast<int32_t>(kept.size()));
    for (int32_t i = 0; i < rows.num_rows; ++i)
      log_.kept.push_back({rows.first_row + i, kept[static_cast<size_t>(i)]});
  }
  Status FinishKeeping() override {
    ++log_.num_finished;
    return log_.fails ? UnavailableError("the device has failed") : Status();
  }
  Status RunChains(std::span<DraftChain> chains, float) override {
    log_.chains.assign(chains.begin(), chains.end());
    for (DraftChain& chain : chains) {
      auto& rows = static_cast<RowCountingCache&>(*chain.cache).rows;
      rows += static_cast<int32_t>(chain.tokens.size()) + std::max(0, chain.max_drafts - 1);
      for (int32_t i = 0; i < chain.max_drafts; ++i) chain.drafts->push_back(100 + i);
    }
    return {};
  }

 private:
  struct RowCountingCache : public HeadCache {
    int32_t num_rows() const override { return rows; }
    void Truncate(int32_t num_rows) override { rows = std::min(rows, num_rows); }
    int32_t rows = 0;
  };

  Log& log_;
};

class KeptRowsTest : public ::testing::Test {
 protected:
  void Start(int32_t num_rows) {
    auto chains = std::make_unique<KeepingChains>(log_, num_rows);
    pool_ = chains->pool();
    drafter_ = std::make_unique<Eagle3Drafter>(std::move(chains));
  }
  TokenIds Propose(std::unique_ptr<DrafterState>& state, int32_t num_tokens) {
    tokens_.resize(static_cast<size_t>(num_tokens));
    std::iota(tokens_.begin(), tokens_.end(), 0);
    TokenIds drafts;
    DraftQuery query;
    query.tokens = tokens_;
    query.max_drafts = 3;
    query.state = &state;
    query.sampling = &sampling_;
    query.drafts = &drafts;
    log_.chains.clear();
    drafter_->Propose(std::span(&query, 1));
    return drafts;
  }

  KeepingChains::Log log_;
  std::shared_ptr<RowPool> pool_;
  std::unique_ptr<Eagle3Drafter> drafter_;
  TokenIds tokens_;
  SamplingParams sampling_;
  std::unique_ptr<DrafterState> first_, second_;
};

TEST_F(KeptRowsTest, RowsOfTheStepWaitUntilTheHeadRunsThem) {
  Start(64);
  drafter_->Observe(first_, 0, {.num_rows = 5, .first_row = 7});
  drafter_->Observe(second_, 0, {.num_rows = 2, .first_row = 12});
  drafter_->FinishObserving();
  EXPECT_EQ(log_.num_finished, 1);
  ASSERT_EQ(log_.kept.size(), 7u);
  EXPECT_EQ(pool_->num_free(), 57);
  EXPECT_EQ(Propose(first_, 6), (TokenIds{100, 101, 102}));
  ASSERT_EQ(log_.chains.size(), 1u);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(log_.kept[i].first, 7 + static_cast<int32_t>(i));
  EXPECT_EQ(log_.chains[0].first_position, 0);
  EXPECT_EQ(log_.chains[0].tokens.size(), 5u);
  EXPECT_EQ(pool_->num_free(), 62) << "the chain's rows are free again";
  // Two of the drafts were accepted: their rows come from the target now.
  log_.kept.clear();
  drafter_->Observe(first_, 5, {.num_rows = 3, .first_row = 20});
  drafter_->FinishObserving();
  EXPECT_EQ(Propose(first_, 9).size(), 3u);
  EXPECT_EQ(log_.chains[0].first_position, 5);
  EXPECT_EQ(log_.kept.front().first, 20);
  // A preempted sequence computes again what is known.
  log_.kept.clear();
  drafter_->Observe(first_, 0, {.num_rows = 10, .first_row = 30});
  ASSERT_EQ(log_.kept.size(), 2u);
  EXPECT_EQ(log_.kept.front().first, 38);
  first_.reset();
  second_.reset();
  EXPECT_EQ(pool_->num_free(), 64);
}

TEST_F(KeptRowsTest, AFullStoreKeepsTheEndOfAStep) {
  Start(8);
  drafter_->Observe(second_, 0, {.num_rows = 5});
  drafter_->Observe(first_, 0, {.num_rows = 10, .first_row = 5});
  ASSERT_EQ(log_.kept.size(), 8u);
  EXPECT_EQ(log_.kept[5].first, 12) << "the last three";
  EXPECT_EQ(pool_->num_free(), 0);
  EXPECT_EQ(Propose(first_, 11).size(), 3u);
  EXPECT_EQ(log_.chains[0].first_position, 7);
  EXPECT_EQ(pool_->num_free(), 3);
  drafter_->Observe(first_, 10, {.num_rows = 4, .first_row = 0});
  EXPECT_EQ(Propose(first_, 15).size(), 3u);
  EXPECT_EQ(log_.chains[0].first_position, 11) << "what did not fit is not known";
}

TEST_F(KeptRowsTest, AHeadThatCanNotKeepRowsIsNotCalledAgain) {
  Start(64);
  drafter_->Observe(first_, 0, {.num_rows = 5});
  log_.fails = true;
  drafter_->FinishObserving();
  EXPECT_TRUE(Propose(first_, 6).empty());
  drafter_->Observe(first_, 5, {.num_rows = 1});
  EXPECT_EQ(log_.kept.size(), 5u);
  EXPECT_EQ(log_.num_finished, 1);
}

TEST(Eagle3HeadTest, AListOfLayersThatCanNotBeReadIsAnError) {
  const char* const kConfig = R"({"hidden_size":64,"intermediate_size":96,
    "num_attention_heads":4,"vocab_size":512,"max_position_embeddings":512,
    "eagle_config":{"eagle_aux_hidden_state_layer_ids":["first"]}})";
  DecoderSpec target;
  target.hidden_size = 64;
  target.vocab_size = 512;
  target.layers.resize(8);
  const Checkpoint checkpoint = Checkpoint::FromParts("head", kConfig, "", {});
  EXPECT_THAT(std::string(ReadEagle3Head(checkpoint, target).status().message()),
              ::testing::HasSubstr("'eagle_aux_hidden_state_layer_ids' holds"));
}

}  // namespace
}  // namespace nereid::llm
