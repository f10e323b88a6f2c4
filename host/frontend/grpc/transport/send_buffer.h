// Bytes waiting to be sent: copied text, and external memory that is sent without a copy. One
// gathered write takes many frames. [loop thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct iovec;

namespace nereid::net {
class TlsSession;
}  // namespace nereid::net

namespace nereid::http {}

namespace nereid::grpc {

class SendBuffer {
 public:
  enum class Outcome { kDrained, kBlocked, kFailed };

  void Append(std::string_view text);
  // Appends bytes that are not copied. `owner` keeps them alive until they are sent.
  void Append(std::string_view external, std::shared_ptr<const void> owner);

  // Sends as much as the socket accepts; through `tls` unless it is null.
  Outcome Flush(int fd, net::TlsSession* tls);

  bool empty() const { return unsent_bytes_ == 0; }
  size_t unsent_bytes() const { return unsent_bytes_; }
  uint64_t num_sent_bytes() const { return num_sent_bytes_; }

 private:
  struct Segment {
    size_t size_bytes;
    const char* external;  // null: the next bytes of text_
    std::shared_ptr<const void> owner;
  };

  size_t Gather(iovec* buffers, size_t max_buffers) const;
  void DropSent(size_t count);
  void Compact();

  std::string text_;  // concatenated text of the segments without external memory
  std::vector<Segment> segments_;
  size_t first_ = 0;       // index of the first unsent segment
  size_t text_begin_ = 0;  // offset of the first unsent byte in text_
  size_t unsent_bytes_ = 0;
  uint64_t num_sent_bytes_ = 0;
};

}  // namespace nereid::grpc
