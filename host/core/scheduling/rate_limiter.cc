#include "host/core/scheduling/rate_limiter.h"

#include <algorithm>

namespace nereid::core {

std::optional<uint64_t> RateLimiter::LimitOf(const Key& key) const {
  if (limits_.empty()) return std::nullopt;
  uint64_t count = 0;
  for (const ResourceLimit& limit : limits_) {
    const bool fits = key.second == kGlobal || limit.device == -1 || limit.device == key.second;
    if (limit.name == key.first && fits) count = std::max(count, limit.count);
  }
  return count;
}

uint64_t RateLimiter::AvailableCount(const Key& key, const Resource& resource) const {
  if (const std::optional<uint64_t> limit = LimitOf(key); limit.has_value()) return *limit;
  return resource.requested.empty() ? 0 : resource.requested.rbegin()->first;
}

Status RateLimiter::CheckKind(const Key& key, const std::map<Key, uint64_t>& required) const {
  const auto is_other_kind = [&key](const Key& other) {
    return other.first == key.first && (other.second == kGlobal) != (key.second == kGlobal);
  };
  const bool conflicts =
      std::any_of(required.begin(), required.end(),
                  [&](const auto& requirement) { return is_other_kind(requirement.first); }) ||
      std::any_of(resources_.begin(), resources_.end(), [&](const auto& resource) {
        return !resource.second.requested.empty() && is_other_kind(resource.first);
      });
  if (!conflicts) return Status::Ok();
  return InvalidArgError("Resource \"", key.first,
                         "\" is present as both global and device-specific resource in the model "
                         "configuration.");
}

Result<std::unique_ptr<RateLimiter::RegisteredInstance>> RateLimiter::Register(
    const InstanceGroup& group, int device) {
  const uint64_t weight = std::max<uint64_t>(group.rate_limiter_priority, 1);
  std::unique_ptr<RegisteredInstance> member(new RegisteredInstance(this, weight));
  std::map<Key, uint64_t> required;
  for (const auto& resource : group.rate_limiter_resources) {
    const Key key(resource.name, resource.global ? kGlobal : device);
    const std::optional<uint64_t> limit = LimitOf(key);
    if (limit.has_value() && *limit < resource.count) {
      return InvalidArgError("Resource count for \"", resource.name, "\" is limited to ", *limit,
                             " which will prevent scheduling of one or more model instances, the "
                             "minimum required count is ",
                             resource.count);
    }
    required[key] = std::max<uint64_t>(required[key], resource.count);
  }
  std::lock_guard lock(mutex_);
  for (const auto& [key, count] : required) NEREID_RETURN_IF_ERROR(CheckKind(key, required));
  for (const auto& [key, count] : required) resources_[key].requested.emplace(count, member.get());
  member->required_ = std::move(required);
  return member;
}

size_t RateLimiter::num_waiting() {
  std::lock_guard lock(mutex_);
  return waiting_.size();
}

RateLimiter::RegisteredInstance::~RegisteredInstance() {
  std::lock_guard lock(limiter_->mutex_);
  for (const auto& [key, count] : required_) {
    auto& requested = limiter_->resources_.at(key).requested;
    for (auto it = requested.find(count); it != requested.end(); ++it) {
      if (it->second != this) continue;
      requested.erase(it);
      break;
    }
  }
}

bool RateLimiter::HasResources(const RegisteredInstance& member) const {
  return std::all_of(
      member.required_.begin(), member.required_.end(), [&](const auto& requirement) {
        const Resource& resource = resources_.at(requirement.first);
        return resource.used + requirement.second <= AvailableCount(requirement.first, resource);
      });
}

// An instance that is scheduled earlier reserves the resources that it waits for: later instances
// must not take them.
bool RateLimiter::IsNext(const RegisteredInstance& member) const {
  if (!HasResources(member)) return false;
  for (const RegisteredInstance* other : waiting_) {
    if (other == &member) return true;
    for (const auto& [key, count] : other->required_) {
      if (member.required_.contains(key)) return false;
    }
  }
  return false;
}

void RateLimiter::RegisteredInstance::WaitForTurn(std::unique_lock<std::mutex>& lock) {
  auto& waiting = limiter_->waiting_;
  const auto position =
      std::find_if(waiting.begin(), waiting.end(), [this](const RegisteredInstance* other) {
        return other->weighted_executions() > weighted_executions();
      });
  const auto self = waiting.insert(position, this);
  limiter_->changed_.wait(lock, [this] { return limiter_->IsNext(*this); });
  waiting.erase(self);
  for (const auto& [key, count] : required_) limiter_->resources_.at(key).used += count;
}

void RateLimiter::RegisteredInstance::ReturnResources() {
  for (const auto& [key, count] : required_) limiter_->resources_.at(key).used -= count;
}

void RateLimiter::RegisteredInstance::Acquire() {
  {
    std::unique_lock lock(limiter_->mutex_);
    WaitForTurn(lock);
  }
  limiter_->changed_.notify_all();  // the resources may suffice for waiting instances, too
}

void RateLimiter::RegisteredInstance::Reacquire() {
  {
    std::unique_lock lock(limiter_->mutex_);
    ReturnResources();
    limiter_->changed_.notify_all();
    WaitForTurn(lock);
  }
  limiter_->changed_.notify_all();
}

void RateLimiter::RegisteredInstance::Release() {
  {
    std::lock_guard lock(limiter_->mutex_);
    ReturnResources();
  }
  limiter_->changed_.notify_all();
}

}  // namespace nereid::core
