// See token_table.h.
#include "token_table.h"

#include <algorithm>

namespace nereid::tokenizer {

void TokenTable::Reserve(size_t count, size_t bytes) {
  arena_.reserve(bytes);
  entries_.reserve(count);
  by_id_.reserve(count);
  size_t slots = 16;
  while (slots < count * 2) slots *= 2;
  if (slots > slots_.size()) Grow(slots);
}

void TokenTable::Add(std::string_view content, uint32_t id) {
  if (id >= by_id_.size()) by_id_.resize(id + 1, -1);
  int32_t entry = FindEntry(content);
  if (entry >= 0) {
    const uint32_t old_id = entries_[entry].id;
    if (old_id != id && by_id_[old_id] == entry) by_id_[old_id] = -1;
    entries_[entry].id = id;
  } else {
    entry = static_cast<int32_t>(entries_.size());
    entries_.push_back(
        {static_cast<uint32_t>(arena_.size()), static_cast<uint32_t>(content.size()), id});
    arena_.append(content);
    max_content_bytes_ = std::max(max_content_bytes_, content.size());
    if (entries_.size() * 2 > slots_.size()) {
      Grow(std::max<size_t>(16, slots_.size() * 2));
    } else {
      Insert(entry);
    }
  }
  by_id_[id] = entry;
}

void TokenTable::Grow(size_t slots) {
  slots_.assign(slots, Slot{});
  shift_ = 64;
  for (size_t n = slots; n > 1; n /= 2) --shift_;
  for (size_t entry = 0; entry < entries_.size(); ++entry) Insert(static_cast<int32_t>(entry));
}

void TokenTable::Insert(int32_t entry) {
  const std::string_view content = Content(entry);
  const uint64_t hash = HashBytes(content.data(), content.size());
  size_t slot = hash >> shift_;
  while (slots_[slot].entry >= 0) slot = (slot + 1) & (slots_.size() - 1);
  slots_[slot] = {static_cast<uint32_t>(hash), entry};
}

void TokenTable::DropContentIndex() {
  slots_ = {};
  entries_.shrink_to_fit();
  arena_.shrink_to_fit();
}

int32_t TokenTable::ScanFor(std::string_view content) const {
  for (size_t entry = 0; entry < entries_.size(); ++entry) {
    if (Content(static_cast<int32_t>(entry)) == content) return static_cast<int32_t>(entry);
  }
  return -1;
}

}  // namespace nereid::tokenizer
