#include "host/core/scheduling/priority_queue.h"

#include <algorithm>

namespace nereid::core {
namespace {

// A request may shorten the timeout of its level, or set one if the level has none.
uint64_t TimeoutUs(const QueuePolicy& policy, const InferRequest& request) {
  const uint64_t level_timeout_us = policy.default_timeout_us;
  const uint64_t requested_us = request.timeout_us();
  if (!policy.allow_timeout_override || requested_us == 0) return level_timeout_us;
  return level_timeout_us == 0 ? requested_us : std::min(level_timeout_us, requested_us);
}

uint64_t DeadlineNs(uint64_t now_ns, uint64_t timeout_us) {
  uint64_t deadline_ns = 0;
  if (timeout_us == 0) return 0;
  if (__builtin_mul_overflow(timeout_us, uint64_t{1000}, &deadline_ns) ||
      __builtin_add_overflow(deadline_ns, now_ns, &deadline_ns)) {
    return 0;
  }
  return deadline_ns;
}

}  // namespace

PriorityQueue::PriorityQueue(const DynamicBatching& config) : config_(config) {}

// A priority that is not configured counts as the last level.
uint64_t PriorityQueue::LevelNumber(const InferRequest& request) const {
  const uint64_t priority = request.priority();
  const bool is_level = priority != 0 && priority <= config_.priority_levels;
  return is_level ? priority : config_.priority_levels;
}

PriorityQueue::Level& PriorityQueue::LevelOf(const InferRequest& request) {
  const uint64_t number = LevelNumber(request);
  const auto [it, is_new] = levels_.try_emplace(number);
  if (is_new) {
    const auto override_policy = config_.priority_queue_policy.find(number);
    const bool is_known = number != 0 && override_policy != config_.priority_queue_policy.end();
    it->second.policy = is_known ? override_policy->second : config_.default_queue_policy;
  }
  return it->second;
}

void PriorityQueue::EraseIfUnused(std::map<uint64_t, Level>::iterator level) {
  constexpr size_t kMaxUnusedLevels = 64;
  if (levels_.size() > kMaxUnusedLevels && level->second.ready.empty() &&
      level->second.delayed.empty()) {
    levels_.erase(level);
  }
}

Status PriorityQueue::Push(InferRequest* request, uint64_t now_ns) {
  Level& level = LevelOf(*request);
  const uint32_t max_size = level.policy.max_queue_size;
  if (max_size != 0 && level.ready.size() + level.delayed.size() >= max_size) {
    return UnavailableError(request->LogPrefix(), "Exceeds maximum queue size");
  }
  request->queue_deadline_ns = DeadlineNs(now_ns, TimeoutUs(level.policy, *request));
  if (request->queue_deadline_ns != 0) {
    earliest_deadline_ns_ = std::min(earliest_deadline_ns_, request->queue_deadline_ns);
  }
  level.ready.PushBack(request);
  ++size_;
  return Status::Ok();
}

bool PriorityQueue::Remove(InferRequest* request) {
  const auto it = levels_.find(LevelNumber(*request));
  if (it == levels_.end()) return false;
  for (RequestList* list : {&it->second.ready, &it->second.delayed}) {
    if (!list->Contains(request)) continue;
    list->Remove(request);
    --size_;
    EraseIfUnused(it);
    return true;
  }
  return false;
}

void PriorityQueue::TakeExpired(uint64_t now_ns, std::vector<InferRequest*>* rejected) {
  if (now_ns < earliest_deadline_ns_) return;
  earliest_deadline_ns_ = UINT64_MAX;
  for (auto it = levels_.begin(); it != levels_.end();) {
    Level& level = it->second;
    for (InferRequest *next, *request = level.ready.front(); request != nullptr; request = next) {
      next = RequestList::Next(request);
      const uint64_t deadline_ns = request->queue_deadline_ns;
      if (deadline_ns == 0) continue;
      if (deadline_ns > now_ns) {
        earliest_deadline_ns_ = std::min(earliest_deadline_ns_, deadline_ns);
        continue;
      }
      level.ready.Remove(request);
      if (level.policy.timeout_action == QueuePolicy::TimeoutAction::kDelay) {
        level.delayed.PushBack(request);
      } else {
        --size_;
        rejected->push_back(request);
      }
    }
    EraseIfUnused(it++);
  }
}

InferRequest* PriorityQueue::FirstFrom(std::map<uint64_t, Level>::const_iterator level) const {
  for (; level != levels_.end(); ++level) {
    if (!level->second.ready.empty()) return level->second.ready.front();
    if (!level->second.delayed.empty()) return level->second.delayed.front();
  }
  return nullptr;
}

InferRequest* PriorityQueue::First() const {
  return FirstFrom(levels_.begin());
}

InferRequest* PriorityQueue::Next(const InferRequest* request) const {
  if (InferRequest* next = RequestList::Next(request)) return next;
  const auto it = levels_.find(LevelNumber(*request));
  const Level& level = it->second;
  if (level.ready.Contains(request) && !level.delayed.empty()) return level.delayed.front();
  return FirstFrom(std::next(it));
}

}  // namespace nereid::core
