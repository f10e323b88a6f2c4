// Bytes that wait for their socket: copied text, and blocks of others that are sent from where they
// lie. One gathered write takes many frames. [loop thread]
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct iovec;

namespace nereid::http {
class TlsSession;
}

namespace nereid::rpc {

class SendBuffer {
 public:
  enum class Outcome { kDrained, kBlocked, kFailed };

  void Append(std::string_view text);
  // `keep` owns `block` and lives until it is sent.
  void Append(std::string_view block, std::shared_ptr<const void> keep);

  // As far as the socket takes it; through `tls` unless that is null.
  Outcome Flush(int fd, http::TlsSession* tls);

  bool empty() const { return unsent_bytes_ == 0; }
  size_t unsent_bytes() const { return unsent_bytes_; }

 private:
  struct Segment {
    size_t size_bytes;
    const char* block;  // null: the next bytes of text_
    std::shared_ptr<const void> keep;
  };

  size_t Gather(iovec* pieces, size_t max_pieces) const;
  void DropSent(size_t count);
  void Compact();

  std::string text_;  // of all segments without a block, one after the other
  std::vector<Segment> segments_;
  size_t first_ = 0;       // segments before it are sent
  size_t text_begin_ = 0;  // in text_, of what is not sent
  size_t unsent_bytes_ = 0;
};

}  // namespace nereid::rpc
