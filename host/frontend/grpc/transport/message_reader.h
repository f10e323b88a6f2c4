// Cuts the messages of a call out of its DATA: each has five bytes before it, a flag that tells
// whether it is compressed and its length. [one thread]
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <memory>
#include <string_view>

#include "host/frontend/grpc/call.h"
#include "host/frontend/http/bodies/compression.h"

namespace nereid::rpc {

class MessageReader {
 public:
  // `encoding` is that of compressed messages.
  MessageReader(size_t max_message_bytes, http::Encoding encoding)
      : max_message_bytes_(max_message_bytes), encoding_(encoding) {}

  // Takes the next bytes and adds the messages that they complete. Not kOk: how the call must end.
  CallStatus Feed(std::string_view bytes, std::deque<Slice>& messages);

  // Nothing of an unfinished message was read.
  bool is_at_boundary() const { return prefix_bytes_ == 0; }

 private:
  static constexpr size_t kPrefixBytes = 5;

  size_t TakePrefix(std::string_view bytes);
  CallStatus BeginBody();
  CallStatus EndBody(std::deque<Slice>& messages);

  const size_t max_message_bytes_;
  const http::Encoding encoding_;
  std::array<char, kPrefixBytes> prefix_{};
  size_t prefix_bytes_ = 0;  // read of prefix_
  std::shared_ptr<char> memory_;
  char* body_ = nullptr;  // in memory_
  size_t body_bytes_ = 0;
  size_t filled_bytes_ = 0;
};

// The five bytes before a message of `size_bytes`, at most 4 GiB - 1.
std::array<char, 5> MessagePrefix(bool is_compressed, size_t size_bytes);

}  // namespace nereid::rpc
