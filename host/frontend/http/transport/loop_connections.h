// The connections of one loop. It owns them and checks them once a second for timeouts. [loop
// thread, unless stated otherwise]
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "host/frontend/http/transport/http_connection.h"
#include "host/frontend/http/transport/http_request.h"
#include "host/frontend/http/transport/http_service.h"
#include "net/event_loop.h"
#include "net/socket_server.h"

namespace nereid::http {

// Tells a client that there are too many connections, its own or all together. The caller closes
// `fd`.
void TurnAway(int fd);

class LoopConnections {
 public:
  // All references outlive this object. `index` is the index of the server's loop. `tls` is null on
  // a port without TLS.
  LoopConnections(net::SocketServer& socket_server, size_t index, HttpService& service,
                  const HttpLimits& limits, const net::TlsContext* tls)
      : socket_server_(socket_server),
        index_(index),
        loop_(socket_server.loop(index)),
        service_(service),
        limits_(limits),
        tls_(tls) {}

  // Takes ownership of `fd`, a socket that was assigned to this loop.
  void AddConnection(int fd);
  // Removes a connection that has closed itself. It is destroyed after its callback has returned.
  void Remove(HttpConnection* connection);

  // Coarse clock that advances once a second.
  int64_t now_s() const { return now_s_; }
  void OnTick();

  // [any thread] Number of requests so far, and number of those without a complete response.
  uint64_t num_requests() const { return num_requests_.load(std::memory_order_relaxed); }
  uint64_t num_running() const {
    return num_requests() - num_responses_.load(std::memory_order_relaxed);
  }
  // [any thread] Number of connections kept open for sequences.
  size_t num_kept_open() const { return num_kept_open_.load(std::memory_order_relaxed); }
  void OnKeptOpen() { num_kept_open_.fetch_add(1, std::memory_order_relaxed); }
  void OnNotKeptOpen() { num_kept_open_.fetch_sub(1, std::memory_order_relaxed); }
  void OnRequestStart() { Increase(num_requests_); }
  void OnRequestEnd() { Increase(num_responses_); }

  // Closes idle connections. The others close after their request, unless they are kept open for
  // sequences.
  void BeginDrain();
  // Closes the connections kept open for sequences, too.
  void EndDrain();
  void CloseAll();

 private:
  void ForEach(void (HttpConnection::*visit)());
  // Only the loop writes the counter.
  static void Increase(std::atomic<uint64_t>& count) {
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  net::SocketServer& socket_server_;
  const size_t index_;
  net::EventLoop& loop_;
  HttpService& service_;
  const HttpLimits& limits_;
  const net::TlsContext* const tls_;
  std::unordered_map<HttpConnection*, std::unique_ptr<HttpConnection>> connections_;
  int64_t now_s_ = 0;
  std::atomic<uint64_t> num_requests_{0};
  std::atomic<uint64_t> num_responses_{0};
  std::atomic<size_t> num_kept_open_{0};
  bool is_draining_ = false;
};

}  // namespace nereid::http
