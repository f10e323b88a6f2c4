// The engine on its own thread: output, streaming, cancellation, limits, failure.
#include "backends/llm_core/engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <random>

#include "tests/backends/llm_core/fake_executor.h"

namespace nereid::llm {
namespace {

using testing::FakeExecutor;
using ::testing::HasSubstr;
using testing::NextToken;

ExecutorLimits Limits() {
  return {.vocab_size = 1000,
          .max_positions = 256,
          .max_num_sequences = 8,
          .max_num_tokens = 32,
          .block_size = 8,
          .num_blocks = 64};
}

// What a client has received for one request.
struct ReceivedOutput {
  std::promise<void> ended;
  std::atomic<bool> is_cancelled{false};
  std::atomic<int> num_asked{0};  // calls of IsCancelled
  std::atomic<int> num_calls{0};
  TokenIds ids;    // new ids of all calls, in order
  TokenIds whole;  // the last call's ids
  float cum_log_prob = 0.0f;
  FinishReason finish = FinishReason::kNone;
  Status error;
};

class RecordingSink : public OutputSink {
 public:
  explicit RecordingSink(std::shared_ptr<ReceivedOutput> seen) : seen_(std::move(seen)) {}

  bool IsCancelled() const override {
    ++seen_->num_asked;
    return seen_->is_cancelled;
  }
  void OnOutput(const SequenceOutput& output) override {
    EXPECT_EQ(output.first_new, seen_->ids.size());
    seen_->ids.insert(seen_->ids.end(), output.ids.begin() + output.first_new, output.ids.end());
    seen_->whole.assign(output.ids.begin(), output.ids.end());
    seen_->cum_log_prob = output.cum_log_prob;
    seen_->finish = output.finish;
    ++seen_->num_calls;
    if (output.finish != FinishReason::kNone) seen_->ended.set_value();
  }
  void OnError(const Status& status) override {
    seen_->error = status;
    seen_->ended.set_value();
  }

 private:
  const std::shared_ptr<ReceivedOutput> seen_;
};

// The parameter: whether steps overlap.
class EngineTest : public ::testing::TestWithParam<bool> {
 protected:
  // The invariant checker runs after each step of every test.
  void TearDown() override {
    if (engine_ == nullptr) return;
    engine_.reset();
    EXPECT_GT(num_checks_, 0);
  }

  void Start(EngineOptions options = {}, ExecutorLimits limits = Limits()) {
    options.on_check = [this](const Status& status) {
      ++num_checks_;
      EXPECT_TRUE(status.ok()) << status.message();
    };
    auto executor = std::make_unique<FakeExecutor>(limits, ExecutorFeatures{.overlap = GetParam()});
    executor_ = executor.get();
    executor_->on_submit = std::move(on_submit_);
    executor_->bans_all = std::move(bans_all_);
    engine_ = std::make_unique<Engine>(std::move(options), std::move(executor));
  }

  std::shared_ptr<ReceivedOutput> Send(
      const TokenIds& prompt, const StopCriteria& stop, Status* refused = nullptr,
      std::shared_ptr<ReceivedOutput> seen = std::make_shared<ReceivedOutput>()) {
    auto request = std::make_unique<GenerationRequest>();
    request->prompt = prompt;
    request->stop = stop;
    request->sampling.returns_log_probs = true;
    request->sink = std::make_unique<RecordingSink>(seen);
    const Status queued = engine_->Enqueue(request);
    EXPECT_EQ(queued.ok(), request == nullptr);
    if (refused != nullptr) *refused = queued;
    return seen;
  }

  static StopCriteria MaxTokens(int32_t max_tokens) {
    StopCriteria stop;
    stop.max_tokens = max_tokens;
    return stop;
  }

  static TokenIds Expected(TokenIds tokens, int32_t count) {
    const size_t prompt = tokens.size();
    for (int32_t i = 0; i < count; ++i) tokens.push_back(NextToken(tokens, 1000));
    return TokenIds(tokens.begin() + static_cast<ptrdiff_t>(prompt), tokens.end());
  }

  std::function<Status(const StepBatch&)> on_submit_;
  std::function<bool(const BatchEntry&)> bans_all_;
  FakeExecutor* executor_ = nullptr;
  std::atomic<int> num_checks_{0};
  std::unique_ptr<Engine> engine_;
};

TEST_P(EngineTest, EmitsTheTokensAndTheFinishReason) {
  Start();
  const auto seen = Send({1, 2, 3}, MaxTokens(20));
  seen->ended.get_future().wait();
  EXPECT_EQ(seen->ids, Expected({1, 2, 3}, 20));
  EXPECT_EQ(seen->finish, FinishReason::kLength);
  EXPECT_EQ(seen->num_calls, 20);
  EXPECT_FLOAT_EQ(seen->cum_log_prob, -10.0f);
}

TEST_P(EngineTest, StopsAtAnEndIdWithoutEmittingIt) {
  Start();
  const TokenIds all = Expected({1, 2, 3}, 20);
  StopCriteria stop = MaxTokens(20);
  stop.end_ids = {all[7]};
  const auto seen = Send({1, 2, 3}, stop);
  seen->ended.get_future().wait();
  EXPECT_EQ(seen->ids, TokenIds(all.begin(), all.begin() + 7));
  EXPECT_EQ(seen->finish, FinishReason::kStop);
}

TEST_P(EngineTest, FailsOnlyTheRequestWhoseRulesBanEveryToken) {
  bans_all_ = [](const BatchEntry& entry) {
    return entry.num_prompt == 2 && entry.num_cached + entry.num_tokens == 2 + 3;
  };
  Start();
  const auto stuck = Send({1, 2}, MaxTokens(20));
  const auto other = Send({1, 2, 3}, MaxTokens(20));
  stuck->ended.get_future().wait();
  other->ended.get_future().wait();
  EXPECT_EQ(stuck->ids, Expected({1, 2}, 3));
  EXPECT_EQ(stuck->finish, FinishReason::kNone);
  EXPECT_EQ(stuck->error.code(), StatusCode::kInvalidArg);
  EXPECT_THAT(stuck->error.message(), HasSubstr("output token 4: the request's rules ban all 1000 "
                                                "tokens"));
  EXPECT_EQ(other->ids, Expected({1, 2, 3}, 20));
}

TEST_P(EngineTest, FailsARequestOnceIfSeveralOfItsSequencesAreStuck) {
  bans_all_ = [](const BatchEntry& entry) { return entry.num_cached + entry.num_tokens == 5; };
  Start();
  auto request = std::make_unique<GenerationRequest>();
  const auto seen = std::make_shared<ReceivedOutput>();
  class ErrorSink : public RecordingSink {
   public:
    using RecordingSink::RecordingSink;
    void OnOutput(const SequenceOutput&) override {}
  };
  request->prompt = {1, 2};
  request->stop = MaxTokens(20);
  request->num_sequences = 3;
  request->sink = std::make_unique<ErrorSink>(seen);  // a second error would be a broken promise
  ASSERT_TRUE(engine_->Enqueue(request).ok());
  seen->ended.get_future().wait();
  EXPECT_THAT(seen->error.message(), HasSubstr("output token 4"));
}

TEST_P(EngineTest, NeverEmitsATokenOfACompletedStopWord) {
  Start();
  const TokenIds all = Expected({9}, 20);
  StopCriteria stop = MaxTokens(20);
  stop.stop_words = {{all[4], all[5], all[6]}, {all[2], 5000 % 1000}};
  const auto seen = Send({9}, stop);
  seen->ended.get_future().wait();
  EXPECT_EQ(seen->ids, TokenIds(all.begin(), all.begin() + 4));
  EXPECT_EQ(seen->whole, seen->ids);
}

TEST_P(EngineTest, ConcurrentRequestsFromManyThreadsGetTheirOwnTokens) {
  Start();
  std::vector<std::thread> clients;
  for (int client = 0; client < 4; ++client) {
    clients.emplace_back([&, client] {
      std::mt19937 random(client);
      for (int i = 0; i < 50; ++i) {
        TokenIds prompt(random() % 60 + 1);
        for (int32_t& id : prompt) id = static_cast<int32_t>(random() % 1000);
        const auto max_tokens = static_cast<int32_t>(random() % 40 + 1);
        const auto seen = Send(prompt, MaxTokens(max_tokens));
        if (i % 5 == 0) seen->is_cancelled = true;
        seen->ended.get_future().wait();
        const TokenIds all = Expected(prompt, max_tokens);
        EXPECT_EQ(seen->ids,
                  TokenIds(all.begin(), all.begin() + static_cast<ptrdiff_t>(seen->ids.size())));
        EXPECT_TRUE(seen->finish == FinishReason::kCancelled || seen->ids.size() == all.size());
      }
    });
  }
  for (std::thread& client : clients) client.join();
  while (engine_->stats().num_used_blocks > 0) std::this_thread::yield();  // or the test times out
  EXPECT_TRUE(engine_->health().ok());
}

TEST_P(EngineTest, CancellationEndsARunningAndAWaitingRequest) {
  std::promise<void> release;
  on_submit_ = [future = release.get_future().share()](const StepBatch&) {
    future.wait();
    return Status();
  };
  ExecutorLimits limits = Limits();
  limits.max_num_sequences = 1;
  Start({}, limits);
  const auto running = Send({1}, MaxTokens(200));
  const auto waiting = Send({2}, MaxTokens(200));
  waiting->is_cancelled = true;
  running->is_cancelled = true;
  release.set_value();
  running->ended.get_future().wait();
  waiting->ended.get_future().wait();
  EXPECT_EQ(running->finish, FinishReason::kCancelled);
  EXPECT_EQ(waiting->finish, FinishReason::kCancelled);
  EXPECT_TRUE(waiting->ids.empty());
  EXPECT_LE(running->ids.size(), 2u);
}

TEST_P(EngineTest, WithoutPollingSinksAreAskedOnlyAfterCheckCancellations) {
  std::promise<void> release;
  on_submit_ = [future = release.get_future().share()](const StepBatch&) {
    future.wait();
    return Status();
  };
  EngineOptions options;
  options.polls_sinks = false;
  ExecutorLimits limits = Limits();
  limits.max_num_sequences = 1;
  Start(std::move(options), limits);
  const auto running = Send({1}, MaxTokens(200));
  const auto waiting = Send({2}, MaxTokens(200));
  auto early = std::make_shared<ReceivedOutput>();
  // Before the engine has the request: CheckCancellations is not called for it later.
  early->is_cancelled = true;
  const auto late = Send({3}, MaxTokens(3), nullptr, early);
  waiting->is_cancelled = true;
  engine_->CheckCancellations();
  release.set_value();
  for (const auto& seen : {running, waiting, late}) seen->ended.get_future().wait();
  EXPECT_EQ(running->finish, FinishReason::kLength);
  EXPECT_EQ(waiting->finish, FinishReason::kCancelled);
  EXPECT_EQ(late->finish, FinishReason::kCancelled);
  EXPECT_LE(running->num_asked, 4);  // in 200 steps
}

TEST_P(EngineTest, RejectsInvalidRequestsByName) {
  Start();
  Status refused;
  Send({}, MaxTokens(1), &refused);
  EXPECT_THAT(refused.message(), HasSubstr("the prompt is empty"));
  Send({1, -1}, MaxTokens(1), &refused);
  EXPECT_THAT(refused.message(), HasSubstr("token id -1 at index 1, expected 0 to 999"));
  Send({1, 1000}, MaxTokens(1), &refused);
  EXPECT_THAT(refused.message(), HasSubstr("token id 1000"));
  Send({1}, MaxTokens(-5), &refused);
  EXPECT_THAT(refused.message(), HasSubstr("'request_output_len' (max_tokens) is -5"));
  Send(TokenIds(256, 1), MaxTokens(1), &refused);
  EXPECT_THAT(refused.message(), HasSubstr("prompt of 256 tokens: the model's limit is 256"));
  StopCriteria stop = MaxTokens(1);
  stop.stop_words = {{4000}};
  Send({1}, stop, &refused);
  EXPECT_THAT(refused.message(), HasSubstr("'stop_words_list': token id 4000"));
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArg);
}

TEST_P(EngineTest, AFullQueueRejectsRequestsAndNamesItsLimit) {
  std::promise<void> release, first_step;
  auto once = std::make_shared<std::once_flag>();
  on_submit_ = [future = release.get_future().share(), &first_step, once](const StepBatch&) {
    std::call_once(*once, [&] { first_step.set_value(); });
    future.wait();
    return Status();
  };
  ExecutorLimits limits = Limits();
  limits.max_num_sequences = 1;
  EngineOptions options;
  options.max_queue_size = 2;
  Start(std::move(options), limits);
  std::vector<std::shared_ptr<ReceivedOutput>> accepted = {Send({1}, MaxTokens(2))};
  first_step.get_future().wait();
  Status refused;
  for (int i = 0; i < 6; ++i) {
    auto seen = Send({2}, MaxTokens(2), &refused);
    if (refused.ok()) accepted.push_back(std::move(seen));
  }
  EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
  EXPECT_THAT(refused.message(), HasSubstr("Exceeds maximum queue size of 2"));
  EXPECT_LE(accepted.size(), 4u);
  release.set_value();
  for (const auto& seen : accepted) seen->ended.get_future().wait();
}

TEST_P(EngineTest, AFailedStepFailsEveryRequestAndRejectsNewOnes) {
  std::promise<void> both_sent;
  on_submit_ = [steps = 0, sent = both_sent.get_future().share()](const StepBatch&) mutable {
    if (++steps < 4) return Status();
    sent.wait();
    return InternalError("device lost");
  };
  Start();
  const auto one = Send({1}, MaxTokens(100));
  const auto two = Send({2}, MaxTokens(100));
  both_sent.set_value();
  one->ended.get_future().wait();
  two->ended.get_future().wait();
  EXPECT_THAT(one->error.message(), HasSubstr("device lost"));
  EXPECT_THAT(engine_->health().message(), HasSubstr("device lost"));
  Status refused;
  Send({3}, MaxTokens(1), &refused);
  EXPECT_THAT(refused.message(), HasSubstr("device lost"));
}

TEST_P(EngineTest, DestructionFailsTheOpenRequests) {
  Start();
  const auto seen = Send({1}, MaxTokens(250));
  engine_.reset();
  seen->ended.get_future().wait();
  EXPECT_TRUE(!seen->error.ok() || seen->ids.size() == 250);
}

TEST_P(EngineTest, RunsNoStepsWhileIdle) {
  Start();
  const auto seen = Send({1}, MaxTokens(3));
  seen->ended.get_future().wait();
  while (engine_->stats().counts.num_running > 0) std::this_thread::yield();
  const int64_t steps = engine_->stats().num_steps;
  EXPECT_EQ(steps, 3);
  EXPECT_EQ(executor_->num_steps, 3);
  EXPECT_EQ(executor_->max_outstanding, GetParam() ? 2 : 1);
}

TEST_P(EngineTest, AStopDetectedLateCostsOneStep) {
  Start();
  const TokenIds all = Expected({1, 2, 3}, 20);
  StopCriteria stop = MaxTokens(20);
  stop.end_ids = {all[7]};
  Send({1, 2, 3}, stop)->ended.get_future().wait();
  while (engine_->stats().counts.num_running > 0) std::this_thread::yield();
  Send({5}, MaxTokens(1))->ended.get_future().wait();  // its step runs after the late request's
  while (engine_->stats().num_output_tokens < 9)
    std::this_thread::yield();  // or the test times out
  EXPECT_EQ(engine_->stats().num_output_tokens, 9);
  EXPECT_EQ(executor_->num_steps, GetParam() ? 10 : 9);
}

TEST_P(EngineTest, StepsAreNotPlannedAheadForRulesThatReadTheOutput) {
  Start();
  const auto seen = std::make_shared<ReceivedOutput>();
  auto request = std::make_unique<GenerationRequest>();
  request->prompt = {1, 2, 3};
  request->stop = MaxTokens(20);
  request->sampling.frequency_penalty = 0.5f;
  request->sink = std::make_unique<RecordingSink>(seen);
  ASSERT_TRUE(engine_->Enqueue(request).ok());
  seen->ended.get_future().wait();
  EXPECT_EQ(seen->ids, Expected({1, 2, 3}, 20));
  EXPECT_EQ(executor_->max_outstanding, 1);
}

TEST_P(EngineTest, StepsOverlapOnlyWherePermitted) {
  EngineOptions options;
  options.overlaps_steps = false;
  Start(std::move(options));
  const auto seen = Send({1, 2, 3}, MaxTokens(20));
  seen->ended.get_future().wait();
  EXPECT_EQ(seen->ids, Expected({1, 2, 3}, 20));
  EXPECT_EQ(executor_->max_outstanding, 1);
}

class CountingExecutor : public FakeExecutor {
 public:
  using FakeExecutor::FakeExecutor;
  ExecutorCounts counts() const override {
    return {.num_recorded_steps = 5, .num_failed_recordings = 2};
  }
};

TEST(EngineStatsTest, IncludesTheCountersOfTheExecutor) {
  const Engine engine({}, std::make_unique<CountingExecutor>(Limits()));
  EXPECT_EQ(engine.stats().num_recorded_steps, 5);
  EXPECT_EQ(engine.stats().num_failed_recordings, 2);
}

INSTANTIATE_TEST_SUITE_P(Steps, EngineTest, ::testing::Bool(), [](const auto& info) {
  return info.param ? "Overlapped" : "Synchronous";
});

}  // namespace
}  // namespace nereid::llm
