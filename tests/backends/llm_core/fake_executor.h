// An executor without a model: the "cache" remembers the token ids that were written, and the next
// token is a hash of all that a sequence can read through its block table. A block that is shared
// by mistake, freed too early or written at the wrong place changes the tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "llm_core/engine/executor.h"

namespace nereid::llm::testing {

inline uint64_t Hash(uint64_t state, uint64_t value) {
  state ^= value + 0x9e3779b97f4a7c15u + (state << 6) + (state >> 2);
  state *= 0xff51afd7ed558ccdu;
  return state ^ (state >> 33);
}

// What follows `tokens`.
inline int32_t NextToken(std::span<const int32_t> tokens, int32_t vocab_size) {
  uint64_t state = 1;
  for (const int32_t token : tokens) state = Hash(state, static_cast<uint64_t>(token));
  return static_cast<int32_t>(state % static_cast<uint64_t>(vocab_size));
}

class FakeExecutor : public Executor {
 public:
  explicit FakeExecutor(const ExecutorLimits& limits)
      : limits_(limits), cache_(static_cast<size_t>(limits.num_blocks) * limits.block_size, -1) {}

  const ExecutorLimits& limits() const override { return limits_; }

  Status Submit(const Batch& batch) override {
    if (on_submit) {
      Status status = on_submit(batch);
      if (!status.ok()) return status;
    }
    result_.tokens.assign(batch.sequences.size(), {});
    for (const BatchSequence& sequence : batch.sequences) Write(batch, sequence);
    for (size_t i = 0; i < batch.sequences.size(); ++i) {
      if (batch.sequences[i].samples) result_.tokens[i] = {Read(batch.sequences[i]), -0.5f};
    }
    ++num_steps;
    return {};
  }
  Result<StepResult> Collect() override { return result_; }

  std::function<Status(const Batch&)> on_submit;
  int num_steps = 0;

 private:
  int32_t& Slot(const BatchSequence& sequence, int32_t position) {
    const int32_t block = sequence.block_table[position / limits_.block_size];
    return cache_[block * limits_.block_size + position % limits_.block_size];
  }
  void Write(const Batch& batch, const BatchSequence& sequence) {
    for (int32_t i = 0; i < sequence.num_tokens; ++i) {
      Slot(sequence, sequence.num_cached + i) = batch.token_ids[sequence.first_token + i];
    }
  }
  int32_t Read(const BatchSequence& sequence) {
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < sequence.num_cached + sequence.num_tokens; ++i) {
      tokens.push_back(Slot(sequence, i));
    }
    return NextToken(tokens, limits_.vocab_size);
  }

  const ExecutorLimits limits_;
  std::vector<int32_t> cache_;
  StepResult result_;
};

}  // namespace nereid::llm::testing
