// See send_buffer.h.
#include "host/frontend/grpc/transport/send_buffer.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>

#include "net/tls_session.h"

namespace nereid::grpc {
namespace {

constexpr size_t kMaxBuffers = 64;            // per gathered write
constexpr size_t kMaxKeptBytes = 256 * 1024;  // capacity kept when everything is sent

// Returns the bytes written, 0 if the socket is full, -1 if it has failed.
ssize_t SendGathered(int fd, iovec* buffers, size_t count) {
  msghdr message{};
  message.msg_iov = buffers;
  message.msg_iovlen = count;
  while (true) {
    const ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) return sent;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    if (errno != EINTR) return -1;
  }
}

}  // namespace

void SendBuffer::Append(std::string_view text) {
  if (text.empty()) return;
  text_.append(text);
  unsent_bytes_ += text.size();
  if (first_ < segments_.size() && segments_.back().external == nullptr) {
    segments_.back().size_bytes += text.size();
  } else {
    segments_.push_back({text.size(), nullptr, nullptr});
  }
}

void SendBuffer::Append(std::string_view external, std::shared_ptr<const void> owner) {
  if (external.empty()) return;
  unsent_bytes_ += external.size();
  segments_.push_back({external.size(), external.data(), std::move(owner)});
}

size_t SendBuffer::Gather(iovec* buffers, size_t max_buffers) const {
  size_t count = 0;
  const char* text = text_.data() + text_begin_;
  for (size_t i = first_; i < segments_.size() && count < max_buffers; ++i) {
    const Segment& segment = segments_[i];
    const char* const bytes = segment.external == nullptr ? text : segment.external;
    if (segment.external == nullptr) text += segment.size_bytes;
    buffers[count++] = {const_cast<char*>(bytes), segment.size_bytes};
  }
  return count;
}

void SendBuffer::DropSent(size_t count) {
  unsent_bytes_ -= count;
  num_sent_bytes_ += count;
  while (count > 0) {
    Segment& segment = segments_[first_];
    const size_t taken = count < segment.size_bytes ? count : segment.size_bytes;
    if (segment.external == nullptr) {
      text_begin_ += taken;
    } else {
      segment.external += taken;
    }
    segment.size_bytes -= taken;
    count -= taken;
    if (segment.size_bytes > 0) return;
    segment.owner.reset();
    ++first_;
  }
}

// Removes the bytes that are sent.
void SendBuffer::Compact() {
  segments_.erase(segments_.begin(), segments_.begin() + static_cast<ptrdiff_t>(first_));
  first_ = 0;
  text_.erase(0, text_begin_);
  text_begin_ = 0;
  if (empty() && text_.capacity() > kMaxKeptBytes) text_ = std::string();
}

SendBuffer::Outcome SendBuffer::Flush(int fd, net::TlsSession* tls) {
  Outcome outcome = Outcome::kDrained;
  while (unsent_bytes_ > 0) {
    iovec buffers[kMaxBuffers];
    const size_t count = Gather(buffers, kMaxBuffers);
    const ssize_t sent =
        tls == nullptr ? SendGathered(fd, buffers, count) : tls->Send(buffers, count);
    if (sent < 0) return Outcome::kFailed;
    if (sent == 0) {
      outcome = Outcome::kBlocked;
      break;
    }
    DropSent(static_cast<size_t>(sent));
  }
  Compact();
  return outcome;
}

}  // namespace nereid::grpc
