// See message_reader.h.
#include "host/frontend/grpc/transport/message_reader.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>

namespace nereid::grpc {
namespace {

// Most messages end with their largest tensor. If a message ends at an aligned address, that tensor
// also begins at one aligned for its elements, and need not be copied.
constexpr size_t kEndAlignment = 64;

}  // namespace

CallStatus MessageReader::Feed(std::string_view bytes, std::deque<Slice>& messages) {
  while (!bytes.empty()) {
    if (prefix_bytes_ < kPrefixBytes) {
      bytes.remove_prefix(TakePrefix(bytes));
      if (prefix_bytes_ < kPrefixBytes) break;
      if (CallStatus status = BeginBody(); status.code != GrpcCode::kOk) return status;
    }
    const size_t count = std::min(bytes.size(), body_bytes_ - filled_bytes_);
    if (count > 0) std::memcpy(body_ + filled_bytes_, bytes.data(), count);
    filled_bytes_ += count;
    bytes.remove_prefix(count);
    if (filled_bytes_ < body_bytes_) continue;
    if (CallStatus status = EndBody(messages); status.code != GrpcCode::kOk) return status;
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
  filled_bytes_ = 0;
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
  const size_t capacity = body_bytes_ + kEndAlignment;
  char* const memory = new (std::nothrow) char[capacity];
  if (memory == nullptr) {
    return {GrpcCode::kResourceExhausted,
            StrCat("message: cannot allocate ", body_bytes_, " bytes")};
  }
  body_memory_.reset(memory, std::default_delete<char[]>());
  const auto end = reinterpret_cast<uintptr_t>(memory) + capacity;
  body_ = memory + capacity - end % kEndAlignment - body_bytes_;
  return {};
}

CallStatus MessageReader::EndBody(std::deque<Slice>& messages) {
  prefix_bytes_ = 0;
  const std::string_view body(body_, body_bytes_);
  if (prefix_[0] == 0) {
    messages.push_back({body, std::move(body_memory_)});
    return {};
  }
  Result<http::ByteBuffer> plain = http::Decompress(encoding_, body, max_message_bytes_);
  body_memory_.reset();
  if (!plain.ok()) return {GrpcCode::kInternal, StrCat("message: ", plain.status().message())};
  auto owner = std::make_shared<const http::ByteBuffer>(std::move(plain).value());
  const std::string_view bytes = owner->view();
  messages.push_back({bytes, std::move(owner)});
  return {};
}

std::array<char, 5> MessagePrefix(bool is_compressed, size_t size_bytes) {
  std::array<char, 5> prefix{static_cast<char>(is_compressed ? 1 : 0)};
  for (size_t i = 0; i < 4; ++i) prefix[4 - i] = static_cast<char>(size_bytes >> (8 * i));
  return prefix;
}

}  // namespace nereid::grpc
