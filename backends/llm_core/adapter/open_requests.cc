// Ended requests stay in the map until it has grown, because nobody reports their end.
#include "backends/llm_core/adapter/open_requests.h"

#include <algorithm>

namespace nereid::llm {

void OpenRequests::Add(const std::shared_ptr<ActiveRequest>& request) {
  if (request->id().empty()) return;
  const std::lock_guard lock(mutex_);
  // Remove ended requests whenever the number of entries has doubled.
  if (by_id_.size() >= cleanup_size_) {
    std::erase_if(by_id_, [](const auto& entry) { return entry.second.expired(); });
    cleanup_size_ = std::max<size_t>(64, 2 * by_id_.size());
  }
  by_id_.emplace(request->id(), request);
}

void OpenRequests::Cancel(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto [first, last] = by_id_.equal_range(id);
  for (auto it = first; it != last; ++it) {
    if (const std::shared_ptr<ActiveRequest> request = it->second.lock()) request->Cancel();
  }
}

}  // namespace nereid::llm
