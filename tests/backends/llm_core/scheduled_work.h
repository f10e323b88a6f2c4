// Sequences and steps for tests of the scheduler.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "backends/llm_core/engine/scheduler.h"
#include "backends/llm_core/lora/lora_adapter.h"
#include "tests/backends/llm_core/fake_executor.h"

namespace nereid::llm::testing {

inline ExecutorLimits SmallLimits() {
  return {.vocab_size = 1000,
          .max_positions = 64,
          .max_num_sequences = 6,
          .max_num_tokens = 16,
          .block_size = 4,
          .num_blocks = 24};
}

struct Work {
  TokenIds prompt;
  int32_t max_tokens = 1;
  int32_t num_sequences = 1;
  int32_t priority = 0;
  uint64_t salt = 0;
  std::shared_ptr<const LoraAdapter> adapter;
};

inline std::unique_ptr<Sequence> MakeSequence(const Work& work) {
  auto request = std::make_shared<GenerationRequest>();
  request->prompt = work.prompt;
  request->stop.max_tokens = work.max_tokens;
  request->num_sequences = work.num_sequences;
  request->priority = work.priority;
  request->cache_salt = work.salt;
  request->adapter = work.adapter;
  std::vector<std::unique_ptr<Sequence>> sequences;
  for (int32_t i = 0; i < work.num_sequences; ++i) {
    auto& sequence = sequences.emplace_back(std::make_unique<Sequence>());
    sequence->request = request;
    sequence->token_ids = work.prompt;
    sequence->num_prompt = static_cast<int32_t>(work.prompt.size());
    sequence->index = i;
    if (i == 0) continue;
    sequence->own_sampling = std::make_unique<SamplingParams>();
    sequence->own_sampling->top_k = 2;
    sequence->own_sampling->seed = static_cast<uint64_t>(i);
  }
  std::unique_ptr<Sequence> first = std::move(sequences[0]);
  for (int32_t i = 1; i < work.num_sequences; ++i) {
    first->siblings.push_back(std::move(sequences[i]));
  }
  return first;
}

inline std::unique_ptr<Sequence> MakeSequence(const TokenIds& prompt, int32_t max_tokens) {
  return MakeSequence(Work{prompt, max_tokens});
}

// Runs one step. Finished sequences are removed and appended to `done`.
inline void Step(Scheduler& scheduler, FakeExecutor& executor,
                 std::vector<std::unique_ptr<Sequence>>& done) {
  StepBatch batch;
  scheduler.Schedule(batch);
  ASSERT_FALSE(batch.entries.empty()) << "work is left, but nothing was planned";
  ASSERT_LE(static_cast<int32_t>(batch.token_ids.size()), executor.limits().max_num_tokens);
  ASSERT_TRUE(scheduler.CheckInvariants().ok()) << scheduler.CheckInvariants().message();
  const Status submitted = executor.Submit(batch);
  ASSERT_TRUE(submitted.ok()) << submitted.message();
  const StepResult result = *executor.Collect();
  scheduler.MarkComputed();
  for (size_t i = 0; i < batch.entries.size(); ++i) {
    if (batch.entries[i].samples) {
      scheduler.scheduled()[i]->token_ids.push_back(result.tokens[i].id);
    }
  }
  auto finished = scheduler.Remove([](const Sequence& sequence) {
    return sequence.num_output() >= sequence.request->stop.max_tokens;
  });
  for (auto& sequence : finished) done.push_back(std::move(sequence));
  ASSERT_TRUE(scheduler.CheckInvariants().ok()) << scheduler.CheckInvariants().message();
}

inline void ExpectSequentialTokens(const Sequence& sequence, const ExecutorLimits& limits) {
  TokenIds tokens(sequence.token_ids.begin(), sequence.token_ids.begin() + sequence.num_prompt);
  const uint64_t seed = static_cast<uint64_t>(sequence.index);
  for (int32_t i = 0; i < sequence.num_output(); ++i) {
    tokens.push_back(NextToken(tokens, limits, seed));
  }
  EXPECT_EQ(tokens, sequence.token_ids);
}

}  // namespace nereid::llm::testing
