#include "host/core/scheduling/rate_limiter.h"

#include <algorithm>

namespace nereid {

std::optional<uint64_t> RateLimiter::LimitOf(const Key& key) const {
  if (limits_.empty()) return std::nullopt;
  uint64_t count = 0;
  for (const ResourceLimit& limit : limits_) {
    const bool fits = key.second == kGlobal || limit.device == -1 || limit.device == key.second;
    if (limit.name == key.first && fits) count = std::max(count, limit.count);
  }
  return count;
}

uint64_t RateLimiter::CountOf(const Key& key, const Resource& resource) const {
  if (const std::optional<uint64_t> limit = LimitOf(key); limit.has_value()) return *limit;
  return resource.wanted.empty() ? 0 : resource.wanted.rbegin()->first;
}

Status RateLimiter::CheckKind(const Key& key, const std::map<Key, uint64_t>& needs) const {
  const auto is_other_kind = [&key](const Key& other) {
    return other.first == key.first && (other.second == kGlobal) != (key.second == kGlobal);
  };
  const bool conflicts =
      std::any_of(needs.begin(), needs.end(),
                  [&](const auto& need) { return is_other_kind(need.first); }) ||
      std::any_of(resources_.begin(), resources_.end(), [&](const auto& resource) {
        return !resource.second.wanted.empty() && is_other_kind(resource.first);
      });
  if (!conflicts) return Status::Ok();
  return InvalidArgError("Resource \"", key.first,
                         "\" is present as both global and device-specific resource in the model "
                         "configuration.");
}

Result<std::unique_ptr<RateLimiter::Member>> RateLimiter::Join(const InstanceGroup& group,
                                                               int device) {
  const uint64_t weight = std::max<uint64_t>(group.rate_limiter_priority, 1);
  std::unique_ptr<Member> member(new Member(this, weight));
  std::map<Key, uint64_t> needs;
  for (const auto& resource : group.rate_limiter_resources) {
    const Key key(resource.name, resource.global ? kGlobal : device);
    const std::optional<uint64_t> limit = LimitOf(key);
    if (limit.has_value() && *limit < resource.count) {
      return InvalidArgError("Resource count for \"", resource.name, "\" is limited to ", *limit,
                             " which will prevent scheduling of one or more model instances, the "
                             "minimum required count is ",
                             resource.count);
    }
    needs[key] = std::max<uint64_t>(needs[key], resource.count);
  }
  std::lock_guard lock(mutex_);
  for (const auto& [key, count] : needs) NEREID_RETURN_IF_ERROR(CheckKind(key, needs));
  for (const auto& [key, count] : needs) resources_[key].wanted.emplace(count, member.get());
  member->needs_ = std::move(needs);
  return member;
}

size_t RateLimiter::num_waiting() {
  std::lock_guard lock(mutex_);
  return waiting_.size();
}

RateLimiter::Member::~Member() {
  std::lock_guard lock(limiter_->mutex_);
  for (const auto& [key, count] : needs_) {
    auto& wanted = limiter_->resources_.at(key).wanted;
    for (auto it = wanted.find(count); it != wanted.end(); ++it) {
      if (it->second != this) continue;
      wanted.erase(it);
      break;
    }
  }
}

bool RateLimiter::Fits(const Member& member) const {
  return std::all_of(member.needs_.begin(), member.needs_.end(), [&](const auto& need) {
    const Resource& resource = resources_.at(need.first);
    return resource.used + need.second <= CountOf(need.first, resource);
  });
}

// Whoever is due earlier keeps the resources that it waits for from those behind it.
bool RateLimiter::IsNext(const Member& member) const {
  if (!Fits(member)) return false;
  for (const Member* other : waiting_) {
    if (other == &member) return true;
    for (const auto& [key, count] : other->needs_) {
      if (member.needs_.contains(key)) return false;
    }
  }
  return false;
}

void RateLimiter::Member::WaitForTurn(std::unique_lock<std::mutex>& lock) {
  auto& waiting = limiter_->waiting_;
  const auto place = std::find_if(waiting.begin(), waiting.end(),
                                  [this](const Member* other) { return other->turn() > turn(); });
  const auto own = waiting.insert(place, this);
  limiter_->changed_.wait(lock, [this] { return limiter_->IsNext(*this); });
  waiting.erase(own);
  for (const auto& [key, count] : needs_) limiter_->resources_.at(key).used += count;
}

void RateLimiter::Member::GiveBack() {
  for (const auto& [key, count] : needs_) limiter_->resources_.at(key).used -= count;
}

void RateLimiter::Member::Acquire() {
  {
    std::unique_lock lock(limiter_->mutex_);
    WaitForTurn(lock);
  }
  limiter_->changed_.notify_all();  // those behind it may fit as well
}

void RateLimiter::Member::AcquireAgain() {
  {
    std::unique_lock lock(limiter_->mutex_);
    GiveBack();
    limiter_->changed_.notify_all();
    WaitForTurn(lock);
  }
  limiter_->changed_.notify_all();
}

void RateLimiter::Member::Release() {
  {
    std::lock_guard lock(limiter_->mutex_);
    GiveBack();
  }
  limiter_->changed_.notify_all();
}

}  // namespace nereid
