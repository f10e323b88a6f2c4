// Late planning: while requests keep arriving, the engine plans the next step shortly before the
// running one can end. The test controls time and the duration of steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <future>

#include "backends/llm_core/engine/engine.h"
#include "tests/backends/llm_core/fake_executor.h"

namespace nereid::llm {
namespace {

using namespace std::chrono_literals;
using testing::FakeExecutor;
using testing::NextToken;

constexpr ExecutorLimits kLimits = {.vocab_size = 1000,
                                    .max_positions = 256,
                                    .max_num_sequences = 8,
                                    .max_num_tokens = 32,
                                    .block_size = 8,
                                    .num_blocks = 64};

// A clock that advances only when the engine waits for a time or for a step.
class FakeTime : public EngineClock {
 public:
  TimePoint Now() override { return now_; }
  void WaitUntil(std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
                 TimePoint until, const std::function<bool()>& is_over) override {
    waits.push_back({now_, until});
    lock.unlock();
    if (on_wait) on_wait();
    lock.lock();
    if (waits_for_stop) changed.wait(lock, is_over);
    now_ = std::max(now_, until);
  }
  void Pass(TimePoint until) { now_ = std::max(now_, until); }

  struct Wait {
    TimePoint from, until;
  };
  std::vector<Wait> waits;
  std::function<void()> on_wait;
  bool waits_for_stop = false;  // waits end only by a stop

 private:
  TimePoint now_{1000s};
};

// The submitted steps, and when the device was idle.
struct StepLog {
  std::vector<int64_t> num_prompts;  // number of prompts that began in each step
  int num_pauses = 0;                // device idle times after the first step
  EngineClock::TimePoint free{};     // end of all submitted steps
};

// Each step takes `step` of the fake time; steps run one after the other.
class TimedExecutor : public FakeExecutor {
 public:
  TimedExecutor(std::shared_ptr<FakeTime> time, EngineClock::TimePoint::duration step, StepLog& log,
                bool overlaps)
      : FakeExecutor(kLimits, {.overlap = overlaps}),
        time_(std::move(time)),
        step_(step),
        log_(log) {}

  Status Submit(const StepBatch& batch) override {
    if (!log_.num_prompts.empty() && time_->Now() > log_.free) ++log_.num_pauses;
    log_.num_prompts.push_back(std::count_if(batch.entries.begin(), batch.entries.end(),
                                             [](const auto& one) { return one.num_cached == 0; }));
    log_.free = std::max(log_.free, time_->Now()) + step_;
    ends_.push_back(log_.free);
    return FakeExecutor::Submit(batch);
  }
  Result<StepResult> Collect() override {
    time_->Pass(ends_.front());
    ends_.pop_front();
    return FakeExecutor::Collect();
  }

 private:
  const std::shared_ptr<FakeTime> time_;
  const EngineClock::TimePoint::duration step_;
  StepLog& log_;
  std::deque<EngineClock::TimePoint> ends_;
};

class PromiseSink : public OutputSink {
 public:
  explicit PromiseSink(std::promise<TokenIds> promise) : promise_(std::move(promise)) {}
  bool IsCancelled() const override { return false; }
  void OnOutput(const SequenceOutput& output) override {
    if (output.finish != FinishReason::kNone)
      promise_.set_value(TokenIds(output.ids.begin(), output.ids.end()));
  }
  void OnError(const Status&) override { promise_.set_value({}); }

 private:
  std::promise<TokenIds> promise_;
};

class LatePlanningTest : public ::testing::Test {
 protected:
  void Start(EngineClock::TimePoint::duration step, bool overlaps = true) {
    EngineOptions options;
    options.clock = time_;
    engine_ = std::make_unique<Engine>(
        std::move(options), std::make_unique<TimedExecutor>(time_, step, log_, overlaps));
  }
  // May be called on any thread, the engine's included.
  std::future<TokenIds> Send(int32_t first_id, int32_t num_tokens) {
    auto request = std::make_unique<GenerationRequest>();
    request->prompt = {first_id, 2, 3};
    request->stop.max_tokens = num_tokens;
    std::promise<TokenIds> promise;
    auto answer = promise.get_future();
    request->sink = std::make_unique<PromiseSink>(std::move(promise));
    EXPECT_TRUE(engine_->Enqueue(request).ok());
    return answer;
  }
  static TokenIds Expected(int32_t first_id, int32_t count) {
    TokenIds tokens = {first_id, 2, 3};
    for (int32_t i = 0; i < count; ++i) tokens.push_back(NextToken(tokens, kLimits.vocab_size));
    return TokenIds(tokens.begin() + 3, tokens.end());
  }

  const std::shared_ptr<FakeTime> time_ = std::make_shared<FakeTime>();
  StepLog log_;                     // read after the engine is destroyed, or while it waits
  std::unique_ptr<Engine> engine_;  // last member: its thread uses the others
};

TEST_F(LatePlanningTest, RequestsThatArriveDuringAStepJoinTheNextOne) {
  Start(8ms);
  std::vector<std::future<TokenIds>> others;
  std::vector<size_t> next_steps;  // at the time of each arrival
  time_->on_wait = [&] {
    const FakeTime::Wait wait = time_->waits.back();
    EXPECT_GT(wait.until, wait.from);
    EXPECT_LT(wait.until, log_.free);  // end of the only running step
    if (others.size() == 4) return;
    next_steps.push_back(log_.num_prompts.size());
    others.push_back(Send(100 + static_cast<int32_t>(others.size()), 5));
  };
  EXPECT_EQ(Send(1, 40).get(), Expected(1, 40));
  ASSERT_EQ(others.size(), 4u);
  for (int32_t i = 0; i < 4; ++i) EXPECT_EQ(others[i].get(), Expected(100 + i, 5)) << i;
  engine_.reset();
  for (const size_t step : next_steps) EXPECT_EQ(log_.num_prompts.at(step), 1) << step;
  EXPECT_EQ(log_.num_pauses, 0);
}

TEST_F(LatePlanningTest, WithoutRecentArrivalsStepsArePlannedAtOnce) {
  Start(8ms);
  const auto start = time_->Now();
  time_->on_wait = [&] {
    const FakeTime::Wait wait = time_->waits.back();
    // The engine waits for a result, and the next step, if any is left, is submitted already.
    if (wait.from > start + 1100ms && log_.num_prompts.size() < 200)
      EXPECT_GT(log_.free, wait.until + 8ms);
  };
  EXPECT_EQ(Send(1, 200).get(), Expected(1, 200));
  engine_.reset();
  EXPECT_GT(time_->Now(), start + 1500ms);
  EXPECT_EQ(log_.num_pauses, 0);
}

TEST_F(LatePlanningTest, TheEngineSleepsDuringStepsThatDoNotOverlap) {
  Start(8ms, /*overlaps=*/false);
  time_->on_wait = [&] { EXPECT_EQ(time_->waits.back().until, log_.free - 1ms); };
  EXPECT_EQ(Send(1, 40).get(), Expected(1, 40));
  engine_.reset();
  EXPECT_GE(time_->waits.size(), 38u);  // all but the prompt's step and the first that is recorded
}

TEST_F(LatePlanningTest, PlanningDoesNotWaitDuringShortSteps) {
  Start(400us);
  EXPECT_EQ(Send(1, 40).get(), Expected(1, 40));
  engine_.reset();
  EXPECT_TRUE(time_->waits.empty());
}

TEST_F(LatePlanningTest, ShutdownEndsTheWait) {
  Start(8ms);
  std::promise<void> waits;
  time_->waits_for_stop = true;
  time_->on_wait = [&] { waits.set_value(); };
  auto answer = Send(1, 40);
  waits.get_future().wait();
  engine_.reset();
  EXPECT_TRUE(answer.get().empty());  // rejected: the engine is shutting down
  EXPECT_EQ(time_->waits.size(), 1u);
}

}  // namespace
}  // namespace nereid::llm
