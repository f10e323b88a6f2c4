#include "backends/python_like_scripted/channel.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <cstring>

#include "backends/python_like_scripted/marshal.h"

namespace nereid::python {
namespace {

// The first byte of a packet that gives the message's location in shared memory. Messages are
// tuples and begin differently.
constexpr char kIndirectTag = 'l';

Status WorkerClosedError() {
  return UnavailableError("the worker is gone");
}

}  // namespace

Result<std::unique_ptr<Channel>> Channel::Create(UniqueFd* worker_end, SharedRegion* outgoing,
                                                 SharedRegion* incoming) {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0) {
    return UnavailableError("socketpair: ", std::strerror(errno));
  }
  worker_end->Reset(fds[1]);
  UniqueFd own_end(fds[0]);
  const timeval longest{kMaxWait.count() / 1000, kMaxWait.count() % 1000 * 1000};
  if (setsockopt(own_end.get(), SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof longest) != 0) {
    return UnavailableError("SO_RCVTIMEO: ", std::strerror(errno));
  }
  return std::unique_ptr<Channel>(new Channel(std::move(own_end), outgoing, incoming));
}

Result<std::string> Channel::ToPacket(std::string message) {
  if (message.size() <= kMaxPacketBytes) return message;
  NEREID_ASSIGN_OR_RETURN(const SharedBlock block, outgoing_->Allocate(message.size()));
  std::memcpy(block.data(), message.data(), message.size());
  const uint64_t location[2] = {block.offset, block.size_bytes};
  std::string packet(1, kIndirectTag);
  packet.append(reinterpret_cast<const char*>(location), sizeof location);
  return packet;
}

Result<std::string> Channel::FromPacket(std::string packet) {
  uint64_t location[2];
  if (packet.empty() || packet.front() != kIndirectTag) return packet;
  if (packet.size() != 1 + sizeof location)
    return InvalidArgError("a packet without the location of its message");
  std::memcpy(location, packet.data() + 1, sizeof location);
  NEREID_ASSIGN_OR_RETURN(const SharedBlock block, incoming_->Find(location[0], location[1]));
  std::string message(reinterpret_cast<const char*>(block.data()), block.size_bytes);
  block.Release();
  return message;
}

Status Channel::Send(std::string message) {
  NEREID_ASSIGN_OR_RETURN(const std::string packet, ToPacket(std::move(message)));
  while (send(fd_.get(), packet.data(), packet.size(), MSG_NOSIGNAL) < 0) {
    if (errno == EINTR) continue;
    is_closed_ = true;
    return WorkerClosedError();
  }
  return {};
}

Status Channel::Post(std::string message) {
  NEREID_ASSIGN_OR_RETURN(std::string packet, ToPacket(std::move(message)));
  std::lock_guard lock(mutex_);
  unsent_.push_back(std::move(packet));
  return {};
}

bool Channel::Flush() {
  std::lock_guard lock(mutex_);
  while (!unsent_.empty()) {
    const std::string& packet = unsent_.front();
    const ssize_t sent = send(fd_.get(), packet.data(), packet.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS)) return false;
    unsent_.pop_front();  // sent, or dropped because the worker has closed the socket
  }
  return true;
}

Result<std::optional<std::string>> Channel::Receive(int timeout_ms) {
  if (timeout_ms > 0) {
    pollfd ready{fd_.get(), POLLIN, 0};
    int count = 0;
    while ((count = poll(&ready, 1, timeout_ms)) < 0 && errno == EINTR) {
    }
    if (count == 0) return std::optional<std::string>();
  }
  thread_local std::string buffer(2 * kMaxPacketBytes, '\0');
  ssize_t size = 0;
  const int flags = timeout_ms == 0 ? MSG_DONTWAIT : 0;
  // A peer that closes with unread messages causes one ECONNRESET before the messages that it had
  // sent.
  while ((size = recv(fd_.get(), buffer.data(), buffer.size(), flags | MSG_TRUNC)) < 0 &&
         (errno == EINTR || errno == ECONNRESET)) {
  }
  if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return std::optional<std::string>();
  if (size <= 0) {
    is_closed_ = true;
    return std::optional<std::string>();
  }
  if (static_cast<size_t>(size) > buffer.size()) {
    return InvalidArgError("a message of ", size, " bytes where at most ", buffer.size(),
                           " were expected");
  }
  NEREID_ASSIGN_OR_RETURN(std::string message,
                          FromPacket(buffer.substr(0, static_cast<size_t>(size))));
  return std::optional<std::string>(std::move(message));
}

void Channel::Shutdown() {
  is_closed_ = true;
  shutdown(fd_.get(), SHUT_RDWR);
}

}  // namespace nereid::python
