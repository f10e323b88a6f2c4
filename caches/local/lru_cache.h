// Entries by key, the least recently used of which leave when the whole exceeds its size. Contents
// are shared: who found one keeps it although it has left. [any thread]
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
using Content = std::vector<std::vector<std::byte>>;

class LruCache {
 public:
  explicit LruCache(size_t max_bytes) : max_bytes_(max_bytes) {}

  // Null when there is none. The entry becomes the most recently used.
  std::shared_ptr<const Content> Find(std::string_view key);
  enum class Outcome { kInserted, kTaken, kTooLarge };
  Outcome Insert(std::string_view key, std::shared_ptr<const Content> content);

  size_t max_bytes() const { return max_bytes_; }
  struct Figures {
    size_t bytes;
    size_t num_entries;
    uint64_t num_evictions;  // ever
  };
  Figures figures();
  // What an entry counts for: its buffers, its key and the bookkeeping.
  static size_t SizeOf(std::string_view key, const Content& content);

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const Content> content;
    size_t bytes;
  };

  const size_t max_bytes_;
  std::mutex mutex_;          // guards what follows
  std::list<Entry> entries_;  // the most recently used first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> index_;  // keys lie in entries_
  size_t bytes_ = 0;
  uint64_t num_evictions_ = 0;
};

}  // namespace nereid::local_cache
