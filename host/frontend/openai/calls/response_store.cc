#include "host/frontend/openai/calls/response_store.h"

#include <utility>

#include "host/frontend/api_keys.h"

namespace nereid::openai {
namespace {

std::string DigestOf(std::string_view owner) {
  return owner.empty() ? std::string() : ApiKeyDigest("", owner);
}

}  // namespace

void ResponseStore::Put(const std::string& id, std::string_view owner, StoredResponse response,
                        Clock::time_point now) {
  Entry entry{std::move(response), DigestOf(owner), now};
  const size_t size_bytes = entry.size_bytes();
  const std::lock_guard lock(mutex_);
  Expire(now);
  if (limits_.max_count == 0 || size_bytes > limits_.max_bytes) return;
  while (!order_.empty() &&
         (entries_.size() >= limits_.max_count || num_bytes_ + size_bytes > limits_.max_bytes)) {
    if (const auto oldest = entries_.find(order_.front()); oldest != entries_.end()) Erase(oldest);
    order_.pop_front();
  }
  if (!entries_.emplace(id, std::move(entry)).second) return;
  order_.push_back(id);
  num_bytes_ += size_bytes;
}

void ResponseStore::Expire(Clock::time_point now) {
  while (!order_.empty()) {
    const auto oldest = entries_.find(order_.front());
    if (oldest != entries_.end()) {
      if (now - oldest->second.stored_at <= limits_.max_age) return;
      Erase(oldest);
    }
    order_.pop_front();
  }
}

void ResponseStore::Erase(Entries::iterator entry) {
  num_bytes_ -= entry->second.size_bytes();
  entries_.erase(entry);
}

ResponseStore::Entries::iterator ResponseStore::FindOwned(const std::string& id,
                                                          std::string_view owner) {
  const auto found = entries_.find(id);
  const bool is_owned = found != entries_.end() && found->second.owner_digest == DigestOf(owner);
  return is_owned ? found : entries_.end();
}

std::optional<StoredResponse> ResponseStore::Find(const std::string& id, std::string_view owner,
                                                  Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  Expire(now);
  const auto found = FindOwned(id, owner);
  if (found == entries_.end()) return std::nullopt;
  return found->second.response;
}

bool ResponseStore::Remove(const std::string& id, std::string_view owner, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  Expire(now);
  const auto found = FindOwned(id, owner);
  if (found == entries_.end()) return false;
  Erase(found);
  return true;
}

}  // namespace nereid::openai
