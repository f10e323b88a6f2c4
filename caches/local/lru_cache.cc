#include "caches/local/lru_cache.h"

#include <utility>

namespace nereid::local_cache {
namespace {

constexpr size_t kBookkeepingBytes = 200;  // a list node, an index node and a shared pointer

}  // namespace

size_t LruCache::SizeOf(std::string_view key, const EntryBuffers& content) {
  size_t bytes = kBookkeepingBytes + key.size();
  for (const auto& buffer : content) bytes += buffer.size();
  return bytes;
}

std::shared_ptr<const EntryBuffers> LruCache::Find(std::string_view key) {
  std::lock_guard lock(mutex_);
  const auto it = index_.find(key);
  if (it == index_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, it->second);
  return it->second->content;
}

LruCache::Outcome LruCache::Insert(std::string_view key,
                                   std::shared_ptr<const EntryBuffers> content) {
  const size_t bytes = SizeOf(key, *content);
  if (bytes > max_bytes_) return Outcome::kTooLarge;
  std::list<Entry> dropped;  // freed after the lock is released
  std::lock_guard lock(mutex_);
  if (index_.count(key) > 0) return Outcome::kKeyExists;
  while (bytes_ + bytes > max_bytes_) {
    const auto last = std::prev(entries_.end());
    bytes_ -= last->bytes;
    index_.erase(last->key);
    ++num_evictions_;
    dropped.splice(dropped.begin(), entries_, last);
  }
  entries_.push_front({std::string(key), std::move(content), bytes});
  index_.emplace(entries_.front().key, entries_.begin());
  bytes_ += bytes;
  return Outcome::kInserted;
}

LruCache::Stats LruCache::stats() {
  std::lock_guard lock(mutex_);
  return {bytes_, entries_.size(), num_evictions_};
}

}  // namespace nereid::local_cache
