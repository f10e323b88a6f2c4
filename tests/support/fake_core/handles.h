// The objects behind the fake host's handles, except the structs of fake_core.h, and its counters.
// Only for the files of this folder. [any thread]
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "tests/support/fake_core/fake_core.h"

namespace nereid::fake {

inline std::atomic<int> num_live_handles{0};
inline std::mutex record_mutex;  // guards the events recorded in requests and instances

// Counts live objects. Whoever holds the handle owns the object.
struct LiveHandleCounter {
  LiveHandleCounter() { ++num_live_handles; }
  LiveHandleCounter(const LiveHandleCounter&) = delete;
  ~LiveHandleCounter() { --num_live_handles; }
};
struct ErrorHandle : LiveHandleCounter {
  Error error;
};
struct MessageHandle : LiveHandleCounter {
  std::string json;
};
struct FactoryHandle : LiveHandleCounter {
  Request* request;
};

template <typename To, typename From>
To* As(From* handle) {
  return reinterpret_cast<To*>(handle);
}

inline TRITONSERVER_Error* Fail(TRITONSERVER_Error_Code code, const std::string& message) {
  return TRITONSERVER_ErrorNew(code, message.c_str());
}

inline void Record(Request* request, const char* event) {
  const std::lock_guard lock(record_mutex);
  request->events.emplace_back(event);
}

}  // namespace nereid::fake
