#include "host/frontend/tracing/trace_record.h"

#include <algorithm>
#include <utility>

namespace nereid {

void TraceRecord::Add(std::string_view name, uint64_t steady_ns) {
  const std::lock_guard lock(mutex_);
  own_events_.push_back({std::string(name), steady_ns});
}

void TraceRecord::Add(TRITONSERVER_InferenceTrace* trace, std::string_view name,
                      uint64_t steady_ns) {
  const std::lock_guard lock(mutex_);
  InferenceOf(trace).events.push_back({std::string(name), steady_ns});
}

void TraceRecord::Add(TRITONSERVER_InferenceTrace* trace, TraceTensor tensor) {
  const std::lock_guard lock(mutex_);
  InferenceOf(trace).tensors.push_back(std::move(tensor));
}

TracedInference& TraceRecord::InferenceOf(TRITONSERVER_InferenceTrace* trace) {
  uint64_t id = 0;
  TRITONSERVER_InferenceTraceId(trace, &id);
  for (TracedInference& inference : inferences_) {
    if (inference.id == id) return inference;
  }
  TracedInference& inference = inferences_.emplace_back();
  inference.id = id;
  const char* text = nullptr;
  TRITONSERVER_InferenceTraceParentId(trace, &inference.parent_id);
  TRITONSERVER_InferenceTraceModelVersion(trace, &inference.version);
  TRITONSERVER_InferenceTraceModelName(trace, &text);
  inference.model = text == nullptr ? "" : text;
  text = nullptr;
  TRITONSERVER_InferenceTraceRequestId(trace, &text);
  inference.request_id = text == nullptr ? "" : text;
  return inference;
}

std::vector<TracedInference> TraceRecord::Take() {
  const std::lock_guard lock(mutex_);
  std::vector<TracedInference> inferences = std::move(inferences_);
  const auto root = std::find_if(inferences.begin(), inferences.end(),
                                 [](const auto& inference) { return inference.parent_id == 0; });
  if (root == inferences.end()) return {};
  std::rotate(inferences.begin(), root, root + 1);
  TracedInference& first = inferences.front();
  first.events.insert(first.events.end(), own_events_.begin(), own_events_.end());
  for (TracedInference& inference : inferences) {
    std::stable_sort(inference.events.begin(), inference.events.end(),
                     [](const auto& a, const auto& b) { return a.steady_ns < b.steady_ns; });
  }
  return inferences;
}

}  // namespace nereid
