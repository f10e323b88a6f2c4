// The clients of all ports, told apart by their addresses, and what each may use of the server. A
// client on the server's machine has no limit of its own, because it may be a proxy for many.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "base/byte_budget.h"

namespace nereid::net {

// An IPv4 address, or the first 64 bits of an IPv6 address, which is what one host is given.
using ClientAddress = std::array<uint8_t, 16>;

// The address of the peer of the socket `fd`; none if it is on this machine (IsPeerLocal) or
// unknown. [any thread]
std::optional<ClientAddress> RemoteAddress(int fd);

// Limits on what one client may use; 0 means that there is none.
struct ClientLimits {
  size_t max_connections = 0;    // open at a time
  size_t max_request_bytes = 0;  // of the requests in flight, as a part of the whole budget
};

// [any thread]
class ClientTable {
 public:
  // `whole` is the budget for the requests of all clients. It outlives the table; null: they are
  // not limited.
  ClientTable(ByteBudget* whole, const ClientLimits& limits) : whole_(whole), limits_(limits) {}
  ClientTable(const ClientTable&) = delete;
  ClientTable& operator=(const ClientTable&) = delete;

  // Number of clients that are remembered, for the tests.
  size_t size() const;

 private:
  friend class ClientPlace;
  struct Client {
    Client(ByteBudget* whole, size_t max_bytes)
        : memory(whole, max_bytes, "--max-client-memory-size") {}
    bool is_idle() const { return num_connections == 0 && !memory.is_used(); }

    size_t num_connections = 0;
    BudgetShare memory;
  };

  // Returns null if the client has its maximum of connections.
  Client* Enter(const ClientAddress& address);
  void Leave(Client& client);
  void ForgetIdleClients();

  ByteBudget* const whole_;
  const ClientLimits limits_;
  mutable std::mutex mutex_;  // guards the members below, and those of the clients
  std::map<ClientAddress, Client> clients_;
  // From this size of the table on it is searched for clients that have no connection and whose
  // requests use no memory any more.
  size_t next_search_ = 64;
};

// One connection's place among those of its client, which it leaves when it is destroyed. [one
// owner]
class ClientPlace {
 public:
  // `table` outlives the place; null: no client has a limit. May throw std::bad_alloc.
  ClientPlace(ClientTable* table, int fd)
      : ClientPlace(table, table == nullptr ? std::nullopt : RemoteAddress(fd)) {}
  // Without an address there is no limit.
  ClientPlace(ClientTable* table, const std::optional<ClientAddress>& address);
  ~ClientPlace();
  ClientPlace(const ClientPlace&) = delete;
  ClientPlace& operator=(const ClientPlace&) = delete;

  // False if the client has too many connections. The connection must then be closed.
  bool is_admitted() const { return is_admitted_; }
  // Counts the client's requests, or those of all clients if it has no limit. Null: they are not
  // limited. Valid as long as the place.
  ByteBudget* budget() const { return budget_; }

 private:
  ClientTable* const table_;
  ClientTable::Client* client_ = nullptr;  // null: without a limit, or not admitted
  ByteBudget* budget_ = nullptr;
  bool is_admitted_ = true;
};

}  // namespace nereid::net
