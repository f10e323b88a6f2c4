// See token_table.h.
#include "backends/tokenizer/lib/vocabulary/token_table.h"

#include <algorithm>

namespace nereid::tokenizer {

namespace {

// The hash table is at most three quarters full: 151,000 tokens take 262,144 slots.
bool FitsInSlots(size_t entries, size_t slots) {
  return entries * 4 <= slots * 3;
}

}  // namespace

void TokenTable::Reserve(size_t count, size_t bytes) {
  arena_.reserve(bytes);
  offsets_.reserve(count + 1);
  ids_.reserve(count);
  by_id_.reserve(count);
  size_t slots = 16;
  while (!FitsInSlots(count, slots)) slots *= 2;
  if (slots > slots_.size()) Grow(slots);
}

void TokenTable::Add(std::string_view content, uint32_t id) {
  if (id >= by_id_.size()) by_id_.resize(id + 1, -1);
  int32_t entry = FindEntry(content);
  if (entry >= 0) {
    const uint32_t old_id = ids_[entry];
    if (old_id != id && by_id_[old_id] == entry) by_id_[old_id] = -1;
    ids_[entry] = id;
  } else {
    entry = static_cast<int32_t>(ids_.size());
    ids_.push_back(id);
    arena_.append(content);
    offsets_.push_back(static_cast<uint32_t>(arena_.size()));
    max_content_bytes_ = std::max(max_content_bytes_, content.size());
    if (!FitsInSlots(ids_.size(), slots_.size())) {
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
  for (size_t entry = 0; entry < ids_.size(); ++entry) Insert(static_cast<int32_t>(entry));
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
  offsets_.shrink_to_fit();
  ids_.shrink_to_fit();
  arena_.shrink_to_fit();
}

int32_t TokenTable::ScanFor(std::string_view content) const {
  for (size_t entry = 0; entry < ids_.size(); ++entry) {
    if (Content(static_cast<int32_t>(entry)) == content) return static_cast<int32_t>(entry);
  }
  return -1;
}

}  // namespace nereid::tokenizer
