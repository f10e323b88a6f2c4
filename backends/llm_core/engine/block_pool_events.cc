// Notes what becomes of the cached content.
#include <algorithm>

#include "backends/llm_core/engine/block_pool.h"

namespace nereid::llm {

void BlockPool::NoteEvents() {
  if (!prefixes_.has_value()) return;
  notes_events_ = true;
  std::vector<int32_t> stored;
  for (size_t place = 0; place < blocks_.size(); ++place) {
    if (blocks_[place].serial != 0) stored.push_back(static_cast<int32_t>(place));
  }
  // A parent has a lower serial than what follows it.
  std::sort(stored.begin(), stored.end(),
            [this](int32_t a, int32_t b) { return blocks_[a].serial < blocks_[b].serial; });
  for (const int32_t place : stored) NoteStored(place);
}

KvMedium BlockPool::MediumOf(int32_t place) const {
  if (!is_outside(place)) return KvMedium::kCache;
  return is_in_file(place) ? KvMedium::kFile : KvMedium::kHostMemory;
}

void BlockPool::AppendStored(int32_t place) {
  KvEvent& event = events_.emplace_back();
  event.kind = KvEvent::Kind::kStored;
  event.medium = MediumOf(place);
  event.hash = blocks_[place].hash;
  const int32_t parent = prefixes_->ParentOf(place);
  if (parent >= 0) event.parent = blocks_[parent].hash;
  const std::span<const int32_t> token_ids = prefixes_->TokensOf(place);
  event.token_ids.assign(token_ids.begin(), token_ids.end());
}

void BlockPool::NoteRemoved(int32_t place) {
  if (!notes_events_ || blocks_[place].salt != 0) return;
  KvEvent& event = events_.emplace_back();
  event.kind = KvEvent::Kind::kRemoved;
  event.medium = MediumOf(place);
  event.hash = blocks_[place].hash;
}

void BlockPool::MoveContent(int32_t from, int32_t to) {
  prefixes_->Move(from, to);
  NoteStored(to);
  NoteRemoved(from);
}

}  // namespace nereid::llm
