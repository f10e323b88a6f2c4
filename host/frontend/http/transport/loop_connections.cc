// Adds, checks and removes the connections of a loop.
#include "host/frontend/http/transport/loop_connections.h"

#include <sys/socket.h>

#include <new>
#include <vector>

namespace nereid::http {
namespace {

// Sent unchanged to a client beyond a connection limit.
constexpr char kTooManyConnections[] =
    "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: 32\r\n"
    "Connection: close\r\n\r\n{\"error\":\"too many connections\"}";

}  // namespace

void TurnAway(int fd) {
  [[maybe_unused]] const ssize_t sent =
      send(fd, kTooManyConnections, sizeof(kTooManyConnections) - 1, MSG_NOSIGNAL);
}

void LoopConnections::AddConnection(int fd) {
  auto connection = net::MakeConnection<HttpConnection>(fd, loop_, *this, service_, limits_);
  HttpConnection* const key = connection.get();
  if (!key->is_admitted()) TurnAway(fd);
  if (is_draining_ || !key->is_admitted()) {
    socket_server_.OnClosed(index_);
    return;
  }
  connections_.emplace(key, std::move(connection));
  try {
    if (key->Open(tls_).ok()) return;
  } catch (const std::bad_alloc&) {
  }
  connections_.erase(key);
  socket_server_.OnClosed(index_);
}

void LoopConnections::Remove(HttpConnection* connection) {
  const auto found = connections_.find(connection);
  if (found == connections_.end()) return;
  socket_server_.OnClosed(index_);
  loop_.DestroyLater(std::move(found->second));
  connections_.erase(found);
}

void LoopConnections::OnTick() {
  ++now_s_;
  // A connection may close itself during the check and thereby leave the map.
  std::vector<HttpConnection*> all;
  all.reserve(connections_.size());
  for (const auto& [key, connection] : connections_) all.push_back(key);
  for (HttpConnection* connection : all) connection->OnTick(now_s_);
}

// A connection may close itself during the call and thereby leave the map.
void LoopConnections::ForEach(void (HttpConnection::*visit)()) {
  std::vector<HttpConnection*> all;
  all.reserve(connections_.size());
  for (const auto& [key, connection] : connections_) all.push_back(key);
  for (HttpConnection* connection : all) (connection->*visit)();
}

void LoopConnections::BeginDrain() {
  is_draining_ = true;
  ForEach(&HttpConnection::BeginDrain);
}

void LoopConnections::EndDrain() {
  ForEach(&HttpConnection::EndDrain);
}

void LoopConnections::CloseAll() {
  while (!connections_.empty()) connections_.begin()->first->Abort();
}

}  // namespace nereid::http
