// The graphs of decode steps of every kind. Steps of one kind and size launch the same kernels with
// the same addresses, whatever their sequences. [engine thread]
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "backends/gpu_llm/recorded_steps.h"
#include "backends/gpu_llm/step_graphs.h"
#include "backends/gpu_llm/step_plan.h"

namespace nereid::gpu {

class DecodeGraphs {
 public:
  // The arguments are those of StepGraphs.
  DecodeGraphs(PeerGroup* group, const std::function<void(const std::string&)>& on_warning)
      : graphs_{StepGraphs(group, on_warning), StepGraphs(group, on_warning),
                StepGraphs(group, on_warning), StepGraphs(group, on_warning),
                StepGraphs(group, on_warning), StepGraphs(group, on_warning)} {}

  // `is_fused`: one launch computes the layers of the step.
  StepGraphs& Of(const StepShape& shape, bool is_fused) {
    return graphs_[static_cast<size_t>(KindOf(shape, is_fused))];
  }
  // Drops the graphs of steps with LoRA adapters. Steps in flight may still run.
  void ForgetAdapters() {
    for (const StepKind kind : {StepKind::kAdapters, StepKind::kAdapterChains})
      graphs_[static_cast<size_t>(kind)].Forget();
  }

  int64_t num_launches() const { return Sum(&StepGraphs::num_launches); }
  // Sizes that are launched kernel by kernel because their recording failed.
  int64_t num_refused() const { return Sum(&StepGraphs::num_refused); }
  // For tests: makes every later recording fail halfway.
  void FailRecordings() {
    for (StepGraphs& graphs : graphs_) graphs.FailRecordings();
  }

 private:
  int64_t Sum(int64_t (StepGraphs::*count)() const) const {
    int64_t sum = 0;
    for (const StepGraphs& graphs : graphs_) sum += (graphs.*count)();
    return sum;
  }

  std::array<StepGraphs, kNumStepKinds> graphs_;
};

}  // namespace nereid::gpu
