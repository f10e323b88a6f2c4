#include "backends/ensemble/plan_cache.h"

#include <algorithm>
#include <utility>

#include "base/inline_vector.h"
#include "nereid/error.h"

namespace nereid::ensemble {
namespace {

// Maximum number of cached plans. For further subsets of outputs, each request creates its plan
// anew.
constexpr size_t kMaxCachedPlans = 64;

std::shared_ptr<const Plan> MakeSharedPlan(const std::shared_ptr<const Graph>& graph,
                                           std::span<const int> outputs) {
  return std::make_shared<const Plan>(MakePlan(graph, outputs));
}

}  // namespace

PlanCache::PlanCache(std::shared_ptr<const Graph> graph, std::set<std::string> absent_outputs)
    : graph_(std::move(graph)), absent_outputs_(std::move(absent_outputs)) {
  std::vector<int> all(graph_->outputs.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
  full_plan_ = MakeSharedPlan(graph_, all);
}

Result<std::shared_ptr<const Plan>> PlanCache::PlanFor(TRITONBACKEND_Request* request) {
  uint32_t count = 0;
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestOutputCount(request, &count)));
  InlineVector<int, 8> outputs;
  for (uint32_t i = 0; i < count; ++i) {
    const char* name = nullptr;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestOutputName(request, i, &name)));
    const int output = graph_->FindOutput(name);
    if (output < 0 && absent_outputs_.count(name) != 0) continue;
    if (output < 0) {
      return InvalidArgError("ensemble '", graph_->name, "' has no output '", name, "'");
    }
    outputs.push_back(output);
  }
  std::sort(outputs.begin(), outputs.end());
  const auto* const end = std::unique(outputs.begin(), outputs.end());
  const auto num_outputs = static_cast<size_t>(end - outputs.begin());
  if (num_outputs == 0 || num_outputs == graph_->outputs.size()) return full_plan_;

  const std::vector<int> subset(outputs.data(), outputs.data() + num_outputs);
  std::lock_guard lock(mutex_);
  const auto known = plans_.find(subset);
  if (known != plans_.end()) return known->second;
  std::shared_ptr<const Plan> plan = MakeSharedPlan(graph_, subset);
  if (plans_.size() < kMaxCachedPlans) plans_.emplace(subset, plan);
  return plan;
}

}  // namespace nereid::ensemble
