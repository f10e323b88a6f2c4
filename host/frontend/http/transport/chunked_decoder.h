// Decodes a chunked request body (RFC 9112, 7.1) as its bytes arrive. Pure. [one thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "host/frontend/http/transport/byte_buffer.h"

namespace nereid::http {

class ChunkedDecoder {
 public:
  enum class State { kSizeLine, kData, kDataEnd, kTrailer, kDone, kMalformed, kTooLarge };

  explicit ChunkedDecoder(size_t max_body_bytes) : max_body_bytes_(max_body_bytes) {}

  // Decodes `bytes` and appends the data to `body`. Returns the number of consumed bytes. Stops at
  // kDone (the following bytes belong to the next request), kMalformed and kTooLarge.
  size_t Consume(std::string_view bytes, ByteBuffer& body);

  State state() const { return state_; }

 private:
  void ReadSizeLine(std::string_view line);
  size_t ConsumeLine(std::string_view bytes);

  const size_t max_body_bytes_;
  State state_ = State::kSizeLine;
  uint64_t chunk_left_ = 0;
  size_t body_bytes_ = 0;
  size_t trailer_bytes_ = 0;
  // The beginning of a size line or trailer line that has not arrived completely.
  char line_[256];
  size_t line_size_ = 0;
};

}  // namespace nereid::http
