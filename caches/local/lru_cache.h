// A cache with a maximum size in bytes, which evicts the least recently used entries. Contents are
// shared: a caller that has found an entry keeps its content after the eviction. [any thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace nereid::local_cache {

// The buffers of one entry. Immutable once inserted.
using EntryBuffers = std::vector<std::vector<std::byte>>;

class LruCache {
 public:
  explicit LruCache(size_t max_bytes) : max_bytes_(max_bytes) {}

  // Null if there is no such entry. Marks the entry as the most recently used.
  std::shared_ptr<const EntryBuffers> Find(std::string_view key);
  enum class Outcome { kInserted, kKeyExists, kTooLarge };
  Outcome Insert(std::string_view key, std::shared_ptr<const EntryBuffers> content);

  size_t max_bytes() const { return max_bytes_; }
  struct Stats {
    size_t bytes;
    size_t num_entries;
    uint64_t num_evictions;  // since the start
  };
  Stats stats();
  // The size of an entry: its buffers, its key and the bookkeeping.
  static size_t SizeOf(std::string_view key, const EntryBuffers& content);

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const EntryBuffers> content;
    size_t bytes;
  };

  const size_t max_bytes_;
  std::mutex mutex_;          // guards all below
  std::list<Entry> entries_;  // the most recently used first
  // The keys point into entries_.
  std::unordered_map<std::string_view, std::list<Entry>::iterator> index_;
  size_t bytes_ = 0;
  uint64_t num_evictions_ = 0;
};

}  // namespace nereid::local_cache
