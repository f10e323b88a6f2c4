// See client_table.h.
#include "net/client_table.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "net/peer.h"

namespace nereid::net {

std::optional<ClientAddress> RemoteAddress(int fd) {
  sockaddr_storage peer = {};
  socklen_t bytes = sizeof(peer);
  if (IsPeerLocal(fd)) return std::nullopt;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &bytes) != 0) return std::nullopt;
  ClientAddress address = {};
  if (peer.ss_family == AF_INET) {
    const in_addr& source = reinterpret_cast<const sockaddr_in&>(peer).sin_addr;
    // As IPv6 maps it, so that a client is the same one on ports of both families.
    address[10] = address[11] = 0xff;
    std::memcpy(&address[12], &source, sizeof(source));
    return address;
  }
  if (peer.ss_family != AF_INET6) return std::nullopt;
  const in6_addr& source = reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr;
  std::memcpy(address.data(), &source, IN6_IS_ADDR_V4MAPPED(&source) ? sizeof(source) : 8);
  return address;
}

size_t ClientTable::size() const {
  const std::lock_guard lock(mutex_);
  return clients_.size();
}

ClientTable::Client* ClientTable::Enter(const ClientAddress& address) {
  const std::lock_guard lock(mutex_);
  if (clients_.size() >= next_search_) ForgetIdleClients();
  Client& client = clients_.try_emplace(address, whole_, limits_.max_request_bytes).first->second;
  if (limits_.max_connections != 0 && client.num_connections >= limits_.max_connections) {
    return nullptr;
  }
  ++client.num_connections;
  return &client;
}

void ClientTable::Leave(Client& client) {
  const std::lock_guard lock(mutex_);
  if (--client.num_connections == 0 && clients_.size() >= next_search_) ForgetIdleClients();
}

// Requires mutex_. The next search is so far away that all searches together take linear time.
void ClientTable::ForgetIdleClients() {
  std::erase_if(clients_, [](const auto& entry) { return entry.second.is_idle(); });
  next_search_ = std::max<size_t>(64, 2 * clients_.size());
}

ClientPlace::ClientPlace(ClientTable* table, const std::optional<ClientAddress>& address)
    : table_(table), budget_(table == nullptr ? nullptr : table->whole_) {
  if (table == nullptr || !address) return;
  client_ = table->Enter(*address);
  is_admitted_ = client_ != nullptr;
  if (client_ != nullptr) budget_ = client_->memory.budget();
}

ClientPlace::~ClientPlace() {
  if (client_ != nullptr) table_->Leave(*client_);
}

}  // namespace nereid::net
