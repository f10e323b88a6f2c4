// Fixture of an engine on the GPU with a tiny model, for tests that send requests.
#pragma once

#include <future>
#include <random>

#include "backends/gpu_llm/gpu_executor.h"
#include "backends/gpu_llm/sharded_executor.h"
#include "backends/llm_core/engine/engine.h"
#include "tests/backends/cpu_reference/golden.h"
#include "tests/backends/gpu_llm/gpu_test.h"

namespace nereid::gpu::testing {

struct Answer {
  llm::TokenIds ids;
  std::vector<float> log_probs;  // if the request wants them
  llm::FinishReason finish = llm::FinishReason::kNone;
  Status error;
};

class AnswerSink : public llm::OutputSink {
 public:
  // With several sequences, the answer is that of the sequence that ends last.
  AnswerSink(std::promise<Answer> promise, int32_t cancel_after, int32_t num_sequences = 1)
      : promise_(std::move(promise)), cancel_after_(cancel_after), num_left_(num_sequences) {}
  bool IsCancelled() const override { return cancel_after_ > 0 && seen_ >= cancel_after_; }
  void OnOutput(const llm::SequenceOutput& output) override {
    seen_ = static_cast<int32_t>(output.ids.size());
    if (output.finish == llm::FinishReason::kNone || --num_left_ > 0) return;
    promise_.set_value({llm::TokenIds(output.ids.begin(), output.ids.end()),
                        {output.log_probs.begin(), output.log_probs.end()},
                        output.finish,
                        {}});
  }
  void OnError(const Status& status) override {
    promise_.set_value({{}, {}, llm::FinishReason::kNone, status});
  }

 private:
  std::promise<Answer> promise_;
  const int32_t cancel_after_;
  int32_t num_left_;
  int32_t seen_ = 0;
};

class GpuEngineTest : public GpuTest<::testing::Test> {
 protected:
  void SetUp() override {
    GpuTest<::testing::Test>::SetUp();
    if (IsSkipped()) return;
    directory_ = cpu::testing::FindTiny("llama");
    if (directory_.empty()) GTEST_SKIP() << "no test data for llama";
  }
  GpuExecutorOptions Options(const llm::Checkpoint& checkpoint) const {
    GpuExecutorOptions options = options_;
    options.checkpoint = &checkpoint;
    options.max_num_sequences = 16;
    options.max_num_tokens = 128;
    options.max_cache_tokens = max_cache_tokens_;
    return options;
  }
  llm::DecoderModel ReadModel(const llm::Checkpoint& checkpoint) const {
    llm::DecoderModel model = std::move(*llm::ReadDecoder(checkpoint));
    EXPECT_TRUE(llm::LimitAttention(windows_, num_sinks_, model.spec).ok());
    return model;
  }
  std::unique_ptr<GpuExecutor> MakeExecutor() {
    const llm::Checkpoint checkpoint = std::move(*llm::Checkpoint::Open(directory_));
    auto executor = GpuExecutor::Create(ReadModel(checkpoint), Options(checkpoint));
    EXPECT_TRUE(executor.ok()) << executor.status().message();
    if (!executor.ok()) return nullptr;
    vocab_size_ = (*executor)->limits().vocab_size;
    executor_ = executor->get();
    return std::move(*executor);
  }
  // The same on a pair of GPUs; executor_ is that of GPU 0.
  std::unique_ptr<ShardedExecutor> MakeSharded() {
    const llm::Checkpoint checkpoint = std::move(*llm::Checkpoint::Open(directory_));
    auto executor = ShardedExecutor::Create(ReadModel(checkpoint), Options(checkpoint), kPair);
    EXPECT_TRUE(executor.ok()) << executor.status().message();
    if (!executor.ok()) return nullptr;
    vocab_size_ = (*executor)->limits().vocab_size;
    executor_ = &(*executor)->rank(0);
    return std::move(*executor);
  }
  // The executor of the engine.
  virtual std::unique_ptr<llm::Executor> MakeTarget() { return MakeExecutor(); }
  void Start(bool overlaps) {
    llm::EngineOptions engine;
    engine.overlaps_steps = overlaps;
    engine.scheduler = scheduler_;
    std::unique_ptr<llm::Executor> executor = MakeTarget();
    ASSERT_NE(executor, nullptr);
    engine_ = std::make_unique<llm::Engine>(std::move(engine), std::move(executor));
  }
  std::future<Answer> Send(std::unique_ptr<llm::GenerationRequest> request,
                           int32_t cancel_after = 0) {
    std::promise<Answer> promise;
    std::future<Answer> answer = promise.get_future();
    request->sink =
        std::make_unique<AnswerSink>(std::move(promise), cancel_after, request->num_sequences);
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
  int64_t max_cache_tokens_ = 4096;
  std::string windows_;    // max_attention_window_size
  int32_t num_sinks_ = 0;  // sink_token_length
  llm::SchedulerOptions scheduler_{.prefix_cache = true};
  int32_t vocab_size_ = 0;
  GpuExecutor* executor_ = nullptr;
  std::unique_ptr<llm::Engine> engine_;
};

}  // namespace nereid::gpu::testing
