// Gathered writes without signals. Bytes that the socket does not accept are queued in order.
#include "host/frontend/http/transport/output_queue.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "net/tls_session.h"

namespace nereid::http {
namespace {

constexpr size_t kMaxGatheredSegments = 64;    // per gathered write
constexpr size_t kMaxTextSegment = 64 * 1024;  // small texts are joined up to this size

// Returns the number of bytes written, 0 if the socket is full, or -1 if it has failed.
ssize_t SendGathered(int fd, iovec* vectors, size_t count) {
  msghdr message{};
  message.msg_iov = vectors;
  message.msg_iovlen = count;
  constexpr int kFlags = MSG_NOSIGNAL | MSG_DONTWAIT;
  while (true) {
    // Most responses are one segment, for which send() costs the kernel less.
    const ssize_t sent = count == 1 ? send(fd, vectors->iov_base, vectors->iov_len, kFlags)
                                    : sendmsg(fd, &message, kFlags);
    if (sent >= 0) return sent;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    if (errno != EINTR) return -1;
  }
}

iovec ToIovec(std::string_view bytes) {
  return {const_cast<char*>(bytes.data()), bytes.size()};
}

}  // namespace

ssize_t OutputQueue::Write(int fd, iovec* vectors, size_t count) {
  return tls_ == nullptr ? SendGathered(fd, vectors, count) : tls_->Send(vectors, count);
}

void OutputQueue::Enqueue(OutputSegment segment, const std::shared_ptr<const void>& bytes_owner) {
  if (segment.bytes.empty()) return;
  unsent_bytes_ += segment.bytes.size();
  if (segment.is_borrowed && bytes_owner != nullptr) {
    segments_.push_back({{}, segment.bytes, bytes_owner});
    return;
  }
  if (!segments_.empty() && segments_.back().bytes_owner == nullptr &&
      segments_.back().text.size() + segment.bytes.size() <= kMaxTextSegment) {
    segments_.back().text.append(segment.bytes);
  } else {
    segments_.push_back({std::string(segment.bytes), {}, nullptr});
  }
}

OutputQueue::Outcome OutputQueue::Send(int fd, std::span<const OutputSegment> segments,
                                       std::shared_ptr<const void> bytes_owner) {
  size_t first_unsent = 0;
  size_t sent_bytes = 0;
  if (segments_.empty() && segments.size() <= kMaxGatheredSegments) {
    std::array<iovec, kMaxGatheredSegments> vectors;
    for (size_t i = 0; i < segments.size(); ++i) vectors[i] = ToIovec(segments[i].bytes);
    const ssize_t sent = Write(fd, vectors.data(), segments.size());
    if (sent < 0) return Outcome::kFailed;
    size_t left = sent;
    while (first_unsent < segments.size() && left >= segments[first_unsent].bytes.size()) {
      left -= segments[first_unsent++].bytes.size();
    }
    sent_bytes = left;
  }
  for (size_t i = first_unsent; i < segments.size(); ++i) {
    Enqueue({segments[i].bytes.substr(i == first_unsent ? sent_bytes : 0), segments[i].is_borrowed},
            bytes_owner);
  }
  return segments_.empty() ? Outcome::kDrained : Outcome::kBlocked;
}

OutputQueue::Outcome OutputQueue::Flush(int fd) {
  while (!segments_.empty()) {
    std::array<iovec, kMaxGatheredSegments> vectors;
    const size_t count = std::min(segments_.size(), kMaxGatheredSegments);
    for (size_t i = 0; i < count; ++i) {
      vectors[i] = ToIovec(segments_[i].bytes().substr(i == 0 ? first_sent_bytes_ : 0));
    }
    const ssize_t sent = Write(fd, vectors.data(), count);
    if (sent < 0) return Outcome::kFailed;
    if (sent == 0) return Outcome::kBlocked;
    unsent_bytes_ -= sent;
    num_delayed_sent_ += sent;
    first_sent_bytes_ += sent;
    while (!segments_.empty() && first_sent_bytes_ >= segments_.front().bytes().size()) {
      first_sent_bytes_ -= segments_.front().bytes().size();
      segments_.pop_front();
    }
  }
  return Outcome::kDrained;
}

}  // namespace nereid::http
