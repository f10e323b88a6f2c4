#include "host/frontend/openai/calls/running_requests.h"

#include <utility>

namespace nereid::openai {

std::unique_ptr<RunningRequests::Entry> RunningRequests::Add(std::string id, std::string model,
                                                             std::string route,
                                                             const RequestCounts& counts,
                                                             std::function<void()> cancel,
                                                             Clock::time_point now) {
  Item item{
      {.id = std::move(id), .model = std::move(model), .route = std::move(route), .start = now},
      counts,
      std::move(cancel)};
  const std::scoped_lock lock(mutex_);
  const uint64_t number = next_number_++;
  auto entry = std::make_unique<Entry>(*this, number);
  items_.emplace(number, std::move(item));
  return entry;
}

std::vector<RunningRequests::Request> RunningRequests::List(size_t max_count) const {
  std::vector<Request> requests;
  const std::scoped_lock lock(mutex_);
  for (const auto& [number, item] : items_) {
    if (requests.size() == max_count) break;
    Request& request = requests.emplace_back(item.request);
    request.prompt_tokens = item.counts.prompt_tokens.load(std::memory_order_relaxed);
    request.output_tokens = item.counts.output_tokens.load(std::memory_order_relaxed);
  }
  return requests;
}

size_t RunningRequests::size() const {
  const std::scoped_lock lock(mutex_);
  return items_.size();
}

bool RunningRequests::Cancel(std::string_view id) {
  const std::scoped_lock lock(mutex_);
  for (auto& [number, item] : items_) {
    if (item.request.id != id) continue;
    if (const auto cancel = std::exchange(item.cancel, nullptr)) cancel();
    return true;
  }
  return false;
}

void RunningRequests::Remove(uint64_t number) {
  const std::scoped_lock lock(mutex_);
  items_.erase(number);
}

}  // namespace nereid::openai
