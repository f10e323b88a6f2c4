// The EAGLE-3 drafter with a head whose logits are known: what it draws, and what it does when the
// head has no memory or fails.
#include "backends/llm_core/speculation/eagle3_drafter.h"

#include <gtest/gtest.h>

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
    drafter_ = std::make_unique<Eagle3Drafter>(std::make_unique<KnownHead>(log_, distance));
    state_.reset();
    drafter_->Observe(state_, 0, std::vector<float>(2 * (tokens_.size() - 1), 1.0f));
  }
  TokenIds Propose(int32_t max_drafts) {
    TokenIds drafts;
    DraftQuery query;
    query.tokens = tokens_;
    query.max_drafts = max_drafts;
    query.state = &state_;
    query.num_prompt = 1;
    query.sampling = &sampling_;
    query.drafts = &drafts;
    drafter_->Propose(std::span(&query, 1));
    return drafts;
  }

  HeadLog log_;
  const TokenIds tokens_ = {1, 8, 2};
  SamplingParams sampling_;
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

}  // namespace
}  // namespace nereid::llm
