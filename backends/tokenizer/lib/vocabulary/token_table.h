// A vocabulary: token contents in one memory block, found by id or by content. [any thread after
// filling]
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nereid/status.h"

namespace nereid::tokenizer {

// Exclusive limit of token ids. Real vocabularies are far smaller, and tables are sized by the
// largest id.
inline constexpr uint32_t kMaxTokenId = 1u << 21;

// Hashes short strings. Not resistant to deliberately colliding keys.
inline uint64_t HashBytes(const char* data, size_t size) {
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15u;
  uint64_t hash = size * kMultiplier;
  const auto mix = [&](uint64_t word) {
    hash = (hash ^ word) * kMultiplier;
    hash ^= hash >> 32;
  };
  uint64_t word;
  for (; size >= 8; data += 8, size -= 8) {
    std::memcpy(&word, data, 8);
    mix(word);
  }
  if (size >= 4) {
    uint32_t low, high;
    std::memcpy(&low, data, 4);
    std::memcpy(&high, data + size - 4, 4);
    mix(uint64_t{high} << 32 | low);
  } else if (size > 0) {
    mix(uint64_t(static_cast<unsigned char>(data[0])) |
        uint64_t(static_cast<unsigned char>(data[size / 2])) << 8 |
        uint64_t(static_cast<unsigned char>(data[size - 1])) << 16);
  }
  return hash;
}

class TokenTable {
 public:
  // Adds a token. An existing content gets the new id; an existing id gets the new content.
  void Add(std::string_view content, uint32_t id);
  // Reserves memory for `count` tokens with `bytes` in total.
  void Reserve(size_t count, size_t bytes);
  // Free memory. Without the content index Find becomes slow; without ids OfId finds nothing.
  void DropContentIndex();
  void DropIds() { by_id_ = {}; }

  // Returns the index of the entry with this content, or -1. Entries are in the order of Add.
  int32_t FindEntry(std::string_view content) const {
    if (slots_.empty()) return ScanFor(content);
    const uint64_t hash = HashBytes(content.data(), content.size());
    for (size_t slot = hash >> shift_;; slot = (slot + 1) & (slots_.size() - 1)) {
      const Slot& s = slots_[slot];
      if (s.entry < 0) return -1;
      if (s.tag == static_cast<uint32_t>(hash) && Content(s.entry) == content) return s.entry;
    }
  }
  std::optional<int32_t> Find(std::string_view content) const {
    const int32_t entry = FindEntry(content);
    if (entry < 0) return std::nullopt;
    return IdOf(entry);
  }

  int32_t IdOf(int32_t entry) const { return static_cast<int32_t>(ids_[entry]); }
  std::string_view Content(int32_t entry) const {
    return {arena_.data() + offsets_[entry], offsets_[entry + 1] - offsets_[entry]};
  }
  // Returns the content of token `id`, or nothing.
  std::optional<std::string_view> OfId(int64_t id) const {
    if (id < 0 || id >= static_cast<int64_t>(by_id_.size()) || by_id_[id] < 0) return std::nullopt;
    return Content(by_id_[id]);
  }

  size_t num_entries() const { return ids_.size(); }
  // The largest id plus one.
  size_t id_end() const { return by_id_.size(); }
  size_t max_content_bytes() const { return max_content_bytes_; }

 private:
  struct Slot {
    uint32_t tag = 0;
    int32_t entry = -1;
  };

  int32_t ScanFor(std::string_view content) const;
  void Grow(size_t slots);
  void Insert(int32_t entry);

  std::string arena_;
  std::vector<uint32_t> offsets_ = {0};  // [num_entries + 1] of contents in arena_
  std::vector<uint32_t> ids_;            // [num_entries]
  std::vector<int32_t> by_id_;           // entry of each id, or -1: [id_end]
  std::vector<Slot> slots_;              // open addressing, size a power of two
  int shift_ = 63;
  size_t max_content_bytes_ = 0;
};

// The ids of tokens with a special role. Absent if no file defines the role.
struct SpecialIds {
  std::optional<int32_t> bos;
  std::optional<int32_t> eos;
  std::optional<int32_t> pad;
  std::optional<int32_t> unk;
};

}  // namespace nereid::tokenizer
