// Gathered writes without signals; what does not fit is kept in order.
#include "host/frontend/http/transport/output_queue.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "host/frontend/http/transport/tls_session.h"

namespace nereid::http {
namespace {

constexpr size_t kMaxPieces = 64;              // of one gathered write
constexpr size_t kMaxTextSegment = 64 * 1024;  // small texts share a segment up to this size

// Bytes written, 0 when the socket is full, -1 when it is broken.
ssize_t SendGathered(int fd, iovec* pieces, size_t count) {
  msghdr message{};
  message.msg_iov = pieces;
  message.msg_iovlen = count;
  constexpr int kFlags = MSG_NOSIGNAL | MSG_DONTWAIT;
  while (true) {
    // Most answers are one piece, which the kernel takes with less ado.
    const ssize_t sent = count == 1 ? send(fd, pieces->iov_base, pieces->iov_len, kFlags)
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

ssize_t OutputQueue::Write(int fd, iovec* pieces, size_t count) {
  return tls_ == nullptr ? SendGathered(fd, pieces, count) : tls_->Send(pieces, count);
}

void OutputQueue::Enqueue(OutPiece piece, const std::shared_ptr<const void>& keep) {
  if (piece.bytes.empty()) return;
  unsent_bytes_ += piece.bytes.size();
  if (piece.is_block && keep != nullptr) {
    segments_.push_back({{}, piece.bytes, keep});
    return;
  }
  if (!segments_.empty() && segments_.back().keep == nullptr &&
      segments_.back().text.size() + piece.bytes.size() <= kMaxTextSegment) {
    segments_.back().text.append(piece.bytes);
  } else {
    segments_.push_back({std::string(piece.bytes), {}, nullptr});
  }
}

OutputQueue::Outcome OutputQueue::Send(int fd, std::span<const OutPiece> pieces,
                                       std::shared_ptr<const void> keep) {
  size_t first_unsent = 0;
  size_t sent_of_it = 0;
  if (segments_.empty() && pieces.size() <= kMaxPieces) {
    std::array<iovec, kMaxPieces> vectors;
    for (size_t i = 0; i < pieces.size(); ++i) vectors[i] = ToIovec(pieces[i].bytes);
    const ssize_t sent = Write(fd, vectors.data(), pieces.size());
    if (sent < 0) return Outcome::kFailed;
    size_t left = sent;
    while (first_unsent < pieces.size() && left >= pieces[first_unsent].bytes.size()) {
      left -= pieces[first_unsent++].bytes.size();
    }
    sent_of_it = left;
  }
  for (size_t i = first_unsent; i < pieces.size(); ++i) {
    Enqueue({pieces[i].bytes.substr(i == first_unsent ? sent_of_it : 0), pieces[i].is_block}, keep);
  }
  return segments_.empty() ? Outcome::kDrained : Outcome::kBlocked;
}

OutputQueue::Outcome OutputQueue::Flush(int fd) {
  while (!segments_.empty()) {
    std::array<iovec, kMaxPieces> vectors;
    const size_t count = std::min(segments_.size(), kMaxPieces);
    for (size_t i = 0; i < count; ++i) {
      vectors[i] = ToIovec(segments_[i].bytes().substr(i == 0 ? sent_of_first_ : 0));
    }
    const ssize_t sent = Write(fd, vectors.data(), count);
    if (sent < 0) return Outcome::kFailed;
    if (sent == 0) return Outcome::kBlocked;
    unsent_bytes_ -= sent;
    sent_of_first_ += sent;
    while (!segments_.empty() && sent_of_first_ >= segments_.front().bytes().size()) {
      sent_of_first_ -= segments_.front().bytes().size();
      segments_.pop_front();
    }
  }
  return Outcome::kDrained;
}

}  // namespace nereid::http
