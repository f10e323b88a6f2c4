// A test client over a loopback socket that sends and receives raw bytes, so that it can violate
// the protocol.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace nereid::http {

class ClientSocket {
 public:
  explicit ClientSocket(uint16_t port, int receive_buffer_bytes = 0);
  ~ClientSocket();

  void Send(std::string_view bytes);
  // Returns false if the socket accepts no more bytes for `timeout`.
  bool TrySend(std::string_view bytes, std::chrono::milliseconds timeout);
  void HalfClose();
  void Close();
  // Closes the socket with a reset.
  void Reset();

  // Reads until `until` has been received, the server closes, or nothing arrives for `timeout`.
  // Returns everything received.
  std::string ReadUntil(std::string_view until,
                        std::chrono::milliseconds timeout = std::chrono::seconds(10));
  // Reads until the server closes.
  std::string ReadAll() { return ReadUntil("\x01never\x01"); }

 private:
  int fd_;
};

}  // namespace nereid::http
