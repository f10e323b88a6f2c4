// Outputs besides tokens: logits, log probabilities of prompts, beam candidates, and copies of
// blocks, against the CPU's executor.
#include "backends/cpu_reference/cpu_executor.h"
#include "backends/gpu_llm/gpu_executor.h"
#include "backends/gpu_llm/sharded_executor.h"
#include "tests/backends/cpu_reference/golden.h"
#include "tests/backends/gpu_llm/gpu_test.h"

namespace nereid::gpu {
namespace {

using cpu::testing::FindTiny;
using testing::RelativeError;

constexpr double kOutputLogitTolerance = 8e-2;  // as in executor_test.cc

// The parameter is the number of GPUs.
class OutputsTest : public testing::GpuTest<::testing::TestWithParam<int>> {
 protected:
  void SetUp() override {
    testing::GpuTest<::testing::TestWithParam<int>>::SetUp();
    if (IsSkipped()) return;
    if (GetParam() == 2 && !testing::HasPair())
      GTEST_SKIP() << "no two GPUs that reach each other's memory";
    const std::string directory = FindTiny("llama");
    if (directory.empty()) GTEST_SKIP() << "no test data for llama";
    auto checkpoint =
        std::make_shared<const llm::Checkpoint>(std::move(*llm::Checkpoint::Open(directory)));
    GpuExecutorOptions options;
    options.max_num_sequences = 8;
    options.max_num_tokens = 256;
    options.max_cache_tokens = 4096;
    if (GetParam() == 1) {
      gpu_ = std::move(*GpuExecutor::Create(std::move(*llm::ReadDecoder(*checkpoint)), options));
    } else {
      const std::vector<int32_t> devices = {0, 1};
      gpu_ = std::move(*ShardedExecutor::Create(*llm::ReadDecoder(*checkpoint), options, devices));
    }
    cpu::CpuExecutorOptions cpu_options;
    cpu_options.num_threads = 2;
    cpu_ = std::move(*cpu::CpuExecutor::Create(
        checkpoint, std::move(*llm::ReadDecoder(*checkpoint)), cpu_options));
    for (int32_t i = 0; i < 230; ++i) prompt_.push_back(i * 37 % 509);
    for (int32_t i = 0; i < 16; ++i) table_.push_back(i);
  }

  llm::BatchEntry& Add(llm::StepBatch& batch, std::span<const int32_t> tokens, int32_t slot) {
    llm::BatchEntry& sequence = batch.entries.emplace_back();
    sequence.slot = slot;
    sequence.first_token = static_cast<int32_t>(batch.token_ids.size());
    sequence.num_tokens = static_cast<int32_t>(tokens.size());
    sequence.num_logits = 1;
    sequence.samples = true;
    sequence.sampling = {&greedy_, tokens, 0, {}};
    batch.token_ids.insert(batch.token_ids.end(), tokens.begin(), tokens.end());
    return sequence;
  }
  static llm::StepResult Run(llm::Executor& executor, const llm::StepBatch& batch) {
    const Status submitted = executor.Submit(batch);
    EXPECT_TRUE(submitted.ok()) << submitted.message();
    auto result = executor.Collect();
    EXPECT_TRUE(result.ok()) << result.status().message();
    return std::move(*result);
  }

  std::unique_ptr<llm::Executor> gpu_;
  std::unique_ptr<cpu::CpuExecutor> cpu_;
  llm::SamplingParams greedy_;
  std::vector<int32_t> prompt_, table_;
};

TEST_P(OutputsTest, LikelyTokensAreTheFirstOfTheLogits) {
  const std::vector<int32_t> second = {40, 41, 42}, tables[2] = {{0, 1, 2, 3, 4, 5, 6, 7}, {9}};
  llm::StepBatch batch;
  llm::BatchEntry& first = Add(batch, std::span(prompt_).first(100), 0);
  first.block_table = tables[0];
  first.returns_logits = true;
  first.num_top_tokens = 20;
  Add(batch, second, 1).block_table = tables[1];
  const llm::StepResult result = Run(*gpu_, batch);
  ASSERT_EQ(result.top_tokens.size(), 2u);
  EXPECT_TRUE(result.top_tokens[1].empty());
  std::vector<llm::SampledToken> expected;
  llm::FindTopTokens(result.logits[0], 20, expected);
  ASSERT_EQ(result.top_tokens[0].size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(result.top_tokens[0][i].id, expected[i].id) << i;
    EXPECT_NEAR(result.top_tokens[0][i].log_prob, expected[i].log_prob, 1e-3) << i;
  }
  EXPECT_EQ(result.top_tokens[0][0].id, result.tokens[0].id);
}

// More rows than the device's logits buffer has, beside a sequence that only samples.
TEST_P(OutputsTest, LogitsAndLogProbsOfAPromptAreThoseOfTheCpu) {
  llm::StepResult results[2];
  llm::Executor* executors[] = {gpu_.get(), cpu_.get()};
  const std::vector<int32_t> second = {40, 41, 42};
  for (int i = 0; i < 2; ++i) {
    std::vector<int32_t> tables[2];
    for (int32_t b = 0; b < (i == 0 ? 8 : 32); ++b) {
      tables[0].push_back(b);
      tables[1].push_back(40 + b);
    }
    llm::StepBatch batch;
    Add(batch, prompt_, 0).block_table = tables[0];
    Add(batch, second, 1).block_table = tables[1];
    llm::BatchEntry& whole = batch.entries[0];
    whole.num_logits = static_cast<int32_t>(prompt_.size());
    whole.returns_logits = true;
    whole.next_ids = std::span<const int32_t>(prompt_).subspan(1);
    results[i] = Run(*executors[i], batch);
  }
  ASSERT_EQ(results[0].logits.size(), 2u);
  EXPECT_TRUE(results[0].logits[1].empty());
  ASSERT_EQ(results[0].logits[0].size(), results[1].logits[0].size());
  EXPECT_LT(RelativeError(results[0].logits[0], results[1].logits[0]), kOutputLogitTolerance);
  ASSERT_EQ(results[0].prompt_log_probs[0].size(), prompt_.size() - 1);
  EXPECT_TRUE(results[0].prompt_log_probs[1].empty());
  EXPECT_LT(RelativeError(results[0].prompt_log_probs[0], results[1].prompt_log_probs[0]), 2e-2);
  // The sampled token is that of the last row.
  const auto last = std::span(results[0].logits[0]).last(512);
  EXPECT_EQ(results[0].tokens[0].id, llm::ArgMax(last));
  EXPECT_NEAR(results[0].tokens[0].log_prob, llm::LogProb(last, results[0].tokens[0].id), 1e-3f);
}

TEST_P(OutputsTest, CandidatesAreTheMostLikelyInOrder) {
  llm::StepBatch batch;
  Add(batch, prompt_, 0).block_table = table_;
  batch.entries[0].num_candidates = 7;
  batch.entries[0].returns_logits = true;
  const llm::StepResult result = Run(*gpu_, batch);
  ASSERT_EQ(result.candidates.size(), 1u);
  ASSERT_EQ(result.candidates[0].size(), 7u);
  std::vector<float> logits = result.logits[0];
  for (const llm::SampledToken& token : result.candidates[0]) {
    EXPECT_EQ(token.id, llm::ArgMax(logits));
    EXPECT_NEAR(token.log_prob, llm::LogProb(result.logits[0], token.id), 1e-3f);
    logits[token.id] = -INFINITY;
  }
}

TEST_P(OutputsTest, ACopiedBlockEqualsItsSource) {
  llm::StepBatch batch;
  Add(batch, prompt_, 0).block_table = table_;
  Run(*gpu_, batch);
  std::vector<std::vector<float>> logits;
  const std::vector<int32_t> token = {99};
  for (const int32_t shift : {0, 20}) {
    std::vector<int32_t> table;
    for (const int32_t block : table_) table.push_back(block + shift);
    llm::StepBatch next;
    Add(next, token, 0).block_table = table;
    next.entries[0].num_cached = 230;
    next.entries[0].returns_logits = true;
    for (int32_t b = 0; shift > 0 && b < 4; ++b) next.block_copies.push_back({b, b + shift});
    logits.push_back(Run(*gpu_, next).logits[0]);
  }
  EXPECT_EQ(logits[0], logits[1]);
}

INSTANTIATE_TEST_SUITE_P(Gpus, OutputsTest, ::testing::Values(1, 2));

}  // namespace
}  // namespace nereid::gpu
