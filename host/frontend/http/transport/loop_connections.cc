// Adds, sweeps and removes the connections of a loop.
#include "host/frontend/http/transport/loop_connections.h"

#include <vector>

namespace nereid::http {

void LoopConnections::Adopt(int fd) {
  auto connection = std::make_unique<Connection>(fd, loop_, *this, service_, limits_);
  if (is_draining_ || !connection->Open(tls_).ok()) {
    port_.OnClosed(index_);
    return;
  }
  Connection* key = connection.get();
  connections_.emplace(key, std::move(connection));
}

void LoopConnections::Remove(Connection* connection) {
  const auto found = connections_.find(connection);
  if (found == connections_.end()) return;
  port_.OnClosed(index_);
  loop_.DestroyLater(std::move(found->second));
  connections_.erase(found);
}

void LoopConnections::OnTick() {
  ++now_s_;
  // A connection may close itself, and so leave the map, while it is asked.
  std::vector<Connection*> all;
  all.reserve(connections_.size());
  for (const auto& [key, connection] : connections_) all.push_back(key);
  for (Connection* connection : all) connection->OnTick(now_s_);
}

// A connection may close itself, and so leave the map, while it is visited.
void LoopConnections::ForEach(void (Connection::*visit)()) {
  std::vector<Connection*> all;
  all.reserve(connections_.size());
  for (const auto& [key, connection] : connections_) all.push_back(key);
  for (Connection* connection : all) (connection->*visit)();
}

void LoopConnections::BeginDrain() {
  is_draining_ = true;
  ForEach(&Connection::BeginDrain);
}

void LoopConnections::EndDrain() {
  ForEach(&Connection::EndDrain);
}

void LoopConnections::CloseAll() {
  while (!connections_.empty()) connections_.begin()->first->Abort();
}

}  // namespace nereid::http
