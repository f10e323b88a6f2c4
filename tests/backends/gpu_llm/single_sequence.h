// Runs one sequence through an executor, for tests of logits.
#pragma once

#include <gtest/gtest.h>

#include <numeric>
#include <span>
#include <type_traits>
#include <vector>

#include "backends/gpu_llm/gpu_executor.h"
#include "backends/gpu_llm/sharded_executor.h"

namespace nereid::gpu::testing {

// Returns the logits of the last `num_logits` of `tokens`, which follow `num_cached` other tokens.
// If it is one, its token is also sampled. Cache blocks are used from the last one down.
template <typename AnyExecutor>
std::vector<float> RunSequence(AnyExecutor& executor, std::span<const int32_t> tokens,
                               int32_t num_cached, int32_t num_logits) {
  std::vector<int32_t> table(executor.limits().num_blocks);
  std::iota(table.rbegin(), table.rend(), 0);
  llm::StepBatch batch;
  batch.token_ids.assign(tokens.begin(), tokens.end());
  llm::BatchEntry& sequence = batch.entries.emplace_back();
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
  std::vector<float> logits;
  if constexpr (std::is_same_v<AnyExecutor, ShardedExecutor>) {
    logits = *executor.rank(0).ReadLogits();
  } else if constexpr (std::is_same_v<AnyExecutor, GpuExecutor>) {
    logits = *executor.ReadLogits();
  } else {
    return {executor.logits().begin(), executor.logits().end()};
  }
  if (num_logits == 1) {
    EXPECT_EQ(collected->tokens[0].id, llm::ArgMax(logits));
  }
  return logits;
}

}  // namespace nereid::gpu::testing
