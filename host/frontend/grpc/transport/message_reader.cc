// See message_reader.h.
#include "host/frontend/grpc/transport/message_reader.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

namespace nereid::grpc {
namespace {

// Most messages end with their largest tensor. If a message ends at an aligned address, that tensor
// also begins at one aligned for its elements, and need not be copied.
constexpr size_t kEndAlignment = 64;
// Memory that a message gets before any of it has arrived.
constexpr size_t kFirstBodyBytes = 16 << 10;
// A message that arrives in parts is counted in steps of this size.
constexpr size_t kReservationStep = 64 << 10;

// Precedes the bytes of a message in the same allocation.
struct alignas(std::max_align_t) MessageHead {
  explicit MessageHead(ByteBudget* budget) : reservation(budget) {}
  ByteReservation reservation;
};

char* BytesBehind(MessageHead* head) {
  return reinterpret_cast<char*>(head + 1);
}

void FreeMessage(char* bytes) {
  MessageHead* const head = reinterpret_cast<MessageHead*>(bytes) - 1;
  head->~MessageHead();
  ::operator delete(head);
}

}  // namespace

CallStatus MessageReader::Feed(std::string_view bytes, std::deque<ReceivedMessage>& messages) {
  while (!bytes.empty()) {
    if (prefix_bytes_ < kPrefixBytes) {
      bytes.remove_prefix(TakePrefix(bytes));
      if (prefix_bytes_ < kPrefixBytes) break;
      if (CallStatus status = BeginBody(); status.code != GrpcCode::kOk) return status;
    }
    const size_t count = std::min(bytes.size(), body_bytes_ - filled_bytes_);
    if (CallStatus status = TakeBody(bytes.substr(0, count)); status.code != GrpcCode::kOk) {
      return status;
    }
    bytes.remove_prefix(count);
    if (filled_bytes_ == body_bytes_) EndBody(messages);
  }
  return {};
}

size_t MessageReader::TakePrefix(std::string_view bytes) {
  const size_t count = std::min(bytes.size(), kPrefixBytes - prefix_bytes_);
  std::memcpy(prefix_.data() + prefix_bytes_, bytes.data(), count);
  prefix_bytes_ += count;
  return count;
}

CallStatus MessageReader::BeginBody() {
  body_bytes_ = 0;
  for (size_t i = 1; i < kPrefixBytes; ++i) {
    body_bytes_ = body_bytes_ << 8 | static_cast<unsigned char>(prefix_[i]);
  }
  filled_bytes_ = body_capacity_ = 0;
  const int flag = static_cast<unsigned char>(prefix_[0]);
  if (flag > 1) {
    return {GrpcCode::kInternal, StrCat("message: expected compression flag 0 or 1, got ", flag)};
  }
  if (flag == 1 && encoding_ == http::Encoding::kIdentity) {
    return {GrpcCode::kInternal,
            "message: it is compressed, but the call has no grpc-encoding header"};
  }
  if (body_bytes_ > max_message_bytes_) {
    return {GrpcCode::kResourceExhausted, StrCat("Received message larger than max (", body_bytes_,
                                                 " vs. ", max_message_bytes_, ")")};
  }
  return {};
}

// Appends the next bytes of the message. Its memory is allocated when the first of them arrive.
CallStatus MessageReader::TakeBody(std::string_view bytes) {
  const size_t needed = filled_bytes_ + bytes.size();
  if (needed > body_capacity_ || body_memory_ == nullptr) {
    const size_t capacity = CapacityOfClaim(body_bytes_, needed, kFirstBodyBytes);
    if (!GrowTo(std::max(capacity, needed))) {
      return {GrpcCode::kUnavailable,
              StrCat("cannot allocate memory for a message of ", body_bytes_, " bytes")};
    }
  }
  const size_t steps = (needed + kReservationStep - 1) / kReservationStep;
  if (!reservation_->GrowTo(std::min(steps * kReservationStep, body_capacity_))) {
    const ByteBudget& budget = budget_->tightest();
    return {GrpcCode::kUnavailable,
            StrCat("a message of ", body_bytes_,
                   " bytes exceeds the memory for requests in flight: ", budget.used_bytes(),
                   " of ", budget.max_bytes(), " bytes are in use (", budget.flag(), ")")};
  }
  if (!bytes.empty()) std::memcpy(body_ + filled_bytes_, bytes.data(), bytes.size());
  filled_bytes_ = needed;
  return {};
}

// Moves the message to memory for `capacity` bytes. Returns false if there is none.
bool MessageReader::GrowTo(size_t capacity) {
  const size_t size_bytes = sizeof(MessageHead) + capacity + kEndAlignment;
  void* const memory = ::operator new(size_bytes, std::nothrow);
  if (memory == nullptr) return false;
  auto* const head = new (memory) MessageHead(budget_);
  std::shared_ptr<char> body_memory(BytesBehind(head), &FreeMessage);
  const auto end = reinterpret_cast<uintptr_t>(memory) + size_bytes;
  char* const body = static_cast<char*>(memory) + size_bytes - end % kEndAlignment - capacity;
  if (filled_bytes_ > 0) std::memcpy(body, body_, filled_bytes_);
  if (reservation_ != nullptr) head->reservation = std::move(*reservation_);
  body_memory_ = std::move(body_memory);
  reservation_ = &head->reservation;
  body_ = body;
  body_capacity_ = capacity;
  return true;
}

void MessageReader::EndBody(std::deque<ReceivedMessage>& messages) {
  prefix_bytes_ = 0;
  reservation_ = nullptr;
  messages.push_back({{{body_, body_bytes_}, std::move(body_memory_)}, prefix_[0] != 0});
}

std::array<char, 5> MessagePrefix(bool is_compressed, size_t size_bytes) {
  std::array<char, 5> prefix{static_cast<char>(is_compressed ? 1 : 0)};
  for (size_t i = 0; i < 4; ++i) prefix[4 - i] = static_cast<char>(size_bytes >> (8 * i));
  return prefix;
}

}  // namespace nereid::grpc
