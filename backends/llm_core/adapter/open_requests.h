// The open requests of a model by their id, for requests that stop them. [any thread]
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "backends/llm_core/adapter/active_request.h"

namespace nereid::llm {

class OpenRequests {
 public:
  // A request without an id cannot be stopped, and is not kept.
  void Add(const std::shared_ptr<ActiveRequest>& request);
  // Cancels all open requests with this id.
  void Cancel(const std::string& id);

 private:
  std::mutex mutex_;  // guards the members below
  std::unordered_multimap<std::string, std::weak_ptr<ActiveRequest>> by_id_;
  size_t cleanup_size_ = 64;  // ended requests are removed when there are so many entries
};

}  // namespace nereid::llm
