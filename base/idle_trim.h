// Returns free memory to the system once a server is idle. After a burst the allocator keeps what
// thousands of requests needed. [one thread]
#pragma once

#include <cstddef>
#include <cstdint>

namespace nereid {

class IdleTrim {
 public:
  // Call it periodically. The server is idle if no request has arrived since the last call and none
  // is running. Memory is released once for each time that it becomes idle.
  //   num_requests  all that have arrived so far
  void Tick(uint64_t num_requests, size_t num_running);

 private:
  uint64_t num_requests_seen_ = 0;
  bool is_trimmed_ = true;
};

}  // namespace nereid
