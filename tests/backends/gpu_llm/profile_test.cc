// The profile of a model's steps: it has every operator, and the tokens do not change.
#include <gmock/gmock.h>

#include "backends/gpu_llm/gpu_executor.h"
#include "tests/backends/cpu_reference/golden.h"
#include "tests/backends/gpu_llm/gpu_test.h"

namespace nereid::gpu {
namespace {

using ::testing::HasSubstr;

class ProfileTest : public testing::GpuTest<::testing::TestWithParam<const char*>> {};

TEST_P(ProfileTest, EveryOperatorHasALineAndTokensDoNotChange) {
  const std::string directory = cpu::testing::FindTiny(GetParam());
  if (directory.empty()) GTEST_SKIP() << "no test data for " << GetParam();
  const llm::Checkpoint checkpoint = std::move(*llm::Checkpoint::Open(directory));
  std::vector<std::string> tables;
  std::vector<std::vector<int32_t>> answers;
  for (const int32_t profile_steps : {0, 3}) {
    GpuExecutorOptions options;
    options.max_num_sequences = 8;
    options.max_num_tokens = 256;
    options.max_cache_tokens = 4096;
    options.uses_graphs = false;
    options.profile_steps = profile_steps;
    // Profiled steps are not fused, and fused steps add in another order.
    options.fuses_decode = false;
    options.on_profile = [&](const std::string& table) { tables.push_back(table); };
    auto executor = GpuExecutor::Create(std::move(*llm::ReadDecoder(checkpoint, true)), options);
    ASSERT_TRUE(executor.ok()) << executor.status().message();
    EXPECT_EQ((*executor)->features().overlap, profile_steps == 0);
    std::vector<int32_t> tokens, table(16);
    for (int32_t i = 0; i < 16; ++i) table[i] = i;
    for (int32_t i = 0; i < 100; ++i) tokens.push_back(i * 37 % 509);
    const llm::SamplingParams greedy;
    int32_t num_cached = 0;
    for (int step = 0; step < 9; ++step) {
      llm::StepBatch batch;
      batch.token_ids.assign(tokens.begin() + num_cached, tokens.end());
      llm::BatchEntry& sequence = batch.entries.emplace_back();
      sequence.num_tokens = static_cast<int32_t>(batch.token_ids.size());
      sequence.num_cached = num_cached;
      sequence.block_table = table;
      sequence.num_logits = 1;
      sequence.samples = true;
      sequence.sampling = {&greedy, tokens, 100, {}};
      num_cached = static_cast<int32_t>(tokens.size());
      ASSERT_TRUE((*executor)->Submit(batch).ok());
      const auto result = (*executor)->Collect();
      ASSERT_TRUE(result.ok()) << result.status().message();
      tokens.push_back(result->tokens[0].id);
    }
    answers.push_back(tokens);
  }
  EXPECT_EQ(answers[0], answers[1]);
  ASSERT_EQ(tables.size(), 3u);
  EXPECT_THAT(tables[0], HasSubstr("steps with prompts: 1, 100.0 tokens each"));
  EXPECT_THAT(tables[0], HasSubstr("attention, prompts"));
  EXPECT_THAT(tables[2], HasSubstr("decode steps: 3, 1.0 tokens each"));
  const bool has_experts = std::string_view(GetParam()) == "mixtral";
  for (const char* name :
       {"(empty)", "embedding", "q, k, v", "rope and cache", "attention, decoding",
        "attention's output", has_experts ? "experts' gate and up" : "gate and up",
        has_experts ? "experts' down" : "down", "LM head", "most likely token"}) {
    EXPECT_THAT(tables[2], HasSubstr(std::string("  ") + name + " ")) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, ProfileTest,
                         ::testing::Values("llama", "gpt2", "gemma2", "mixtral", "mistral-swa"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace nereid::gpu
