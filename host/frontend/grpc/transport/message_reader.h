// Splits the DATA of a call into messages. Each has a 5-byte prefix: a compression flag and its
// length. Memory grows with the bytes that have arrived, whatever the length says. [one thread]
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <memory>
#include <string_view>

#include "base/byte_budget.h"
#include "host/frontend/grpc/call.h"
#include "host/frontend/http/bodies/compression.h"

namespace nereid::grpc {

// A message as it arrived.
struct ReceivedMessage {
  Slice bytes;  // its memory is counted in the budget until the last owner releases it
  bool is_compressed = false;
};

class MessageReader {
 public:
  // `encoding` is the encoding of compressed messages. `budget` outlives the messages; null: their
  // sum is not limited.
  MessageReader(size_t max_message_bytes, http::Encoding encoding, ByteBudget* budget)
      : max_message_bytes_(max_message_bytes), encoding_(encoding), budget_(budget) {}

  // Consumes the next bytes and appends the messages that they complete. If the result is not kOk,
  // the call must end with it: RESOURCE_EXHAUSTED for a message above the limit, UNAVAILABLE if the
  // budget or the memory does not suffice, INTERNAL for a malformed prefix.
  CallStatus Feed(std::string_view bytes, std::deque<ReceivedMessage>& messages);

  // True if no message is partly read.
  bool is_at_boundary() const { return prefix_bytes_ == 0; }

 private:
  static constexpr size_t kPrefixBytes = 5;

  size_t TakePrefix(std::string_view bytes);
  CallStatus BeginBody();
  CallStatus TakeBody(std::string_view bytes);
  bool GrowTo(size_t capacity);
  void EndBody(std::deque<ReceivedMessage>& messages);

  const size_t max_message_bytes_;
  const http::Encoding encoding_;
  ByteBudget* const budget_;
  std::array<char, kPrefixBytes> prefix_{};
  size_t prefix_bytes_ = 0;  // bytes of prefix_ that are filled
  std::shared_ptr<char> body_memory_;
  ByteReservation* reservation_ = nullptr;  // in body_memory_; null if that is
  char* body_ = nullptr;                    // in body_memory_
  size_t body_capacity_ = 0;
  size_t body_bytes_ = 0;  // as the prefix says
  size_t filled_bytes_ = 0;
};

// The 5-byte prefix of a message of `size_bytes`, at most 4 GiB - 1.
std::array<char, 5> MessagePrefix(bool is_compressed, size_t size_bytes);

}  // namespace nereid::grpc
