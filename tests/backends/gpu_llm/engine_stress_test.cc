// The engine on the GPU under faults and overload. A broken device fails the engine but not the
// process, and no request or block is lost.
#include <algorithm>

#include "backends/cpu_reference/cpu_executor.h"
#include "tests/backends/gpu_llm/engine_fixture.h"

namespace nereid::gpu {
namespace {

using testing::Answer;
using testing::GpuEngineTest;

TEST_F(GpuEngineTest, ManyRequestsAndCancellationsReleaseEverything) {
  Start(true);
  if (HasFatalFailure()) return;
  std::mt19937 random(4);
  size_t before = 0, after = 0, total = 0;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::future<Answer>> answers;
    for (int i = 0; i < 2048; ++i) {
      answers.push_back(Send(RandomRequest(random), i % 3 == 0 ? i % 20 + 1 : 0));
    }
    for (auto& answer : answers) EXPECT_TRUE(answer.get().error.ok());
    while (engine_->stats().num_used_blocks > 0) std::this_thread::yield();
    EXPECT_TRUE(engine_->health().ok()) << engine_->health().message();
    ASSERT_EQ(cudaMemGetInfo(round == 0 ? &before : &after, &total), cudaSuccess);
  }
  EXPECT_EQ(before, after);
}

// Random requests of all kinds for a given time, in a cache that is too small for them.
TEST_F(GpuEngineTest, ASoakOfRandomRequestsLosesNothing) {
  const char* given = std::getenv("NEREID_SOAK_REQUESTS");
  const int num_requests = given == nullptr ? 10000 : std::atoi(given);
  for (const llm::CapacityPolicy policy :
       {llm::CapacityPolicy::kMaxUtilization, llm::CapacityPolicy::kGuaranteedNoEvict}) {
    scheduler_.policy = policy;
    scheduler_.mixed_step_tokens = 32;
    max_cache_tokens_ = 16 * 64;
    Start(true);
    if (HasFatalFailure()) return;
    std::mt19937 random(8);
    size_t free_before = 0, free_after = 0, total = 0;
    int num_sent = 0, num_cancelled = 0;
    while (num_sent < num_requests / 2) {
      std::vector<std::future<Answer>> answers;
      for (int i = 0; i < 200; ++i, ++num_sent) {
        auto request = RandomRequest(random);
        if (random() % 10 == 0) request->num_sequences = static_cast<int32_t>(random() % 3 + 2);
        if (random() % 10 == 0 && request->num_sequences == 1)
          request->returns_prompt_log_probs = true;
        if (random() % 3 == 0)  // prompts with a common prefix
          for (size_t t = 0; t < request->prompt.size(); ++t)
            request->prompt[t] = static_cast<int32_t>(t % 50);
        answers.push_back(
            Send(std::move(request), static_cast<int32_t>(random() % 3 == 0 ? 5 : 0)));
      }
      for (auto& answer : answers) {
        const Answer got = answer.get();
        EXPECT_TRUE(got.error.ok()) << got.error.message();
        num_cancelled += got.finish == llm::FinishReason::kCancelled;
      }
      while (engine_->stats().num_used_blocks > 0) std::this_thread::yield();
      ASSERT_TRUE(engine_->health().ok())
          << engine_->health().message();  // also checks every block's reference count
      ASSERT_EQ(cudaMemGetInfo(num_sent <= 1000 ? &free_before : &free_after, &total), cudaSuccess);
    }
    EXPECT_GT(num_cancelled, num_sent / 20);
    if (policy == llm::CapacityPolicy::kMaxUtilization) {
      EXPECT_GT(engine_->stats().counts.num_preemptions, 0);
    }
    if (num_sent > 1000) {
      EXPECT_EQ(free_before, free_after);
    }
    engine_.reset();
  }
}

TEST_F(GpuEngineTest, AFailedStepAnswersEveryRequestAndAnotherEngineServes) {
  Start(true);
  if (HasFatalFailure()) return;
  executor_->FailAt(executor_->num_steps() + 20);
  std::mt19937 random(5);
  std::vector<std::future<Answer>> answers;
  for (int i = 0; i < 50; ++i) {
    auto request = RandomRequest(random);
    request->stop.end_ids.clear();
    request->stop.max_tokens = 100;
    answers.push_back(Send(std::move(request)));
  }
  for (auto& answer : answers) {
    EXPECT_NE(answer.get().error.message().find("CUDA: "), std::string::npos);
  }
  EXPECT_FALSE(engine_->health().ok());
  engine_.reset();
  Start(true);
  if (HasFatalFailure()) return;
  EXPECT_TRUE(Send(RandomRequest(random)).get().error.ok());
}

TEST_F(GpuEngineTest, StepsThatCanNotBeRecordedAreLaunchedKernelByKernel) {
  std::vector<std::string> warnings;
  options_.on_warning = [&](const std::string& what) { warnings.push_back(what); };
  std::vector<std::vector<llm::TokenIds>> all;
  for (const bool fails : {false, true}) {
    std::unique_ptr<GpuExecutor> executor = MakeExecutor();
    ASSERT_NE(executor, nullptr);
    if (fails) executor->FailRecordings();
    engine_ = std::make_unique<llm::Engine>(llm::EngineOptions{}, std::move(executor));
    std::mt19937 random(3);
    std::vector<llm::TokenIds>& answers = all.emplace_back();
    for (int i = 0; i < 10; ++i) {
      const Answer answer = Send(RandomRequest(random)).get();
      EXPECT_TRUE(answer.error.ok()) << answer.error.message();
      answers.push_back(answer.ids);
    }
    EXPECT_TRUE(engine_->health().ok());
    while (engine_->stats().counts.num_running > 0) std::this_thread::yield();
    const llm::EngineStats stats = engine_->stats();
    EXPECT_EQ(stats.num_recorded_steps > 0, !fails);
    EXPECT_EQ(stats.num_failed_recordings, fails ? 1 : 0);  // of one row
    if (fails) {  // further sizes, about which the log has no other line
      std::vector<std::future<Answer>> together;
      for (int i = 0; i < 12; ++i) {
        auto request = RandomRequest(random);
        request->stop.end_ids.clear();
        request->stop.max_tokens = 30;
        together.push_back(Send(std::move(request)));
      }
      for (auto& answer : together) EXPECT_TRUE(answer.get().error.ok());
      while (engine_->stats().counts.num_running > 0) std::this_thread::yield();
      EXPECT_GT(engine_->stats().num_failed_recordings, 1);
    }
    engine_.reset();
  }
  EXPECT_EQ(all[0], all[1]);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("a decode step of 1 rows can not be recorded as a CUDA graph"),
            std::string::npos)
      << warnings[0];
}

TEST_F(GpuEngineTest, ACacheThatDoesNotFitIsRefusedWithTheNumbers) {
  const llm::Checkpoint checkpoint = std::move(*llm::Checkpoint::Open(directory_));
  GpuExecutorOptions options;
  options.max_cache_tokens = int64_t{1} << 40;
  const auto executor = GpuExecutor::Create(std::move(*llm::ReadDecoder(checkpoint)), options);
  ASSERT_FALSE(executor.ok());
  EXPECT_EQ(executor.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(executor.status().message().find("17179869184 blocks x "), std::string::npos)
      << executor.status().message();
}

TEST_F(GpuEngineTest, WeightsThatDoNotFitAreRefusedWithTheNumbers) {
  const llm::Checkpoint checkpoint = std::move(*llm::Checkpoint::Open(directory_));
  llm::DecoderModel model = std::move(*llm::ReadDecoder(checkpoint));
  model.spec.intermediate_size = 1 << 28;
  GpuExecutorOptions options;
  options.dummy = DummyWeights{};
  const auto executor = GpuExecutor::Create(std::move(model), options);
  ASSERT_FALSE(executor.ok());
  EXPECT_EQ(executor.status().code(), StatusCode::kUnavailable);
  const std::string message(executor.status().message());
  EXPECT_NE(message.find("out of GPU memory: "), std::string::npos) << message;
  EXPECT_NE(message.find(" are free"), std::string::npos) << message;
}

// Forwards steps, until one step names blocks far outside of the cache.
class CorruptingExecutor : public llm::Executor {
 public:
  CorruptingExecutor(std::unique_ptr<llm::Executor> executor, int64_t stray_at)
      : executor_(std::move(executor)), stray_at_(stray_at) {}
  const llm::ExecutorLimits& limits() const override { return executor_->limits(); }
  llm::ExecutorFeatures features() const override { return executor_->features(); }
  Status Submit(const llm::StepBatch& batch) override {
    if (++num_steps_ != stray_at_) return executor_->Submit(batch);
    const std::vector<int32_t> blocks(64, 1 << 24);
    llm::StepBatch stray = batch;
    for (llm::BatchEntry& sequence : stray.entries) sequence.block_table = blocks;
    return executor_->Submit(stray);
  }
  Result<llm::StepResult> Collect() override { return executor_->Collect(); }

 private:
  std::unique_ptr<llm::Executor> executor_;
  const int64_t stray_at_;
  int64_t num_steps_ = 0;
};

// The fault invalidates the CUDA context of the whole process, so the test runs in its own process.
TEST_F(GpuEngineTest, AnIllegalAccessAnswersEveryRequestAndTheProcessLives) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto survive = [this] {
    const auto require = [](bool holds, const std::string& what) {
      if (holds) return;
      std::fprintf(stderr, "broken: %s\n", what.c_str());
      std::_Exit(1);
    };
    auto checkpoint =
        std::make_shared<const llm::Checkpoint>(std::move(*llm::Checkpoint::Open(directory_)));
    llm::Engine on_cpu({}, std::move(*cpu::CpuExecutor::Create(
                               checkpoint, std::move(*llm::ReadDecoder(*checkpoint)), {})));
    auto gpu = MakeExecutor();
    require(gpu != nullptr, "no executor");
    engine_ = std::make_unique<llm::Engine>(
        llm::EngineOptions{}, std::make_unique<CorruptingExecutor>(std::move(gpu), 20));
    std::mt19937 random(5);
    std::vector<std::future<Answer>> answers;
    for (int i = 0; i < 50; ++i) {
      auto request = RandomRequest(random);
      request->stop.end_ids.clear();
      request->stop.max_tokens = 100;
      answers.push_back(Send(std::move(request)));
    }
    for (auto& answer : answers) {
      const std::string said(answer.get().error.message());
      require(said.find("CUDA: ") != std::string::npos &&
                  said.find("illegal memory access") != std::string::npos,
              "answer: " + said);
    }
    require(!engine_->health().ok(), "the engine is healthy");
    engine_.reset();
    auto again =
        GpuExecutor::Create(std::move(*llm::ReadDecoder(*checkpoint)), {.max_cache_tokens = 4096});
    require(!again.ok(), "the context is back");
    std::fprintf(stderr, "a load after it: %s\n", std::string(again.status().message()).c_str());
    auto request = RandomRequest(random);
    std::promise<Answer> promise;
    std::future<Answer> answer = promise.get_future();
    request->sink = std::make_unique<testing::AnswerSink>(std::move(promise), 0);
    require(on_cpu.Enqueue(request).ok() && answer.get().error.ok(), "the CPU's engine stopped");
    std::_Exit(0);
  };
  EXPECT_EXIT(survive(), ::testing::ExitedWithCode(0), "a load after it: ");
}

}  // namespace
}  // namespace nereid::gpu
