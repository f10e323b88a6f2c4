// Bytes that wait to be sent: text that the queue owns, and borrowed bytes that are sent without a
// copy. [loop thread]
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct iovec;

namespace nereid::net {
class TlsSession;
}  // namespace nereid::net

namespace nereid::http {

// A part of a response. Text is copied if it cannot be sent at once; borrowed bytes are referenced.
struct OutputSegment {
  std::string_view bytes;
  bool is_borrowed = false;
};

class OutputQueue {
 public:
  enum class Outcome { kDrained, kBlocked, kFailed };

  // From now on bytes are encrypted with `tls`, which outlives the queue's use of it. Null sends
  // plain bytes.
  void UseTls(net::TlsSession* tls) { tls_ = tls; }

  // Sends the queued bytes, then `segments`, as far as the socket accepts them, and queues the
  // rest. `bytes_owner` keeps the borrowed bytes alive and is released after the last of them is
  // sent.
  Outcome Send(int fd, std::span<const OutputSegment> segments,
               std::shared_ptr<const void> bytes_owner);
  Outcome Flush(int fd);

  bool empty() const { return segments_.empty(); }
  size_t unsent_bytes() const { return unsent_bytes_; }
  // Bytes that were queued because the socket did not accept them at once, and have been sent
  // since.
  uint64_t num_delayed_sent() const { return num_delayed_sent_; }

 private:
  struct QueuedSegment {
    std::string text;           // owned bytes, or
    std::string_view borrowed;  // bytes that `bytes_owner` keeps alive
    std::shared_ptr<const void> bytes_owner;
    std::string_view bytes() const {
      return bytes_owner == nullptr ? std::string_view(text) : borrowed;
    }
  };

  void Enqueue(OutputSegment segment, const std::shared_ptr<const void>& bytes_owner);
  ssize_t Write(int fd, iovec* vectors, size_t count);

  net::TlsSession* tls_ = nullptr;
  std::deque<QueuedSegment> segments_;
  size_t first_sent_bytes_ = 0;
  size_t unsent_bytes_ = 0;
  uint64_t num_delayed_sent_ = 0;
};

}  // namespace nereid::http
