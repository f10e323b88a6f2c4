// Which decode steps can share recordings, and the step sizes that are recorded, waiting, or
// refused. A size whose recording failed once is never recorded. Used by StepGraphs and
// DecodeGraphs. No CUDA here. [engine thread]
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "backends/gpu_llm/step_plan.h"

namespace nereid::gpu {

// Decode steps whose kernels differ: graphs of one kind do not serve another one.
enum class StepKind : int32_t {
  kPlain,         // also fused steps with draft tokens
  kTrees,         // with draft trees, without adapters
  kChains,        // attention reads a context for several tokens of a sequence
  kHiddenStates,  // fused, and a kernel behind it copies hidden states
  kAdapters,      // with LoRA adapters, whichever
  kAdapterChains,
};
inline constexpr int kNumStepKinds = 6;

// `is_fused`: one launch computes the layers of the step.
inline StepKind KindOf(const StepShape& shape, bool is_fused) {
  if (shape.has_trees) return StepKind::kTrees;
  if (shape.has_adapters) return shape.has_chains ? StepKind::kAdapterChains : StepKind::kAdapters;
  if (shape.has_chains && !is_fused) return StepKind::kChains;
  return shape.returns_hidden_states && is_fused ? StepKind::kHiddenStates : StepKind::kPlain;
}

// Steps of one kind and size launch the same kernels with the same grids.
struct StepSize {
  StepSize(int32_t rows, int32_t items = 0)  // NOLINT(google-explicit-constructor)
      : num_rows(rows), num_decode(items) {}
  explicit StepSize(const StepShape& shape) : StepSize(shape.num_tokens, shape.num_decode) {}
  auto operator<=>(const StepSize&) const = default;
  int32_t num_rows, num_decode;  // as in StepShape
};

template <typename Graph>
class RecordedSteps {
 public:
  // Null if the size is not recorded.
  const Graph* Find(const StepSize& size) const {
    const auto found = graphs_.find(size);
    return found != graphs_.end() && found->second ? &*found->second : nullptr;
  }
  // True if the size is neither recorded nor refused.
  bool IsUntried(const StepSize& size) const { return !graphs_.contains(size); }
  // Counts a step of an untried size. True from the `min_steps`-th step on.
  bool IsDue(const StepSize& size, int32_t min_steps) { return ++num_steps_[size] >= min_steps; }
  void Keep(const StepSize& size, Graph graph) { graphs_.insert_or_assign(size, std::move(graph)); }
  void Refuse(const StepSize& size) {
    graphs_.insert_or_assign(size, std::nullopt);
    ++num_refused_;
  }
  int64_t num_refused() const { return num_refused_; }

 private:
  std::map<StepSize, std::optional<Graph>> graphs_;  // nullopt: refused
  std::map<StepSize, int32_t> num_steps_;            // steps that could have been recorded
  int64_t num_refused_ = 0;
};

}  // namespace nereid::gpu
