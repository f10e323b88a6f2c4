// Splits the DATA of a call into messages. Each has a 5-byte prefix: a compression flag and its
// length. [one thread]
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <memory>
#include <string_view>

#include "host/frontend/grpc/call.h"
#include "host/frontend/http/bodies/compression.h"

namespace nereid::grpc {

class MessageReader {
 public:
  // `encoding` is the encoding of compressed messages.
  MessageReader(size_t max_message_bytes, http::Encoding encoding)
      : max_message_bytes_(max_message_bytes), encoding_(encoding) {}

  // Consumes the next bytes and appends the messages that they complete. If the result is not kOk,
  // the call must end with it.
  CallStatus Feed(std::string_view bytes, std::deque<Slice>& messages);

  // True if no message is partly read.
  bool is_at_boundary() const { return prefix_bytes_ == 0; }

 private:
  static constexpr size_t kPrefixBytes = 5;

  size_t TakePrefix(std::string_view bytes);
  CallStatus BeginBody();
  CallStatus EndBody(std::deque<Slice>& messages);

  const size_t max_message_bytes_;
  const http::Encoding encoding_;
  std::array<char, kPrefixBytes> prefix_{};
  size_t prefix_bytes_ = 0;  // bytes of prefix_ that are filled
  std::shared_ptr<char> body_memory_;
  char* body_ = nullptr;  // in body_memory_
  size_t body_bytes_ = 0;
  size_t filled_bytes_ = 0;
};

// The 5-byte prefix of a message of `size_bytes`, at most 4 GiB - 1.
std::array<char, 5> MessagePrefix(bool is_compressed, size_t size_bytes);

}  // namespace nereid::grpc
