// Steps of sequences that all use the same KV blocks.
#include "backends/gpu_llm/step_warm_up.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "backends/gpu_llm/model/algorithm_trial.h"
#include "backends/gpu_llm/step_plan.h"

namespace nereid::gpu {
namespace {

using Clock = std::chrono::steady_clock;

// Of a size. The LM head is one product of a step, and has some candidates to try.
constexpr int kMostSteps = 64, kTypicalSteps = 16, kTimedSteps = 3;
constexpr std::chrono::seconds kMostDraftTime{10};
// The rows of each sequence of a warm-up step with drafts. It has more where sequences would be too
// many.
constexpr int32_t kUsualRows = 8;
// Steps with more rows than this are left for later. Decode steps with few rows have no algorithms
// to choose, and steps that have prompts and decoding sequences are seldom larger.
constexpr int32_t kFewDecodeRows = 64, kFewPromptRows = 512;

// A step whose sequences have nothing in the cache and share their blocks.
class WarmUpStep {
 public:
  explicit WarmUpStep(std::span<const int32_t> blocks) : blocks_(blocks) {
    drawn_.top_k = 40;
    drawn_.top_p = 0.9f;
  }
  WarmUpStep(const WarmUpStep&) = delete;
  WarmUpStep& operator=(const WarmUpStep&) = delete;

  // A sequence of so many tokens whose last one is sampled. One token: a sequence that decodes.
  // `draws`: it samples at random, else the most likely token.
  llm::BatchEntry& AddSequence(int32_t num_tokens, bool draws) {
    const auto index = static_cast<int32_t>(batch_.entries.size());
    llm::BatchEntry& entry = batch_.entries.emplace_back();
    entry.slot = index;
    entry.first_token = static_cast<int32_t>(batch_.token_ids.size());
    entry.num_tokens = num_tokens;
    entry.num_logits = 1;
    entry.block_table = blocks_;
    entry.num_prompt = std::max(1, num_tokens - 1);
    entry.samples = true;
    entry.sampling = {draws ? &drawn_ : &greedy_, output_, 0, {}};
    batch_.token_ids.resize(batch_.token_ids.size() + static_cast<size_t>(num_tokens));
    return entry;
  }

  // Until `num_typical` typical steps in a row, or one that replays a graph.
  Status RunUntilTypical(llm::Executor& executor, int num_typical, Clock::time_point end) const {
    for (int step = 0, typical = 0; step < kMostSteps && typical < num_typical; ++step) {
      if (Clock::now() > end) return {};
      const int64_t num_recorded = executor.counts().num_recorded_steps;
      NEREID_RETURN_IF_ERROR(executor.Submit(batch_));
      NEREID_ASSIGN_OR_RETURN(const llm::StepResult result, executor.Collect());
      if (executor.counts().num_recorded_steps > num_recorded) return {};
      typical = result.is_typical ? typical + 1 : 0;
    }
    return {};
  }
  // The least of some durations, in ms.
  Result<float> Time(llm::Executor& executor) const {
    Clock::duration least = Clock::duration::max();
    for (int step = 0; step < kTimedSteps; ++step) {
      const auto began = Clock::now();
      NEREID_RETURN_IF_ERROR(executor.Submit(batch_));
      NEREID_RETURN_IF_ERROR(executor.Collect().status());
      least = std::min(least, Clock::now() - began);
    }
    return std::chrono::duration<float, std::milli>(least).count();
  }

 private:
  const std::span<const int32_t> blocks_;
  const std::array<int32_t, 1> output_ = {0};
  const llm::SamplingParams greedy_;
  llm::SamplingParams drawn_;
  llm::StepBatch batch_;
};

// The first KV blocks, as many as `num_tokens` tokens take.
std::vector<int32_t> FirstBlocks(const llm::ExecutorLimits& limits, int32_t num_tokens) {
  std::vector<int32_t> blocks((num_tokens + limits.block_size - 1) / limits.block_size);
  std::iota(blocks.begin(), blocks.end(), 0);
  return blocks;
}

int32_t LongestSequence(const llm::ExecutorLimits& limits) {
  return static_cast<int32_t>(
      std::min<int64_t>(limits.max_positions, int64_t{limits.num_blocks} * limits.block_size));
}

// Steps of [least, most] rows with as many sequences, which decode.
Status WarmUpDecoding(llm::Executor& executor, int32_t least, int32_t most, Clock::time_point end) {
  const std::vector<int32_t> blocks = FirstBlocks(executor.limits(), 1);
  for (int32_t next = least; next <= most && Clock::now() < end;) {
    const int32_t size = StepPlanner::PaddedBatch(next);
    WarmUpStep step(blocks);
    for (int32_t i = 0; i < std::min(size, most); ++i) step.AddSequence(1, i % 2 == 1);
    NEREID_RETURN_IF_ERROR(step.RunUntilTypical(executor, kTypicalSteps, end));
    next = size + 1;
  }
  return {};
}

// Steps of [least, most] rows: one sequence that decodes, if sequences are more than one, and
// prompts.
Status WarmUpPrompts(llm::Executor& executor, int32_t least, int32_t most, Clock::time_point end) {
  const llm::ExecutorLimits& limits = executor.limits();
  const int32_t longest = LongestSequence(limits);
  const std::vector<int32_t> blocks = FirstBlocks(limits, longest);
  for (int32_t next = least; next <= most && Clock::now() < end;) {
    const int32_t size = TrialRows(next);
    int32_t rows = std::min(size, most), num_left = limits.max_num_sequences;
    WarmUpStep step(blocks);
    if (num_left > 1) {
      step.AddSequence(1, true);
      --rows, --num_left;
    }
    for (; rows > 0 && num_left > 0; --num_left) {
      const int32_t num_tokens = std::min(rows, longest);
      step.AddSequence(num_tokens, false);
      rows -= num_tokens;
    }
    NEREID_RETURN_IF_ERROR(step.RunUntilTypical(executor, 1, end));
    next = size + 1;
  }
  return {};
}

}  // namespace

Status WarmUpSteps(llm::Executor& executor, std::chrono::milliseconds most_time) {
  const llm::ExecutorLimits& limits = executor.limits();
  const Clock::time_point end = Clock::now() + most_time;
  const int32_t most_rows = limits.max_num_tokens, few_rows = std::min(most_rows, kFewPromptRows);
  const int32_t most_decode = std::min(limits.max_num_sequences, most_rows);
  const int32_t few_decode = std::min(most_decode, kFewDecodeRows);
  NEREID_RETURN_IF_ERROR(WarmUpPrompts(executor, 2, few_rows, end));
  NEREID_RETURN_IF_ERROR(WarmUpDecoding(executor, 1, few_decode, end));
  NEREID_RETURN_IF_ERROR(WarmUpPrompts(executor, few_rows + 1, most_rows, end));
  return WarmUpDecoding(executor, few_decode + 1, most_decode, end);
}

Result<std::vector<llm::StepCostPoint>> WarmUpDraftSteps(llm::Executor& executor,
                                                         const llm::DraftStepForm& form) {
  const llm::ExecutorLimits& limits = executor.limits();
  const int32_t most_each = std::min(1 + form.max_drafts, LongestSequence(limits));
  const auto most = static_cast<int32_t>(
      std::min<int64_t>(limits.max_num_sampled, int64_t{limits.max_num_sequences} * most_each));
  const std::vector<int32_t> blocks = FirstBlocks(limits, most_each);
  std::vector<int32_t> parents(static_cast<size_t>(most_each));
  std::iota(parents.begin(), parents.end(), -1);  // a tree with one path
  std::vector<llm::StepCostPoint> costs;
  const auto end = Clock::now() + kMostDraftTime;
  for (int32_t next = 2; next <= most && most_each > 1;) {
    const int32_t size = StepPlanner::PaddedDrafts(next, limits.max_num_sampled);
    const int32_t num_rows = std::min(size, most);
    const int32_t num_sequences =
        std::clamp((num_rows + kUsualRows - 1) / kUsualRows, (num_rows + most_each - 1) / most_each,
                   limits.max_num_sequences);
    WarmUpStep step(blocks);
    for (int32_t i = 0; i < num_sequences; ++i) {
      const int32_t count = num_rows / num_sequences + (i < num_rows % num_sequences ? 1 : 0);
      llm::BatchEntry& entry = step.AddSequence(count, false);
      entry.num_prompt = 1;
      entry.num_logits = count;
      entry.num_draft_tokens = count - 1;
      if (form.are_trees) entry.draft_parents = std::span(parents).first(count - 1);
      entry.returns_hidden_states = form.returns_hidden_states;
    }
    NEREID_RETURN_IF_ERROR(step.RunUntilTypical(executor, kTypicalSteps, Clock::time_point::max()));
    NEREID_ASSIGN_OR_RETURN(const float ms, step.Time(executor));
    costs.push_back({num_rows, ms});
    if (Clock::now() > end) return std::vector<llm::StepCostPoint>();
    next = size + 1;
  }
  return costs;
}

}  // namespace nereid::gpu
