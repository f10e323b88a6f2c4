// The draft model proposes what it would generate, keeps up with the sequence, and shares its cache
// among the sequences.
#include "backends/llm_core/speculation/model_drafter.h"

#include <gtest/gtest.h>

#include "tests/backends/llm_core/fake_executor.h"

namespace nereid::llm {
namespace {

ExecutorLimits DraftModelLimits() {
  ExecutorLimits limits;
  limits.vocab_size = 100;
  limits.max_positions = 64;
  limits.max_num_sequences = 4;
  limits.max_num_tokens = 16;
  limits.block_size = 4;
  limits.num_blocks = 24;
  return limits;
}

class ModelDrafterTest : public ::testing::Test {
 protected:
  explicit ModelDrafterTest(const ExecutorLimits& limits = DraftModelLimits()) : limits_(limits) {
    auto executor = std::make_unique<testing::FakeExecutor>(limits);
    executor_ = executor.get();
    drafter_ = std::make_unique<ModelDrafter>(std::move(executor));
    sampling_.temperature = 0.0f;
  }
  struct Client {
    TokenIds tokens;
    std::unique_ptr<DrafterState> state;
    TokenIds drafts;
  };
  void Propose(std::vector<Client>& clients, int32_t max_drafts) {
    std::vector<DraftQuery> queries;
    for (Client& client : clients) {
      client.drafts.clear();
      DraftQuery& query = queries.emplace_back();
      query.tokens = client.tokens;
      query.max_drafts = max_drafts;
      query.state = &client.state;
      query.num_prompt = 1;
      query.sampling = &sampling_;
      query.drafts = &client.drafts;
    }
    drafter_->Propose(queries);
  }
  // What the draft model generates behind `tokens`.
  TokenIds Expected(TokenIds tokens, int32_t count) const {
    const auto size = static_cast<ptrdiff_t>(tokens.size());
    for (int32_t i = 0; i < count; ++i) tokens.push_back(testing::NextToken(tokens, limits_));
    return {tokens.begin() + size, tokens.end()};
  }

  const ExecutorLimits limits_;
  testing::FakeExecutor* executor_ = nullptr;
  std::unique_ptr<ModelDrafter> drafter_;
  SamplingParams sampling_;
};

TEST_F(ModelDrafterTest, ProposesWhatTheModelGeneratesForAllSequencesTogether) {
  std::vector<Client> clients(3);
  clients[0].tokens = {1, 2, 3};
  clients[1].tokens = {7};
  clients[2].tokens = {5, 6};
  Propose(clients, 4);
  for (const Client& client : clients) EXPECT_EQ(client.drafts, Expected(client.tokens, 4));
  EXPECT_EQ(executor_->num_steps, 4) << "a step drafts for all";
}

TEST_F(ModelDrafterTest, RunsOnlyTheTokensThatItHasNotSeen) {
  std::vector<Client> clients(1);
  clients[0].tokens = {1, 2, 3};
  for (int32_t num_accepted = 0; num_accepted <= 3; ++num_accepted) {
    Propose(clients, 3);
    EXPECT_EQ(clients[0].drafts, Expected(clients[0].tokens, 3));
    const TokenIds drafts = clients[0].drafts;
    clients[0].tokens.insert(clients[0].tokens.end(), drafts.begin(),
                             drafts.begin() + num_accepted);
    clients[0].tokens.push_back(90 + num_accepted);  // the target's own
  }
  // 3 + 2 of the first call; then 1 that differs and 2, thrice; the last draft of a call is not
  // run, so that the call after three accepted ones would run it.
  EXPECT_EQ(executor_->num_tokens, 5 + 3 * 3);
}

TEST_F(ModelDrafterTest, SpreadsALongPromptOverSeveralCalls) {
  std::vector<Client> clients(1);
  for (int32_t i = 0; i < 40; ++i) clients[0].tokens.push_back(i);
  Propose(clients, 2);
  EXPECT_TRUE(clients[0].drafts.empty());
  Propose(clients, 2);
  EXPECT_TRUE(clients[0].drafts.empty());
  Propose(clients, 2);
  EXPECT_EQ(clients[0].drafts, Expected(clients[0].tokens, 2));
}

TEST_F(ModelDrafterTest, EndsAtTheModelsContext) {
  std::vector<Client> clients(1);
  clients[0].tokens = TokenIds(62, 1);
  for (int i = 0; i < 4; ++i) Propose(clients, 8);
  EXPECT_EQ(clients[0].drafts, Expected(clients[0].tokens, 2));
  clients[0].tokens.resize(100, 1);
  Propose(clients, 8);
  EXPECT_TRUE(clients[0].drafts.empty());
}

// More sequences than slots, and more tokens than blocks.
TEST_F(ModelDrafterTest, SequencesOfEarlierCallsLoseTheirBlocks) {
  std::vector<Client> first(4), second(4);
  for (int32_t i = 0; i < 4; ++i) {
    first[i].tokens = TokenIds(12, 10 + i);
    second[i].tokens = TokenIds(12, 20 + i);
  }
  for (int round = 0; round < 6; ++round) {
    for (std::vector<Client>* clients : {&first, &second}) {
      for (int i = 0; i < 4; ++i) Propose(*clients, 3);  // a call runs 16 tokens that are behind
      for (Client& client : *clients) EXPECT_EQ(client.drafts, Expected(client.tokens, 3));
    }
  }
  std::vector<Client> third(6);  // of one call: two get no slot
  for (Client& client : third) client.tokens = {3, 1};
  Propose(third, 2);
  int num_drafted = 0;
  for (const Client& client : third) num_drafted += client.drafts.empty() ? 0 : 1;
  EXPECT_EQ(num_drafted, 4);
}

TEST_F(ModelDrafterTest, StatesMayOutliveTheDrafter) {
  std::vector<Client> clients(2);
  for (Client& client : clients) client.tokens = {1, 2};
  Propose(clients, 2);
  drafter_.reset();
  clients.clear();
}

TEST_F(ModelDrafterTest, WarmingUpReturnsTheErrorOfItsRun) {
  EXPECT_TRUE(drafter_->WarmUp().ok());
  executor_->on_submit = [](const StepBatch&) { return InternalError("no more"); };
  const Status status = drafter_->WarmUp();
  EXPECT_NE(status.message().find("no more"), std::string::npos) << status.message();
}

TEST_F(ModelDrafterTest, ProposesNothingAfterAnError) {
  std::vector<Client> clients(1);
  clients[0].tokens = {1, 2};
  executor_->on_submit = [this](const StepBatch&) {
    return executor_->num_steps == 1 ? InternalError("no more") : Status::Ok();
  };
  Propose(clients, 3);
  EXPECT_TRUE(clients[0].drafts.empty());
  executor_->on_submit = nullptr;
  Propose(clients, 3);
  EXPECT_TRUE(clients[0].drafts.empty());
}

}  // namespace
}  // namespace nereid::llm
