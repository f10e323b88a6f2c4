// Bytes that wait for their socket: text that the queue owns, and blocks of other owners that are
// sent from where they lie. [loop thread]
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct iovec;

namespace nereid::http {

class TlsSession;

// A piece of an answer. Text is copied when it cannot be sent at once; a block is referenced.
struct OutPiece {
  std::string_view bytes;
  bool is_block = false;
};

class OutputQueue {
 public:
  enum class Outcome { kDrained, kBlocked, kFailed };

  // From now on bytes go through `tls`, which outlives their sending; null: as they are.
  void UseTls(TlsSession* tls) { tls_ = tls; }

  // Sends what is queued, then `pieces`, as far as the socket takes them; the rest is queued.
  // `keep` owns the blocks and lives until the last of them is sent.
  Outcome Send(int fd, std::span<const OutPiece> pieces, std::shared_ptr<const void> keep);
  Outcome Flush(int fd);

  bool empty() const { return segments_.empty(); }
  size_t unsent_bytes() const { return unsent_bytes_; }

 private:
  struct Segment {
    std::string text;        // owned bytes, or
    std::string_view block;  // borrowed ones, while `keep` lives
    std::shared_ptr<const void> keep;
    std::string_view bytes() const { return keep == nullptr ? std::string_view(text) : block; }
  };

  void Enqueue(OutPiece piece, const std::shared_ptr<const void>& keep);
  ssize_t Write(int fd, iovec* pieces, size_t count);

  TlsSession* tls_ = nullptr;
  std::deque<Segment> segments_;
  size_t sent_of_first_ = 0;
  size_t unsent_bytes_ = 0;
};

}  // namespace nereid::http
