// What fits the machine's memory.
#include "backends/cpu_reference/cpu_limits.h"

#include <gtest/gtest.h>

#include "backends/cpu_reference/cpu_executor.h"

namespace nereid::cpu {
namespace {

llm::DecoderSpec SmallSpec() {
  llm::DecoderSpec spec;
  spec.vocab_size = 100;
  spec.max_positions = 64;
  spec.num_heads = spec.num_kv_heads = 2;
  spec.head_dim = 8;
  spec.layers.resize(2);
  return spec;
}

TEST(CpuLimitsTest, TheCacheHoldsAllSequencesAtFullLength) {
  CpuExecutorOptions options;
  options.max_num_sequences = 3;
  options.max_num_tokens = 1;
  const auto limits = CpuLimits(SmallSpec(), options);
  ASSERT_TRUE(limits.ok()) << limits.status().message();
  EXPECT_EQ(limits->num_blocks, 3 * ((64 + limits->block_size - 1) / limits->block_size));
  EXPECT_EQ(limits->max_num_tokens, 3);  // one for each sequence at least
  EXPECT_EQ(limits->attention_window, 0);
}

TEST(CpuLimitsTest, AWindowCountsOnlyIfEveryLayerHasOne) {
  llm::DecoderSpec spec = SmallSpec();
  spec.layers[0].sliding_window = 16;
  EXPECT_EQ(CpuLimits(spec, {})->attention_window, 0);
  spec.layers[1].sliding_window = 32;
  EXPECT_EQ(CpuLimits(spec, {})->attention_window, 32);
}

TEST(CpuLimitsTest, ACacheBeyondTheMachinesMemoryIsRefused) {
  CpuExecutorOptions options;
  options.max_cache_tokens = int64_t{1} << 50;
  const auto limits = CpuLimits(SmallSpec(), options);
  ASSERT_FALSE(limits.ok());
  EXPECT_NE(limits.status().message().find("max_tokens_in_paged_kv_cache 1125899906842624"),
            std::string::npos)
      << limits.status().message();
}

}  // namespace
}  // namespace nereid::cpu
