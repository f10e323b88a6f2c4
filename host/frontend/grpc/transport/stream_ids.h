// The stream ids that a client has skipped. Opening a stream closes all lower ids that were never
// used (RFC 9113, 5.1.1), so a stream that opens with one of them is an error of the connection,
// whereas HEADERS of a stream that was open before may be trailers that the client sent before it
// learned of the stream's end. [one thread]
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace nereid::grpc {

class StreamIds {
 public:
  // To be called for each HEADERS frame of the client. Returns false if `id` was skipped.
  bool Accept(int32_t id) {
    if (id <= last_) return !IsSkipped(id);
    // Clients skip ids rarely, so only the newest gaps are kept. Ids of older ones are accepted.
    if (id > last_ + 2) gaps_[num_gaps_++ % gaps_.size()] = {last_ + 2, id - 2};
    last_ = id;
    return true;
  }

 private:
  struct Gap {
    int32_t first = 0;
    int32_t last = -1;  // inclusive
  };

  bool IsSkipped(int32_t id) const {
    for (const Gap& gap : gaps_) {
      if (id >= gap.first && id <= gap.last) return true;
    }
    return false;
  }

  int32_t last_ = -1;  // clients use odd ids
  std::array<Gap, 8> gaps_;
  size_t num_gaps_ = 0;
};

}  // namespace nereid::grpc
