// What the fake host's handles point to, besides the structs of fake_core.h, and what is counted
// and recorded. For the files of this folder alone. [any thread]
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "tests/support/fake_core/fake_core.h"

namespace nereid::fake {

inline std::atomic<int> num_live_handles{0};
inline std::mutex record_mutex;  // guards what is recorded in requests and instances

// Counts while it lives; owned by whoever holds the handle.
struct Counted {
  Counted() { ++num_live_handles; }
  Counted(const Counted&) = delete;
  ~Counted() { --num_live_handles; }
};
struct ErrorHandle : Counted {
  Error error;
};
struct MessageHandle : Counted {
  std::string json;
};
struct FactoryHandle : Counted {
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
