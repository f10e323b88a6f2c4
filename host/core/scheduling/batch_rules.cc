#include "scheduling/batch_rules.h"

#include <algorithm>
#include <cstring>

namespace nereid {
namespace {

bool SameBytes(const InputTensor& a, const InputTensor& b) {
  if (a.byte_size != b.byte_size || a.buffers.size() != 1 || b.buffers.size() != 1) return false;
  const InputBuffer& left = a.buffers[0];
  const InputBuffer& right = b.buffers[0];
  if (left.attributes.memory_type == TRITONSERVER_MEMORY_GPU) return false;
  if (right.attributes.memory_type == TRITONSERVER_MEMORY_GPU) return false;
  return std::memcmp(left.base, right.base, a.byte_size) == 0;
}

bool SameInputSet(const InferRequest& a, const InferRequest& b) {
  if (a.num_inputs() != b.num_inputs()) return false;
  for (size_t i = 0; i < a.num_inputs(); ++i) {
    if (b.InputForSpec(a.input(i).spec_index) == nullptr) return false;
  }
  return true;
}

}  // namespace

bool MayShareBatch(const InferRequest& a, const InferRequest& b) {
  const RequestPlan& plan = a.plan();
  if (plan.has_optional_inputs && !SameInputSet(a, b)) return false;
  for (const int index : plan.equal_shape_inputs) {
    const InputTensor* left = a.InputForSpec(index);
    const InputTensor* right = b.InputForSpec(index);
    if (left == nullptr || right == nullptr) {
      if (left != right) return false;
      continue;
    }
    const bool shape_tensor = plan.inputs[index].shape_tensor;
    const size_t batch_dims = plan.max_batch_size > 0 && !shape_tensor ? 1 : 0;
    const auto left_dims = left->client_shape.span().subspan(batch_dims);
    const auto right_dims = right->client_shape.span().subspan(batch_dims);
    if (!std::equal(left_dims.begin(), left_dims.end(), right_dims.begin(), right_dims.end())) {
      return false;
    }
    if (shape_tensor && !SameBytes(*left, *right)) return false;
  }
  return true;
}

BatchRules::BatchRules(const DynamicBatching& config, int64_t max_batch_size)
    : preferred_sizes_(config.preferred_batch_sizes.begin(), config.preferred_batch_sizes.end()),
      max_batch_size_(std::max<int64_t>(max_batch_size, 1)),
      max_delay_ns_(config.max_queue_delay_us * 1000) {
  if (preferred_sizes_.empty()) preferred_sizes_.push_back(max_batch_size_);
  std::sort(preferred_sizes_.begin(), preferred_sizes_.end());
}

bool BatchRules::IsPreferred(int64_t size) const {
  return std::binary_search(preferred_sizes_.begin(), preferred_sizes_.end(), size);
}

// Takes requests in order while they fit. Within the delay a preferred size goes at once and
// anything else waits for more; after it, all that fits goes.
BatchRules::Decision BatchRules::Decide(const PriorityQueue& queue, uint64_t now_ns) const {
  const int64_t max_preferred = preferred_sizes_.back();
  const InferRequest* const first = queue.First();
  int64_t size = 0;
  size_t num_requests = 0;
  size_t num_preferred = 0;  // requests of the largest preferred batch that they form
  bool closed = false;       // the next request cannot join
  uint64_t oldest_ns = UINT64_MAX;
  for (const InferRequest* request = first; request != nullptr; request = queue.Next(request)) {
    const int64_t grown = size + request->batch_size();
    if (request != first) {
      if (grown > max_preferred && num_preferred == 0) num_preferred = num_requests;
      closed = grown > max_batch_size_ || !MayShareBatch(*first, *request);
      if (closed) break;
    }
    size = grown;
    ++num_requests;
    oldest_ns = std::min(oldest_ns, request->queue_start_ns);
    if (IsPreferred(size)) num_preferred = num_requests;
  }
  const bool waited = now_ns >= oldest_ns + max_delay_ns_;
  if (num_preferred != 0 && !waited) return {num_preferred, 0};
  if (closed || waited || size >= max_preferred) return {num_requests, 0};
  return {num_requests, oldest_ns + max_delay_ns_};
}

}  // namespace nereid
