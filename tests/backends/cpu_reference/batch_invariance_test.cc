// A request's result does not depend on the rest of the batch. Token ids and log probabilities are
// bit-identical for any other requests, chunk size, number of threads and capacity policy.
#include <gtest/gtest.h>

#include <future>
#include <random>

#include "backends/cpu_reference/cpu_executor.h"
#include "backends/llm_core/engine/engine.h"
#include "tests/backends/cpu_reference/golden.h"
#include "tests/backends/cpu_reference/scored_answer.h"
#include "tests/support/sanitizer.h"

namespace nereid::cpu {
namespace {

using testing::ScoredAnswer;

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

std::future<ScoredAnswer> Send(llm::Engine& engine, const BatchWork& work,
                               int32_t cancel_after = 0) {
  auto request = std::make_unique<llm::GenerationRequest>();
  request->prompt = work.prompt;
  request->stop.max_tokens = work.max_tokens;
  if (work.samples) {
    request->sampling.top_k = 40;
    request->sampling.top_p = 0.95f;
    request->sampling.temperature = 0.8f;
    request->sampling.repetition_penalty = 1.2f;
    request->sampling.seed = work.seed;
  }
  return testing::SendScored(engine, std::move(request), cancel_after);
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
  const std::vector<BatchWork> work = RandomWork(kHasSanitizer ? 16 : 40);
  std::vector<ScoredAnswer> alone;
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
    std::vector<std::future<ScoredAnswer>> answers, disturbing;
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
    std::vector<ScoredAnswer> alone;
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
    std::vector<std::future<ScoredAnswer>> answers;
    for (const BatchWork& item : work) answers.push_back(Send(*engine, item));
    for (size_t i = 0; i < work.size(); ++i) EXPECT_EQ(answers[i].get(), alone[i]) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, BatchInvarianceTest,
                         ::testing::Values("llama", "mistral-swa", "gpt2", "gpt_bigcode", "mixtral",
                                           "gemma2", "qwen3", "llama-mqa-bias"),
                         testing::kNameOfCheckpoint);

}  // namespace
}  // namespace nereid::cpu
