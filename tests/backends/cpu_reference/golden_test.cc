// The forward pass compared with Hugging Face: logits within 1e-4 and the same greedy tokens, for
// every architecture, on every instruction set of this machine.
#include <gtest/gtest.h>

#include "backends/cpu_reference/cpu_executor.h"
#include "tests/backends/cpu_reference/golden.h"
#include "tests/support/sanitizer.h"

namespace nereid::cpu {
namespace {

using testing::FindTiny;
using testing::GoldenPrompt;
using testing::ReadGolden;

class GoldenTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    directory_ = FindTiny(GetParam());
    if (directory_.empty()) GTEST_SKIP() << "no test data for " << GetParam();
  }

  std::unique_ptr<CpuExecutor> Load(const OpTable& ops) {
    Result<llm::Checkpoint> checkpoint = llm::Checkpoint::Open(directory_);
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    auto shared = std::make_shared<const llm::Checkpoint>(std::move(*checkpoint));
    Result<llm::DecoderModel> model = llm::ReadDecoder(*shared, /*supports_quantized=*/true);
    EXPECT_TRUE(model.ok()) << model.status().message();
    CpuExecutorOptions options;
    options.num_threads = 2;
    options.max_num_sequences = 4;
    options.ops = &ops;
    Result<std::unique_ptr<CpuExecutor>> executor =
        CpuExecutor::Create(shared, std::move(*model), options);
    EXPECT_TRUE(executor.ok()) << executor.status().message();
    return std::move(*executor);
  }

  // Runs tokens of one sequence from position num_cached. Returns the logits of the last
  // `num_logits`.
  static std::span<const float> Run(CpuExecutor& executor, std::span<const int32_t> tokens,
                                    int32_t num_cached, int32_t num_logits) {
    std::vector<int32_t> table(64);
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i * 7 % 61);
    for (size_t i = 61; i < table.size(); ++i) table[i] = static_cast<int32_t>(i);
    llm::StepBatch batch;
    batch.token_ids.assign(tokens.begin(), tokens.end());
    llm::BatchEntry& sequence = batch.entries.emplace_back();
    sequence.num_tokens = static_cast<int32_t>(tokens.size());
    sequence.num_cached = num_cached;
    sequence.block_table = table;
    sequence.num_logits = num_logits;
    EXPECT_TRUE(executor.Submit(batch).ok());
    EXPECT_TRUE(executor.Collect().ok());
    return executor.logits();
  }

  std::string directory_;
};

TEST_P(GoldenTest, LogitsAndGreedyTokensEqualThoseOfTransformers) {
  std::vector<GoldenPrompt> prompts = ReadGolden(directory_);
  ASSERT_FALSE(prompts.empty());
  // Builds with sanitizers, which are slow, try half of the prompts with each instruction set.
  if (kHasSanitizer) prompts.resize((prompts.size() + 1) / 2);
  for (const OpTable* ops : AvailableOps()) {
    SCOPED_TRACE(std::string(ops->isa));
    const std::unique_ptr<CpuExecutor> executor = Load(*ops);
    ASSERT_NE(executor, nullptr);
    const int64_t vocab = executor->limits().vocab_size;
    for (const GoldenPrompt& prompt : prompts) {
      const auto length = static_cast<int32_t>(prompt.ids.size());
      std::span<const float> logits = Run(*executor, prompt.ids, 0, length);
      ASSERT_EQ(static_cast<int64_t>(logits.size()), length * vocab);
      for (int32_t position = 0; position < length; ++position) {
        EXPECT_EQ(llm::ArgMax(logits.subspan(position * vocab, vocab)), prompt.all_argmax[position])
            << "position " << position << " of " << length;
      }
      const std::span<const float> last = logits.subspan((length - 1) * vocab, vocab);
      for (size_t i = 0; i < prompt.logits_first32.size(); ++i) {
        EXPECT_NEAR(last[i], prompt.logits_first32[i], 1e-4f) << "logit " << i;
      }
      int32_t token = llm::ArgMax(last);
      for (size_t step = 0; step < prompt.greedy.size(); ++step) {
        ASSERT_EQ(token, prompt.greedy[step]) << "prompt of " << length << ", step " << step;
        token = llm::ArgMax(
            Run(*executor, std::span(&token, 1), length + static_cast<int32_t>(step), 1));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, GoldenTest, ::testing::ValuesIn(testing::AllCheckpoints()),
                         testing::kNameOfCheckpoint);

}  // namespace
}  // namespace nereid::cpu
