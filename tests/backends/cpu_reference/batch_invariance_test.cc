// A request's result does not depend on the rest of the batch. Token ids and log probabilities are
// bit-identical for any other requests, chunk size, number of threads and capacity policy.
#include <gtest/gtest.h>

#include <future>
#include <random>

#include "backends/cpu_reference/cpu_executor.h"
#include "backends/llm_core/engine/engine.h"
#include "tests/backends/cpu_reference/golden.h"

namespace nereid::cpu {
namespace {

struct BatchAnswer {
  std::vector<int32_t> ids;
  std::vector<float> log_probs;
  bool operator==(const BatchAnswer&) const = default;
};

class PromiseSink : public llm::OutputSink {
 public:
  explicit PromiseSink(std::promise<BatchAnswer> promise, int32_t cancel_after = -1)
      : promise_(std::move(promise)), cancel_after_(cancel_after) {}

  bool IsCancelled() const override { return cancel_after_ >= 0 && num_seen_ >= cancel_after_; }
  void OnOutput(const llm::SequenceOutput& output) override {
    num_seen_ = static_cast<int32_t>(output.ids.size());
    if (output.finish == llm::FinishReason::kNone) return;
    promise_.set_value({{output.ids.begin(), output.ids.end()},
                        {output.log_probs.begin(), output.log_probs.end()}});
  }
  void OnError(const Status& status) override {
    ADD_FAILURE() << status.message();
    promise_.set_value({});
  }

 private:
  std::promise<BatchAnswer> promise_;
  const int32_t cancel_after_;
  int32_t num_seen_ = 0;
};

struct BatchWork {
  std::vector<int32_t> prompt;
  int32_t max_tokens = 0;
  bool samples = false;
  uint64_t seed = 0;
};

std::vector<BatchWork> RandomWork(int count) {
  std::mt19937 random(5);
  std::vector<BatchWork> work(count);
  for (BatchWork& item : work) {
    item.prompt.resize(random() % 90 + 1);
    for (int32_t& id : item.prompt) id = static_cast<int32_t>(random() % 512);
    for (size_t i = 0; i < item.prompt.size() && i < 40; ++i) {  // some share a prefix
      if (&item - work.data() < count / 2) item.prompt[i] = static_cast<int32_t>(i);
    }
    item.max_tokens = static_cast<int32_t>(random() % 30 + 1);
    item.samples = random() % 2 == 0;
    item.seed = random();
  }
  return work;
}

std::future<BatchAnswer> Send(llm::Engine& engine, const BatchWork& work,
                              int32_t cancel_after = -1) {
  auto request = std::make_unique<llm::GenerationRequest>();
  request->prompt = work.prompt;
  request->stop.max_tokens = work.max_tokens;
  request->sampling.returns_log_probs = true;
  if (work.samples) {
    request->sampling.top_k = 40;
    request->sampling.top_p = 0.95f;
    request->sampling.temperature = 0.8f;
    request->sampling.repetition_penalty = 1.2f;
    request->sampling.seed = work.seed;
  }
  std::promise<BatchAnswer> promise;
  std::future<BatchAnswer> answer = promise.get_future();
  request->sink = std::make_unique<PromiseSink>(std::move(promise), cancel_after);
  const Status queued = engine.Enqueue(request);
  EXPECT_TRUE(queued.ok()) << queued.message();
  return answer;
}

struct BatchSetting {
  int32_t num_threads = 1;
  int32_t max_num_sequences = 16;
  int32_t max_num_tokens = 64;
  int64_t max_cache_tokens = 0;
  llm::CapacityPolicy policy = llm::CapacityPolicy::kGuaranteedNoEvict;
  bool prefix_cache = false;
  KvFormat kv_format = KvFormat::kFloat;
  int32_t window = 0;  // replaces that of the model
  int32_t num_sinks = 0;
};

std::unique_ptr<llm::Engine> StartBatchEngine(const std::string& directory,
                                              const BatchSetting& setting) {
  Result<llm::Checkpoint> opened = llm::Checkpoint::Open(directory);
  auto checkpoint = std::make_shared<const llm::Checkpoint>(std::move(*opened));
  CpuExecutorOptions options;
  options.num_threads = setting.num_threads;
  options.max_num_sequences = setting.max_num_sequences;
  options.max_num_tokens = setting.max_num_tokens;
  options.max_cache_tokens = setting.max_cache_tokens;
  auto model = llm::ReadDecoder(*checkpoint);
  options.kv_format = setting.kv_format;
  for (llm::LayerSpec& layer : model->spec.layers) {
    if (setting.window > 0) layer.sliding_window = setting.window;
  }
  model->spec.num_sink_tokens = setting.num_sinks;
  Result<std::unique_ptr<CpuExecutor>> executor =
      CpuExecutor::Create(std::move(checkpoint), std::move(*model), options);
  EXPECT_TRUE(executor.ok());
  EXPECT_TRUE((*executor)->features().batch_invariant);
  llm::EngineOptions engine_options;
  engine_options.scheduler.policy = setting.policy;
  engine_options.scheduler.prefix_cache = setting.prefix_cache;
  return std::make_unique<llm::Engine>(std::move(engine_options), std::move(*executor));
}

class BatchInvarianceTest : public ::testing::TestWithParam<const char*> {};

TEST_P(BatchInvarianceTest, ResultsAreTheSameAloneInABatchOrPreempted) {
  const std::string directory = testing::FindTiny(GetParam());
  if (directory.empty()) GTEST_SKIP() << "no test data for " << GetParam();
  const std::vector<BatchWork> work = RandomWork(40);
  std::vector<BatchAnswer> alone;
  {
    const auto engine = StartBatchEngine(directory, {});
    for (const BatchWork& item : work) alone.push_back(Send(*engine, item).get());
  }
  constexpr auto kEvict = llm::CapacityPolicy::kMaxUtilization;
  for (const BatchSetting& setting :
       {BatchSetting{}, BatchSetting{.num_threads = 3, .max_num_tokens = 16},
        BatchSetting{.num_threads = 2, .max_num_sequences = 5, .max_num_tokens = 7},
        BatchSetting{.num_threads = 3, .max_num_sequences = 40, .max_num_tokens = 500},
        BatchSetting{.num_threads = 2, .max_cache_tokens = 160, .policy = kEvict},
        BatchSetting{.max_num_tokens = 50,
        .max_cache_tokens = 320,
        .policy = kEvict,
        .prefix_cache = true}}) {
    const auto engine = StartBatchEngine(directory, setting);
    std::vector<std::future<BatchAnswer>> answers, disturbing;
    for (size_t i = 0; i < work.size(); ++i) {
      answers.push_back(Send(*engine, work[i]));
      if (i % 4 == 0) disturbing.push_back(Send(*engine, work[work.size() - 1 - i], 3));
      if (i % 8 == 7) answers[i - 4].wait();  // later requests arrive while others run
    }
    for (size_t i = 0; i < work.size(); ++i) EXPECT_EQ(answers[i].get(), alone[i]) << i;
    for (auto& answer : disturbing) answer.wait();
  }
}

// KV formats with one byte per element, and windows with sinks, change the results. The results do
// not depend on other requests, chunks or preemption either.
TEST(KvSettingsTest, ResultsAreTheSameAloneInABatchOrPreempted) {
  const std::string directory = testing::FindTiny("llama");
  if (directory.empty()) GTEST_SKIP() << "no test data for llama";
  const std::vector<BatchWork> work = RandomWork(16);
  for (const BatchSetting& setting :
       {BatchSetting{.kv_format = KvFormat::kInt8}, BatchSetting{.kv_format = KvFormat::kFp8},
        BatchSetting{.window = 40, .num_sinks = 5},
        BatchSetting{.kv_format = KvFormat::kInt8, .window = 40, .num_sinks = 20}}) {
    std::vector<BatchAnswer> alone;
    {
      const auto engine = StartBatchEngine(directory, setting);
      for (const BatchWork& item : work) alone.push_back(Send(*engine, item).get());
    }
    BatchSetting tight = setting;
    tight.num_threads = 2;
    tight.max_num_tokens = 23;
    tight.max_cache_tokens = 224;
    tight.policy = llm::CapacityPolicy::kMaxUtilization;
    tight.prefix_cache = true;
    const auto engine = StartBatchEngine(directory, tight);
    std::vector<std::future<BatchAnswer>> answers;
    for (const BatchWork& item : work) answers.push_back(Send(*engine, item));
    for (size_t i = 0; i < work.size(); ++i) EXPECT_EQ(answers[i].get(), alone[i]) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, BatchInvarianceTest,
                         ::testing::Values("llama", "mistral-swa", "gpt2", "gpt_bigcode", "mixtral",
                                           "gemma2", "qwen3", "llama-mqa-bias"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace nereid::cpu
