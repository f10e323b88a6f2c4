// A listening socket and the event loops that share its connections: accepts on the first loop and
// deals the sockets out, so that every loop has its share. Both protocols stand on it.
// [owner thread, where not said]
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "host/frontend/http/transport/event_loop.h"
#include "host/frontend/http/transport/listener.h"
#include "nereid/status.h"

namespace nereid::http {

// At most 8. More loops than cores would only add wake-ups: connections of one loop share them.
int OneLoopACore();

struct PortOptions {
  ListenAddress address;
  int num_loops = OneLoopACore();
  const char* loop_name = "http-loop";
};

// What a protocol does with a port's sockets. Outlives the port's loops.
class PortUser {
 public:
  // [first loop] False: there is no room for `fd`, which the port closes.
  virtual bool Admit(int fd) = 0;
  // [the loop of that index] `fd` was admitted and is the user's from now on, who says
  // Port::OnClosed when its connection is gone.
  virtual void Adopt(size_t loop, int fd) = 0;

 protected:
  ~PortUser() = default;
};

class Port {
 public:
  // Listens; clients wait until Serve.
  static Result<std::unique_ptr<Port>> Open(const PortOptions& options);
  // As StopLoops.
  ~Port();
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  uint16_t port() const { return listener_.port(); }
  size_t num_loops() const { return loops_.size(); }
  EventLoop& loop(size_t index) { return *loops_[index]; }
  // [any thread] Admitted connections that are not closed yet.
  size_t num_open() const;
  // [any thread] A connection of that loop closed.
  void OnClosed(size_t loop) { num_open_[loop].fetch_sub(1); }

  // Starts the loops and accepts.
  Status Serve(PortUser& user);
  // Accepts nobody any more. Once.
  void StopAccepting();
  // Joins the loops' threads; what was posted has run.
  void StopLoops();

 private:
  Port(Listener listener, const char* loop_name)
      : loop_name_(loop_name), listener_(std::move(listener)) {}
  void OnAcceptable();
  void Deal(int fd);
  size_t LoopFor(int fd) const;
  static void OnAcceptEvent(int fd, short what, void* self);

  const char* const loop_name_;
  Listener listener_;  // first loop, once Serve was called
  std::vector<std::unique_ptr<EventLoop>> loops_;
  PortUser* user_ = nullptr;
  event* accept_event_ = nullptr;
  std::vector<std::atomic<size_t>> num_open_;  // connections by loop; up: first loop only
};

}  // namespace nereid::http
