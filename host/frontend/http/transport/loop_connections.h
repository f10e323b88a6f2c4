// The connections of one loop: keeps them, and sweeps them once a second for those that stall.
// [loop thread, where not said]
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "host/frontend/http/transport/connection.h"
#include "host/frontend/http/transport/event_loop.h"
#include "host/frontend/http/transport/limits.h"
#include "host/frontend/http/transport/port.h"
#include "host/frontend/http/transport/service.h"

namespace nereid::http {

class LoopConnections {
 public:
  // All outlive this object. `index`: of the port's loop; `tls` is null where sockets carry plain
  // HTTP.
  LoopConnections(Port& port, size_t index, Service& service, const Limits& limits,
                  const TlsContext* tls)
      : port_(port),
        index_(index),
        loop_(port.loop(index)),
        service_(service),
        limits_(limits),
        tls_(tls) {}

  // Takes `fd`, a socket that the port dealt.
  void Adopt(int fd);
  // The connection closed itself; it dies once its callback has returned.
  void Remove(Connection* connection);

  // Coarse: advances once a second.
  int64_t now_s() const { return now_s_; }
  void OnTick();

  // [any thread] Requests so far, and those of them that have no answer yet.
  uint64_t num_requests() const { return num_requests_.load(std::memory_order_relaxed); }
  uint64_t num_running() const {
    return num_requests() - num_answers_.load(std::memory_order_relaxed);
  }
  // [any thread] Connections that are kept for sequences.
  size_t num_kept() const { return num_kept_.load(std::memory_order_relaxed); }
  void OnKept() { num_kept_.fetch_add(1, std::memory_order_relaxed); }
  void OnNotKept() { num_kept_.fetch_sub(1, std::memory_order_relaxed); }
  void OnRequest() { Increase(num_requests_); }
  void OnAnswer() { Increase(num_answers_); }

  // Closes idle connections; the others end with their request, unless they are kept.
  void BeginDrain();
  // Those, too.
  void EndDrain();
  void CloseAll();

 private:
  void ForEach(void (Connection::*visit)());
  // One writer: the loop.
  static void Increase(std::atomic<uint64_t>& count) {
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  Port& port_;
  const size_t index_;
  EventLoop& loop_;
  Service& service_;
  const Limits& limits_;
  const TlsContext* const tls_;
  std::unordered_map<Connection*, std::unique_ptr<Connection>> connections_;
  int64_t now_s_ = 0;
  std::atomic<uint64_t> num_requests_{0};
  std::atomic<uint64_t> num_answers_{0};
  std::atomic<size_t> num_kept_{0};
  bool is_draining_ = false;
};

}  // namespace nereid::http
