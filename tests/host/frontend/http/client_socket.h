// A client that can misbehave: raw bytes in and out over a loopback socket.
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
  // False when the socket took no more for `patience`.
  bool TrySend(std::string_view bytes, std::chrono::milliseconds patience);
  void HalfClose();
  void Close();

  // What has come when `until` has, or the server closed, or `patience` is over.
  std::string ReadUntil(std::string_view until,
                        std::chrono::milliseconds patience = std::chrono::seconds(10));
  // All that comes until the server closes.
  std::string ReadAll() { return ReadUntil("\x01never\x01"); }

 private:
  int fd_;
};

}  // namespace nereid::http
