// Parameters that an executor does not support are refused by their names.
#include "backends/llm_core/adapter/executor_requirements.h"

#include <gtest/gtest.h>

#include "tests/backends/llm_core/fake_executor.h"

namespace nereid::llm {
namespace {

constexpr ExecutorLimits kLimits = {.vocab_size = 100,
                                    .max_positions = 64,
                                    .max_num_sequences = 2,
                                    .max_num_tokens = 8,
                                    .block_size = 8,
                                    .num_blocks = 4};

std::string ErrorOf(const LlmParameters& parameters, const ExecutorFeatures& features = {}) {
  testing::FakeExecutor executor(kLimits, features);
  const Status checked = CheckExecutor(parameters, executor);
  return checked.ok() ? "" : std::string(checked.message());
}

TEST(ExecutorRequirementsTest, PlainParametersNeedNothing) {
  EXPECT_EQ(ErrorOf({}), "");
}

TEST(ExecutorRequirementsTest, TheErrorNamesTheParameterThatNeedsTheFeature) {
  LlmParameters parameters;
  parameters.is_batch_invariant = true;
  EXPECT_EQ(ErrorOf(parameters, {.batch_invariant = true}), "");
  EXPECT_EQ(ErrorOf(parameters).rfind("parameter 'batch_invariant' is true", 0), 0u);
  parameters = {};
  parameters.lora.prefetch_folder = "/adapters";
  EXPECT_EQ(ErrorOf(parameters, {.adapters = true}), "");
  EXPECT_EQ(ErrorOf(parameters).rfind("parameter 'lora_prefetch_dir'", 0), 0u);
  parameters = {};
  parameters.speculative_decoding = "ngram";
  parameters.speculation.kind = DrafterKind::kNgram;
  EXPECT_EQ(ErrorOf(parameters, {.draft_tokens = true}), "");
  EXPECT_EQ(ErrorOf(parameters).rfind("parameter 'speculative_decoding' is 'ngram'", 0), 0u);
  parameters = {};
  parameters.num_sink_tokens = 4;
  EXPECT_EQ(ErrorOf(parameters),
            "parameter 'sink_token_length' is 4: this backend has no attention sinks, expected 0");
  parameters = {};
  parameters.tiers.host_bytes = 1;
  EXPECT_EQ(ErrorOf(parameters).rfind("parameter 'kv_cache_host_memory_bytes'", 0), 0u);
}

}  // namespace
}  // namespace nereid::llm
