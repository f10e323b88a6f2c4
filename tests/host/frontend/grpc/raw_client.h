// An HTTP/2 client that sends single frames with uncompressed headers. For tests of the transport.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>

namespace nereid::grpc {

enum FrameType : uint8_t {
  kData = 0,
  kHeaders = 1,
  kReset = 3,
  kSettings = 4,
  kPing = 6,
  kWindowUpdate = 8
};
enum FrameFlag : uint8_t { kNoFlag = 0, kEndStream = 1, kEndHeaders = 4 };

inline std::string Number(uint64_t value, int bytes) {
  std::string text;
  for (int i = bytes - 1; i >= 0; --i) text.push_back(static_cast<char>(value >> (8 * i)));
  return text;
}

inline std::string Frame(uint8_t type, uint8_t flags, uint32_t stream, std::string_view payload) {
  return Number(payload.size(), 3) + static_cast<char>(type) + static_cast<char>(flags) +
         Number(stream, 4) + std::string(payload);
}

inline std::string Header(std::string_view name, std::string_view value) {
  return '\0' + Number(name.size(), 1) + std::string(name) + Number(value.size(), 1) +
         std::string(value);
}

inline std::string CallHeaders(std::string_view path) {
  return Header(":method", "POST") + Header(":scheme", "http") + Header(":path", path) +
         Header(":authority", "x") + Header("content-type", "application/grpc") +
         Header("te", "trailers");
}

inline std::string Framed(std::string_view message) {
  return '\0' + Number(message.size(), 4) + std::string(message);
}

class RawClient {
 public:
  // Connects to this port of 127.0.0.1 from an address in 127.0.0.0/8. A closed connection keeps
  // its source port busy for a minute, so that a test which opens more than some 28,000 connections
  // in that time must change the address that it connects from.
  explicit RawClient(uint16_t port, uint32_t from = INADDR_LOOPBACK)
      : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    const timeval timeout{60, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    const sockaddr_in source = Address(from, 0);
    const sockaddr_in server = Address(INADDR_LOOPBACK, port);
    is_open_ = bind(fd_, reinterpret_cast<const sockaddr*>(&source), sizeof(source)) == 0 &&
               Connect(server);
    Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(kSettings, kNoFlag, 0, ""));
  }
  ~RawClient() { close(fd_); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool is_open() const { return is_open_; }
  // Bytes that the server no longer accepts are dropped.
  void Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent <= 0) return;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
  }

  void EndSending() { shutdown(fd_, SHUT_WR); }

  struct ReadFrame {
    uint8_t type = 0;
    uint8_t flags = 0;
    uint32_t stream = 0;
    std::string payload = {};
  };
  // Returns false at the end of the connection.
  bool Read(ReadFrame& frame) {
    std::string head;
    if (!ReadExactly(9, head)) return false;
    const auto byte = [&](size_t i) {
      return static_cast<uint32_t>(static_cast<uint8_t>(head[i]));
    };
    frame.type = static_cast<uint8_t>(byte(3));
    frame.flags = static_cast<uint8_t>(byte(4));
    frame.stream = byte(5) << 24 | byte(6) << 16 | byte(7) << 8 | byte(8);
    return ReadExactly(byte(0) << 16 | byte(1) << 8 | byte(2), frame.payload);
  }

 private:
  static sockaddr_in Address(uint32_t host, uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(host);
    return address;
  }
  // A signal, such as a fuzzer's timer, may interrupt the call. The connection is then made without
  // it, and the socket can be written to afterwards.
  bool Connect(const sockaddr_in& server) {
    if (connect(fd_, reinterpret_cast<const sockaddr*>(&server), sizeof(server)) == 0) return true;
    if (errno != EINTR) return false;
    pollfd writable{fd_, POLLOUT, 0};
    while (poll(&writable, 1, -1) < 0 && errno == EINTR) {
    }
    int error = 0;
    socklen_t size = sizeof(error);
    return getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
  }
  bool ReadExactly(size_t count, std::string& bytes) {
    bytes.resize(count);
    for (size_t filled = 0; filled < count;) {
      const ssize_t taken = recv(fd_, bytes.data() + filled, count - filled, 0);
      if (taken < 0 && errno == EINTR) continue;
      if (taken <= 0) return false;
      filled += static_cast<size_t>(taken);
    }
    return true;
  }

  const int fd_;
  bool is_open_ = false;
};

}  // namespace nereid::grpc
