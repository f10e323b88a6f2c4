// The scheduler against a plain sequential model of it: same tokens whatever arrives, is cancelled
// or runs out of room; no block lost, nobody starved.
#include "llm_core/engine/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "fake_executor.h"

namespace nereid::llm {
namespace {

using testing::FakeExecutor;
using ::testing::HasSubstr;
using testing::NextToken;

ExecutorLimits SmallLimits() {
  return {.vocab_size = 1000,
          .max_positions = 64,
          .max_num_sequences = 6,
          .max_num_tokens = 16,
          .block_size = 4,
          .num_blocks = 24};
}

std::unique_ptr<Sequence> MakeSequence(const TokenIds& prompt, int32_t max_tokens) {
  auto sequence = std::make_unique<Sequence>();
  sequence->request = std::make_unique<GenerationRequest>();
  sequence->request->stop.max_tokens = max_tokens;
  sequence->token_ids = prompt;
  sequence->num_prompt = static_cast<int32_t>(prompt.size());
  return sequence;
}

// Runs one step; finished sequences are taken out and appended to `done`.
void Step(Scheduler& scheduler, FakeExecutor& executor,
          std::vector<std::unique_ptr<Sequence>>& done) {
  Batch batch;
  scheduler.Schedule(batch);
  ASSERT_FALSE(batch.sequences.empty()) << "work is left, but nothing was planned";
  ASSERT_LE(static_cast<int32_t>(batch.token_ids.size()), executor.limits().max_num_tokens);
  ASSERT_TRUE(scheduler.CheckInvariants().ok()) << scheduler.CheckInvariants().message();
  ASSERT_TRUE(executor.Submit(batch).ok());
  const StepResult result = *executor.Collect();
  scheduler.MarkComputed();
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    if (batch.sequences[i].samples) {
      scheduler.scheduled()[i]->token_ids.push_back(result.tokens[i].id);
    }
  }
  auto finished = scheduler.Remove([](const Sequence& sequence) {
    return sequence.num_output() >= sequence.request->stop.max_tokens;
  });
  for (auto& sequence : finished) done.push_back(std::move(sequence));
}

void ExpectSequentialTokens(const Sequence& sequence) {
  TokenIds tokens(sequence.token_ids.begin(), sequence.token_ids.begin() + sequence.num_prompt);
  for (int32_t i = 0; i < sequence.num_output(); ++i) tokens.push_back(NextToken(tokens, 1000));
  EXPECT_EQ(tokens, sequence.token_ids);
}

struct Mode {
  CapacityPolicy policy;
  bool chunked;
};

class SchedulerPropertyTest : public ::testing::TestWithParam<Mode> {};

TEST_P(SchedulerPropertyTest, GivesTheTokensOfASequentialRun) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    ExecutorLimits limits = SmallLimits();
    limits.num_blocks = pick(4, 40);
    Scheduler scheduler({GetParam().policy, GetParam().chunked}, limits);
    FakeExecutor executor(limits);
    std::vector<std::unique_ptr<Sequence>> done;
    int to_come = 40, accepted = 0, cancelled = 0, steps = 0;
    while (to_come > 0 || !scheduler.is_empty()) {
      for (int n = pick(0, 3); n > 0 && to_come > 0; --n, --to_come) {
        TokenIds prompt(pick(1, 40));
        for (int32_t& token : prompt) token = pick(0, 999);
        const int32_t max_tokens = pick(1, 24);
        if (!scheduler.CheckFits(static_cast<int64_t>(prompt.size()), max_tokens).ok()) continue;
        scheduler.Add(MakeSequence(prompt, max_tokens));
        ++accepted;
      }
      if (pick(0, 19) == 0) {
        cancelled += static_cast<int>(
            scheduler.Remove([&](const Sequence&) { return pick(0, 5) == 0; }).size());
      }
      if (scheduler.is_empty()) continue;
      Step(scheduler, executor, done);
      if (::testing::Test::HasFatalFailure()) return;
      ASSERT_LT(++steps, 20000) << "seed " << seed << " starves";
    }
    EXPECT_EQ(static_cast<int>(done.size()) + cancelled, accepted);
    for (const auto& sequence : done) ExpectSequentialTokens(*sequence);
    EXPECT_EQ(scheduler.blocks().num_used(), 0);
    EXPECT_TRUE(scheduler.CheckInvariants().ok());
    if (GetParam().policy == CapacityPolicy::kGuaranteedNoEvict) {
      EXPECT_EQ(scheduler.counts().num_preemptions, 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, SchedulerPropertyTest,
                         ::testing::Values(Mode{CapacityPolicy::kGuaranteedNoEvict, true},
                                           Mode{CapacityPolicy::kGuaranteedNoEvict, false},
                                           Mode{CapacityPolicy::kMaxUtilization, true},
                                           Mode{CapacityPolicy::kMaxUtilization, false}),
                         [](const auto& info) {
                           return std::string(info.param.policy == CapacityPolicy::kMaxUtilization
                                                  ? "MaxUtilization"
                                                  : "NoEvict") +
                                  (info.param.chunked ? "Chunked" : "Whole");
                         });

TEST(SchedulerTest, MaxUtilizationPreemptsAndRecomputes) {
  ExecutorLimits limits = SmallLimits();
  limits.num_blocks = 8;
  Scheduler scheduler({CapacityPolicy::kMaxUtilization, true}, limits);
  FakeExecutor executor(limits);
  std::vector<std::unique_ptr<Sequence>> done;
  for (int i = 0; i < 3; ++i) scheduler.Add(MakeSequence({i, 1, 2, 3}, 20));
  while (!scheduler.is_empty()) Step(scheduler, executor, done);
  EXPECT_GT(scheduler.counts().num_preemptions, 0);
  ASSERT_EQ(done.size(), 3u);
  for (const auto& sequence : done) ExpectSequentialTokens(*sequence);
}

TEST(SchedulerTest, DecodesGoOnWhileALongPromptIsComputedInChunks) {
  Scheduler scheduler({}, SmallLimits());
  FakeExecutor executor(SmallLimits());
  std::vector<std::unique_ptr<Sequence>> done;
  scheduler.Add(MakeSequence({1, 2}, 20));
  Step(scheduler, executor, done);
  scheduler.Add(MakeSequence(TokenIds(40, 7), 2));
  for (int step = 0; step < 3; ++step) {
    Batch batch;
    scheduler.Schedule(batch);
    ASSERT_EQ(batch.sequences.size(), 2u);
    EXPECT_EQ(batch.sequences[0].num_tokens, 1);
    EXPECT_EQ(batch.sequences[1].num_tokens, step < 2 ? 15 : 10);
    EXPECT_EQ(batch.sequences[1].samples, step == 2);
    ASSERT_TRUE(executor.Submit(batch).ok());
    scheduler.MarkComputed();
    for (size_t i = 0; i < batch.sequences.size(); ++i) {
      if (batch.sequences[i].samples) scheduler.scheduled()[i]->token_ids.push_back(1);
    }
  }
}

TEST(SchedulerTest, NobodyOvertakesInTheWaitingQueue) {
  ExecutorLimits limits = SmallLimits();
  limits.num_blocks = 10;
  Scheduler scheduler({}, limits);
  FakeExecutor executor(limits);
  std::vector<std::unique_ptr<Sequence>> done;
  scheduler.Add(MakeSequence({1, 2, 3, 4}, 16));    // 5 blocks
  scheduler.Add(MakeSequence(TokenIds(24, 1), 4));  // 7: has to wait
  scheduler.Add(MakeSequence({5}, 3));              // 1: would fit
  Step(scheduler, executor, done);
  EXPECT_EQ(scheduler.counts().num_running, 1);
  EXPECT_EQ(scheduler.counts().num_waiting, 2);
  while (!scheduler.is_empty()) Step(scheduler, executor, done);
  EXPECT_EQ(done[0]->num_prompt, 4);
}

TEST(SchedulerTest, RefusesWhatCanNeverFitWithTheNumbers) {
  ExecutorLimits limits = SmallLimits();
  limits.num_blocks = 10;
  const Scheduler scheduler({CapacityPolicy::kGuaranteedNoEvict, false}, limits);
  EXPECT_TRUE(scheduler.CheckFits(10, 30).ok());
  EXPECT_THAT(scheduler.CheckFits(64, 1).message(),
              HasSubstr("prompt of 64 tokens: the model's limit is 64"));
  EXPECT_THAT(scheduler.CheckFits(60, 5).message(),
              HasSubstr("make 65 tokens, over the model's limit of 64"));
  EXPECT_THAT(scheduler.CheckFits(10, 31).message(),
              HasSubstr("need 11 KV cache blocks of 4 tokens; the cache has 10"));
  EXPECT_THAT(scheduler.CheckFits(17, 1).message(), HasSubstr("over the 16 tokens of one step"));
}

}  // namespace
}  // namespace nereid::llm
