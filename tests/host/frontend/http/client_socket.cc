// Uses poll() for the timeouts.
#include "tests/host/frontend/http/client_socket.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace nereid::http {

ClientSocket::ClientSocket(uint16_t port, int receive_buffer_bytes)
    : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  if (receive_buffer_bytes != 0) {
    setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof(receive_buffer_bytes));
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
}

ClientSocket::~ClientSocket() {
  Close();
}

void ClientSocket::Send(std::string_view bytes) {
  EXPECT_TRUE(TrySend(bytes, std::chrono::seconds(10)));
}

bool ClientSocket::TrySend(std::string_view bytes, std::chrono::milliseconds timeout) {
  while (!bytes.empty()) {
    pollfd waited{fd_, POLLOUT, 0};
    if (poll(&waited, 1, static_cast<int>(timeout.count())) != 1) return false;
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent <= 0) return false;
    bytes.remove_prefix(sent);
  }
  return true;
}

void ClientSocket::HalfClose() {
  shutdown(fd_, SHUT_WR);
}

void ClientSocket::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

void ClientSocket::Reset() {
  const linger at_once{1, 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  Close();
}

std::string ClientSocket::ReadUntil(std::string_view until, std::chrono::milliseconds timeout) {
  std::string text;
  char buffer[65536];
  while (text.find(until) == std::string::npos) {
    pollfd waited{fd_, POLLIN, 0};
    if (poll(&waited, 1, static_cast<int>(timeout.count())) != 1) break;
    const ssize_t count = read(fd_, buffer, sizeof(buffer));
    if (count <= 0) break;
    text.append(buffer, count);
  }
  return text;
}

}  // namespace nereid::http
