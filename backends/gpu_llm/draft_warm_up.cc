// Steps of sequences that all use the same KV blocks.
#include "backends/gpu_llm/draft_warm_up.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <vector>

#include "backends/gpu_llm/step_plan.h"

namespace nereid::gpu {
namespace {

// Of a size. The LM head is one product of a step, and has some candidates to try.
constexpr int kMostSteps = 64, kTypicalSteps = 16, kTimedSteps = 3;
constexpr std::chrono::seconds kMostTime{10};
// The rows of each sequence of a warm-up step. It has more where sequences would be too many.
constexpr int32_t kUsualRows = 8;

// A step of sequences with drafts and nothing before them.
class DraftStep {
 public:
  DraftStep(const llm::DraftStepForm& form, int32_t num_rows, int32_t num_sequences,
            std::span<const int32_t> blocks)
      : tokens_(static_cast<size_t>(num_rows)), parents_(static_cast<size_t>(num_rows)) {
    std::iota(parents_.begin(), parents_.end(), -1);  // a tree with one path
    batch_.token_ids = tokens_;
    for (int32_t i = 0, first = 0; i < num_sequences; ++i) {
      const int32_t count = num_rows / num_sequences + (i < num_rows % num_sequences ? 1 : 0);
      llm::BatchEntry& entry = batch_.entries.emplace_back();
      entry.slot = i;
      entry.first_token = first;
      entry.num_tokens = entry.num_logits = count;
      entry.num_draft_tokens = count - 1;
      if (form.are_trees) entry.draft_parents = std::span(parents_).first(count - 1);
      entry.block_table = blocks;
      entry.num_prompt = 1;
      entry.samples = true;
      entry.sampling = {&greedy_, std::span(tokens_).first(1), 0, {}};
      entry.returns_hidden_states = form.returns_hidden_states;
      first += count;
    }
  }
  DraftStep(const DraftStep&) = delete;
  DraftStep& operator=(const DraftStep&) = delete;

  Status RunUntilTypical(llm::Executor& executor) const {
    for (int step = 0, num_typical = 0; step < kMostSteps && num_typical < kTypicalSteps; ++step) {
      const int64_t num_recorded = executor.counts().num_recorded_steps;
      NEREID_RETURN_IF_ERROR(executor.Submit(batch_));
      NEREID_ASSIGN_OR_RETURN(const llm::StepResult result, executor.Collect());
      if (executor.counts().num_recorded_steps > num_recorded) return {};
      num_typical = result.is_typical ? num_typical + 1 : 0;
    }
    return {};
  }
  // The least of some durations, in ms.
  Result<float> Time(llm::Executor& executor) const {
    using Clock = std::chrono::steady_clock;
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
  const llm::SamplingParams greedy_;
  std::vector<int32_t> tokens_, parents_;
  llm::StepBatch batch_;
};

}  // namespace

Result<std::vector<llm::StepCostPoint>> WarmUpDraftSteps(llm::Executor& executor,
                                                         const llm::DraftStepForm& form) {
  const llm::ExecutorLimits& limits = executor.limits();
  const int64_t cache_tokens = int64_t{limits.num_blocks} * limits.block_size;
  const auto most_each = static_cast<int32_t>(
      std::min<int64_t>({1 + form.max_drafts, limits.max_positions, cache_tokens}));
  const auto most = static_cast<int32_t>(
      std::min<int64_t>(limits.max_num_sampled, int64_t{limits.max_num_sequences} * most_each));
  std::vector<int32_t> blocks((most_each + limits.block_size - 1) / limits.block_size);
  std::iota(blocks.begin(), blocks.end(), 0);
  std::vector<llm::StepCostPoint> costs;
  const auto began = std::chrono::steady_clock::now();
  for (int32_t next = 2; next <= most && most_each > 1;) {
    const int32_t size = StepPlanner::PaddedDrafts(next, limits.max_num_sampled);
    const int32_t num_rows = std::min(size, most);
    const int32_t num_sequences =
        std::clamp((num_rows + kUsualRows - 1) / kUsualRows, (num_rows + most_each - 1) / most_each,
                   limits.max_num_sequences);
    const DraftStep step(form, num_rows, num_sequences, blocks);
    NEREID_RETURN_IF_ERROR(step.RunUntilTypical(executor));
    NEREID_ASSIGN_OR_RETURN(const float ms, step.Time(executor));
    costs.push_back({num_rows, ms});
    if (std::chrono::steady_clock::now() - began > kMostTime) {
      return std::vector<llm::StepCostPoint>();
    }
    next = size + 1;
  }
  return costs;
}

}  // namespace nereid::gpu
