// The engine over the device: steps that overlap give the tokens of steps that do not; a broken
// device fails the engine and leaves the process alive.
#include "llm_core/engine/engine.h"

#include <future>
#include <random>

#include "../cpu_reference/golden.h"
#include "gpu_llm/gpu_executor.h"
#include "gpu_test.h"

namespace nereid::gpu {
namespace {

struct Answer {
  llm::TokenIds ids;
  llm::FinishReason finish = llm::FinishReason::kNone;
  Status error;
};

class AnswerSink : public llm::OutputSink {
 public:
  AnswerSink(std::promise<Answer> promise, int32_t cancel_after)
      : promise_(std::move(promise)), cancel_after_(cancel_after) {}
  bool IsCancelled() const override { return cancel_after_ > 0 && seen_ >= cancel_after_; }
  void OnOutput(const llm::Output& output) override {
    seen_ = static_cast<int32_t>(output.ids.size());
    if (output.finish == llm::FinishReason::kNone) return;
    promise_.set_value({llm::TokenIds(output.ids.begin(), output.ids.end()), output.finish, {}});
  }
  void OnError(const Status& status) override {
    promise_.set_value({{}, llm::FinishReason::kNone, status});
  }

 private:
  std::promise<Answer> promise_;
  const int32_t cancel_after_;
  int32_t seen_ = 0;
};

class GpuEngineTest : public testing::GpuTest<::testing::Test> {
 protected:
  void SetUp() override {
    testing::GpuTest<::testing::Test>::SetUp();
    if (IsSkipped()) return;
    directory_ = cpu::testing::FindTiny("llama");
    if (directory_.empty()) GTEST_SKIP() << "no test data for llama";
  }
  void Start(bool overlaps) {
    const llm::Checkpoint checkpoint = std::move(*llm::Checkpoint::Open(directory_));
    GpuExecutorOptions options = options_;
    options.max_num_sequences = 16;
    options.max_num_tokens = 128;
    options.max_cache_tokens = 4096;
    auto executor = GpuExecutor::Create(std::move(*llm::ReadDecoder(checkpoint)), options);
    ASSERT_TRUE(executor.ok()) << executor.status().message();
    vocab_size_ = (*executor)->limits().vocab_size;
    executor_ = executor->get();
    llm::EngineOptions engine;
    engine.overlaps_steps = overlaps;
    engine.scheduler.prefix_cache = true;
    engine_ = std::make_unique<llm::Engine>(std::move(engine), std::move(*executor));
  }
  std::future<Answer> Send(std::unique_ptr<llm::GenerationRequest> request,
                           int32_t cancel_after = 0) {
    std::promise<Answer> promise;
    std::future<Answer> answer = promise.get_future();
    request->sink = std::make_unique<AnswerSink>(std::move(promise), cancel_after);
    const Status queued = engine_->Enqueue(request);
    EXPECT_TRUE(queued.ok()) << queued.message();
    return answer;
  }
  std::unique_ptr<llm::GenerationRequest> RandomRequest(std::mt19937& random) {
    auto request = std::make_unique<llm::GenerationRequest>();
    request->prompt.resize(random() % 150 + 1);
    for (int32_t& id : request->prompt) id = static_cast<int32_t>(random() % vocab_size_);
    request->stop.max_tokens = static_cast<int32_t>(random() % 60 + 1);
    request->stop.end_ids = {static_cast<int32_t>(random() % vocab_size_)};
    if (random() % 2 == 0) {
      request->sampling.temperature = 0.8f;
      request->sampling.top_p = 0.9f;
      request->sampling.seed = random();
    }
    if (random() % 5 == 0) request->sampling.frequency_penalty = 0.3f;
    return request;
  }

  std::string directory_;
  GpuExecutorOptions options_;
  int32_t vocab_size_ = 0;
  GpuExecutor* executor_ = nullptr;
  std::unique_ptr<llm::Engine> engine_;
};

// One at a time, so that every step has the same shape in both.
TEST_F(GpuEngineTest, OverlappedStepsGiveTheSameTokens) {
  std::vector<std::vector<llm::TokenIds>> all;
  for (const bool overlaps : {false, true}) {
    Start(overlaps);
    if (HasFatalFailure()) return;
    std::mt19937 random(3);
    std::vector<llm::TokenIds>& answers = all.emplace_back();
    for (int i = 0; i < 40; ++i) answers.push_back(Send(RandomRequest(random)).get().ids);
    engine_.reset();
  }
  EXPECT_EQ(all[0], all[1]);
}

// In the invariant mode, bit by bit.
TEST_F(GpuEngineTest, ARequestGetsTheSameTokensAloneAndAmongOthers) {
  for (const CacheFormat format : {CacheFormat::kBf16, CacheFormat::kFp8}) {
    options_.is_invariant = true;
    options_.cache_format = format;
    Start(true);
    if (HasFatalFailure()) return;
    std::mt19937 random(6), again(6);
    std::vector<llm::TokenIds> alone;
    for (int i = 0; i < 40; ++i) alone.push_back(Send(RandomRequest(random)).get().ids);
    engine_.reset();
    Start(true);  // without the blocks of prompts that were there
    if (HasFatalFailure()) return;
    std::vector<std::future<Answer>> answers;
    for (int i = 0; i < 40; ++i) answers.push_back(Send(RandomRequest(again)));
    for (int i = 0; i < 40; ++i) EXPECT_EQ(answers[i].get().ids, alone[i]) << i;
    engine_.reset();
  }
}

TEST_F(GpuEngineTest, APrefixThatIsCachedGivesTheSameTokens) {
  for (const CacheFormat format : {CacheFormat::kBf16, CacheFormat::kFp8, CacheFormat::kInt8}) {
    options_.is_invariant = true;
    options_.cache_format = format;
    Start(true);
    if (HasFatalFailure()) return;
    std::mt19937 random(7);
    // Whole blocks; a block and one token; more than a chunk.
    for (const size_t length : {64, 65, 128, 191, 300}) {
      llm::TokenIds prompt(length);
      for (int32_t& id : prompt) id = static_cast<int32_t>(random() % vocab_size_);
      std::vector<llm::TokenIds> answers;
      for (int i = 0; i < 2; ++i) {
        auto request = std::make_unique<llm::GenerationRequest>();
        request->prompt = prompt;
        request->stop.max_tokens = 40;
        answers.push_back(Send(std::move(request)).get().ids);
      }
      EXPECT_EQ(answers[0].size(), 40u);
      EXPECT_EQ(answers[0], answers[1]) << length;
    }
    engine_.reset();
  }
}

TEST_F(GpuEngineTest, ManyRequestsAndCancellationsLeaveNothingBehind) {
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

TEST_F(GpuEngineTest, ACacheThatDoesNotFitIsRefusedWithTheArithmetic) {
  const llm::Checkpoint checkpoint = std::move(*llm::Checkpoint::Open(directory_));
  GpuExecutorOptions options;
  options.max_cache_tokens = int64_t{1} << 40;
  const auto executor = GpuExecutor::Create(std::move(*llm::ReadDecoder(checkpoint)), options);
  ASSERT_FALSE(executor.ok());
  EXPECT_EQ(executor.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(executor.status().message().find("17179869184 blocks x "), std::string::npos)
      << executor.status().message();
}

}  // namespace
}  // namespace nereid::gpu
