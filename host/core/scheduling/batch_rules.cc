#include "host/core/scheduling/batch_rules.h"

#include <algorithm>
#include <cstring>

#include "base/clock.h"

namespace nereid::core {
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
  const RequestSchema& schema = a.schema();
  if (schema.has_optional_inputs && !SameInputSet(a, b)) return false;
  for (const int index : schema.equal_shape_inputs) {
    const InputTensor* left = a.InputForSpec(index);
    const InputTensor* right = b.InputForSpec(index);
    if (left == nullptr || right == nullptr) {
      if (left != right) return false;
      continue;
    }
    const bool shape_tensor = schema.inputs[index].shape_tensor;
    const size_t batch_dims = schema.max_batch_size > 0 && !shape_tensor ? 1 : 0;
    const auto left_dims = left->client_shape.span().subspan(batch_dims);
    const auto right_dims = right->client_shape.span().subspan(batch_dims);
    if (!std::equal(left_dims.begin(), left_dims.end(), right_dims.begin(), right_dims.end())) {
      return false;
    }
    if (shape_tensor && !SameBytes(*left, *right)) return false;
  }
  return true;
}

BatchRules::BatchRules(const DynamicBatching& config, int64_t max_batch_size,
                       BatchStrategy* strategy)
    : strategy_(strategy),
      preferred_sizes_(config.preferred_batch_sizes.begin(), config.preferred_batch_sizes.end()),
      max_batch_size_(std::max<int64_t>(max_batch_size, 1)),
      max_delay_ns_(UsToNs(config.max_queue_delay_us)) {
  if (preferred_sizes_.empty()) preferred_sizes_.push_back(max_batch_size_);
  std::sort(preferred_sizes_.begin(), preferred_sizes_.end());
}

bool BatchRules::IsPreferred(int64_t size) const {
  return std::binary_search(preferred_sizes_.begin(), preferred_sizes_.end(), size);
}

BatchRules::CandidateBatch::CandidateBatch(const BatchRules& rules) : rules_(rules) {
  if (rules_.strategy_ != nullptr) strategy_batch_ = rules_.strategy_->BeginBatch();
}

BatchRules::CandidateBatch::~CandidateBatch() {
  if (rules_.strategy_ != nullptr) rules_.strategy_->EndBatch(strategy_batch_);
}

bool BatchRules::CandidateBatch::Add(const InferRequest& request) {
  const int64_t grown = size_ + request.batch_size();
  if (first_ != nullptr) {
    if (grown > rules_.preferred_sizes_.back() && num_preferred_ == 0) {
      num_preferred_ = num_requests_;
    }
    closed_ = grown > rules_.max_batch_size_ || !MayShareBatch(*first_, request);
  }
  // A strategy that excludes even the first request would stop the model. That request then forms a
  // batch alone.
  if (!closed_ && rules_.strategy_ != nullptr) {
    const bool include = rules_.strategy_->Include(request, strategy_batch_);
    if (!include && first_ != nullptr) closed_ = true;
  }
  if (closed_) return false;
  if (first_ == nullptr) first_ = &request;
  size_ = grown;
  ++num_requests_;
  oldest_ns_ = std::min(oldest_ns_, request.queue_start_ns);
  if (rules_.IsPreferred(size_)) num_preferred_ = num_requests_;
  return true;
}

// Within the queue delay, a batch of a preferred size is released at once and any other batch waits
// for more requests. After the delay, all requests that fit are released. Without a delay nothing
// waits, and a batch of a preferred size is released before a larger one.
BatchRules::Decision BatchRules::CandidateBatch::Finish(uint64_t now_ns) const {
  const bool may_wait = rules_.max_delay_ns_ != 0;
  const uint64_t end_ns = AddNs(oldest_ns_, rules_.max_delay_ns_);
  const bool waited = may_wait && now_ns >= end_ns;
  if (num_preferred_ != 0 && !waited) return {num_preferred_};
  if (closed_ || waited || !may_wait || size_ >= rules_.preferred_sizes_.back())
    return {num_requests_};
  return {num_requests_, end_ns, NumMissing()};
}

// Where shapes or a strategy decide, any single request may close the batch.
int64_t BatchRules::CandidateBatch::NumMissing() const {
  const RequestSchema& schema = first_->schema();
  if (rules_.strategy_ != nullptr || schema.has_optional_inputs ||
      !schema.equal_shape_inputs.empty()) {
    return 1;
  }
  const auto& sizes = rules_.preferred_sizes_;
  return *std::upper_bound(sizes.begin(), sizes.end(), size_) - size_;
}

BatchRules::Decision BatchRules::Decide(const PriorityQueue& queue, uint64_t now_ns) const {
  CandidateBatch candidate(*this);
  for (const InferRequest* request = queue.First(); request != nullptr;
       request = queue.Next(request)) {
    if (!candidate.Add(*request)) break;
  }
  return candidate.Finish(now_ns);
}

}  // namespace nereid::core
