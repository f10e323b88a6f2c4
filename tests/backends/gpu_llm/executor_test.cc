// The executor against the CPU's on the tiny checkpoints, and what it gives back.
#include "gpu_llm/gpu_executor.h"

#include "../cpu_reference/golden.h"
#include "cpu_reference/cpu_executor.h"
#include "gpu_test.h"

namespace nereid::gpu {
namespace {

using cpu::testing::FindTiny;
using cpu::testing::GoldenPrompt;
using cpu::testing::ReadGolden;
using testing::RelativeError;

class ExecutorTest : public testing::GpuTest<::testing::TestWithParam<const char*>> {
 protected:
  void SetUp() override {
    testing::GpuTest<::testing::TestWithParam<const char*>>::SetUp();
    if (IsSkipped()) return;
    directory_ = FindTiny(GetParam());
    if (directory_.empty()) GTEST_SKIP() << "no test data for " << GetParam();
  }

  std::unique_ptr<GpuExecutor> Load(bool uses_graphs = true) {
    const llm::Checkpoint checkpoint = std::move(*llm::Checkpoint::Open(directory_));
    GpuExecutorOptions options;
    options.max_num_sequences = 8;
    options.max_num_tokens = 256;
    options.uses_graphs = uses_graphs;
    auto executor = GpuExecutor::Create(std::move(*llm::ReadDecoder(checkpoint)), options);
    EXPECT_TRUE(executor.ok()) << executor.status().message();
    return executor.ok() ? std::move(*executor) : nullptr;
  }
  std::unique_ptr<cpu::CpuExecutor> LoadCpu() {
    auto checkpoint =
        std::make_shared<const llm::Checkpoint>(std::move(*llm::Checkpoint::Open(directory_)));
    auto model = llm::ReadDecoder(*checkpoint);
    cpu::CpuExecutorOptions options;
    options.num_threads = 2;
    return std::move(*cpu::CpuExecutor::Create(checkpoint, std::move(*model), options));
  }

  // Logits of the last `num_logits` of `tokens`, which follow `num_cached` others.
  template <typename AnyExecutor>
  std::vector<float> Run(AnyExecutor& executor, std::span<const int32_t> tokens, int32_t num_cached,
                         int32_t num_logits) {
    std::vector<int32_t> table(executor.limits().num_blocks);
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(table.size() - 1 - i);
    llm::Batch batch;
    batch.token_ids.assign(tokens.begin(), tokens.end());
    llm::BatchSequence& sequence = batch.sequences.emplace_back();
    sequence.num_tokens = static_cast<int32_t>(tokens.size());
    sequence.num_cached = num_cached;
    sequence.block_table = table;
    sequence.num_logits = num_logits;
    const llm::SamplingParams greedy;
    if (num_logits == 1) {
      sequence.samples = true;
      sequence.sampling = {&greedy, tokens, 0, {}};
    }
    const Status submitted = executor.Submit(batch);
    EXPECT_TRUE(submitted.ok()) << submitted.message();
    auto collected = executor.Collect();
    EXPECT_TRUE(collected.ok()) << collected.status().message();
    if (!collected.ok()) return {};
    if constexpr (std::is_same_v<AnyExecutor, GpuExecutor>) {
      std::vector<float> logits = *executor.ReadLogits();
      if (num_logits == 1) {
        EXPECT_EQ(collected->tokens[0].id, llm::ArgMax(logits));
      }
      return logits;
    } else {
      return {executor.logits().begin(), executor.logits().end()};
    }
  }

  std::string directory_;
};

// bf16 weights, activations and cache against float throughout: 2^-9 relative a rounding, some
// thirty roundings in three layers, and rows of 64 values, over which little averages out.
constexpr double kLogitTolerance = 8e-2;

TEST_P(ExecutorTest, LogitsAreThoseOfTheCpuWithinBf16) {
  const std::unique_ptr<GpuExecutor> gpu = Load();
  ASSERT_NE(gpu, nullptr);
  const std::unique_ptr<cpu::CpuExecutor> cpu = LoadCpu();
  int64_t compared = 0, equal = 0;
  for (const GoldenPrompt& prompt : ReadGolden(directory_)) {
    const auto length = static_cast<int32_t>(prompt.ids.size());
    const int32_t rows = std::min(length, 100);
    const auto expected = Run(*cpu, prompt.ids, 0, rows);
    EXPECT_LT(RelativeError(Run(*gpu, prompt.ids, 0, rows), expected), kLogitTolerance)
        << "prompt of " << length;
    // In two chunks, then token by token along the recorded answer.
    const std::span<const int32_t> ids = prompt.ids;
    if (length > 40) {
      Run(*gpu, ids.first(37), 0, 0);
      Run(*gpu, ids.subspan(37), 37, 1);
    }
    for (size_t step = 0; step + 1 < prompt.greedy.size(); ++step) {
      const std::span<const int32_t> token =
          std::span<const int32_t>(prompt.greedy).subspan(step, 1);
      const auto at = length + static_cast<int32_t>(step);
      const auto wanted = Run(*cpu, token, at, 1);
      const auto got = Run(*gpu, token, at, 1);
      ASSERT_EQ(got.size(), wanted.size());
      EXPECT_LT(RelativeError(got, wanted), kLogitTolerance) << "step " << step;
      ++compared;
      equal += llm::ArgMax(got) == prompt.greedy[step + 1];
    }
  }
  // Near ties may fall the other way.
  EXPECT_GE(equal, compared * 9 / 10) << "of " << compared;
  EXPECT_GT(gpu->num_graph_steps(), 0);
}

TEST_P(ExecutorTest, ARecordedStepEqualsTheSameStepRun) {
  const std::unique_ptr<GpuExecutor> recorded = Load(true), run = Load(false);
  ASSERT_TRUE(recorded != nullptr && run != nullptr);
  const std::vector<int32_t> prompt = {5, 6, 7, 8, 9, 10, 11};
  for (GpuExecutor* executor : {recorded.get(), run.get()}) Run(*executor, prompt, 0, 1);
  for (int32_t step = 0; step < 5; ++step) {
    const std::vector<int32_t> token = {40 + step};
    EXPECT_LT(RelativeError(Run(*recorded, token, 7 + step, 1), Run(*run, token, 7 + step, 1)),
              1e-2);
  }
}

TEST_P(ExecutorTest, MemoryIsGivenBack) {
  Load();  // what the CUDA context keeps for itself
  size_t before = 0, after = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&before, &total), cudaSuccess);
  {
    const std::unique_ptr<GpuExecutor> executor = Load();
    ASSERT_NE(executor, nullptr);
    Run(*executor, std::vector<int32_t>{1, 2, 3}, 0, 1);
    Run(*executor, std::vector<int32_t>{4}, 3, 1);
  }
  ASSERT_EQ(cudaMemGetInfo(&after, &total), cudaSuccess);
  EXPECT_LT(static_cast<double>(before) - static_cast<double>(after), 64e6);
}

INSTANTIATE_TEST_SUITE_P(Tiny, ExecutorTest,
                         ::testing::Values("llama", "llama-linear-rope", "llama-mha", "llama-tied",
                                           "llama-yarn", "llama3.1-rope", "mistral", "mistral-swa",
                                           "phi3", "phi3-swa", "qwen2", "qwen3"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name)
                             c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

class RefusalTest : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(RefusalTest, WhatIsNotThereIsNamedAtLoad) {
  const std::string directory = FindTiny(GetParam().first);
  if (directory.empty()) GTEST_SKIP() << "no test data for " << GetParam().first;
  const llm::Checkpoint checkpoint = std::move(*llm::Checkpoint::Open(directory));
  const auto executor = GpuExecutor::Create(std::move(*llm::ReadDecoder(checkpoint)), {});
  ASSERT_FALSE(executor.ok());
  EXPECT_EQ(executor.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(executor.status().message().find(GetParam().second), std::string::npos)
      << executor.status().message();
}

INSTANTIATE_TEST_SUITE_P(Tiny, RefusalTest,
                         ::testing::Values(std::pair("gpt2", "gpt2"),
                                           std::pair("mixtral", "mixture of experts"),
                                           std::pair("gemma2", "gemma2"),
                                           std::pair("gpt_neox", "parallel residual"),
                                           std::pair("llama-mqa-bias", "bias")),
                         [](const auto& info) {
                           std::string name = info.param.first;
                           for (char& c : name)
                             c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

}  // namespace
}  // namespace nereid::gpu
