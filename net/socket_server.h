// A listening socket and the event loops that share its connections. The first loop accepts, and
// each connection is assigned to one loop. The HTTP and the gRPC server both use it. [owner thread,
// unless stated otherwise]
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "nereid/status.h"
#include "net/event_loop.h"
#include "net/listener.h"

namespace nereid::net {

// One loop per core, at most 8. More loops would only add wake-ups, because the connections of one
// loop share them.
int DefaultNumLoops();

struct SocketServerOptions {
  ListenAddress address;
  int num_loops = DefaultNumLoops();
  const char* loop_name = "http-loop";
};

// What a protocol does with accepted sockets. Outlives the server's loops.
class ConnectionHandler {
 public:
  // [first loop] Returns false if the connection limit is reached. The server then closes `fd`.
  virtual bool Admit(int fd) = 0;
  // [the loop of that index] Takes ownership of the admitted `fd`. The handler calls
  // SocketServer::OnClosed when the connection has closed. If it throws std::bad_alloc, it has
  // closed `fd`, and does not call OnClosed.
  virtual void AddConnection(size_t loop, int fd) = 0;

 protected:
  ~ConnectionHandler() = default;
};

// Returns a new connection that owns `fd`. If there is no memory for it, closes `fd` and throws
// std::bad_alloc.
template <typename Connection, typename... Args>
std::unique_ptr<Connection> MakeConnection(int fd, Args&&... args) {
  try {
    return std::make_unique<Connection>(fd, std::forward<Args>(args)...);
  } catch (const std::bad_alloc&) {
    close(fd);
    throw;
  }
}

class SocketServer {
 public:
  // Starts to listen. Clients wait in the backlog until Serve is called.
  static Result<std::unique_ptr<SocketServer>> Open(const SocketServerOptions& options);
  // Calls StopLoops.
  ~SocketServer();
  SocketServer(const SocketServer&) = delete;
  SocketServer& operator=(const SocketServer&) = delete;

  uint16_t port() const { return listener_.port(); }
  size_t num_loops() const { return loops_.size(); }
  EventLoop& loop(size_t index) { return *loops_[index]; }
  // [any thread] Number of admitted connections that are not closed yet.
  size_t num_open() const;
  // [any thread] Reports that a connection of that loop has closed.
  void OnClosed(size_t loop) { num_open_[loop].fetch_sub(1); }

  // Starts the loops and begins to accept.
  Status Serve(ConnectionHandler& handler);
  // Stops accepting connections. Call it once.
  void StopAccepting();
  // Joins the loops' threads. Everything that was posted has run when it returns.
  void StopLoops();

 private:
  SocketServer(Listener listener, const char* loop_name)
      : loop_name_(loop_name), listener_(std::move(listener)) {}
  void OnAcceptable();
  void AssignToLoop(int fd);
  void AddConnection(size_t index, int fd);
  size_t ChooseLoop(int fd) const;
  static void OnAcceptEvent(int fd, short what, void* self);
  static void OnAcceptPauseEnd(int fd, short what, void* self);

  const char* const loop_name_;
  Listener listener_;  // used only by the first loop after Serve
  std::vector<std::unique_ptr<EventLoop>> loops_;
  ConnectionHandler* handler_ = nullptr;
  event* accept_event_ = nullptr;
  event* accept_pause_event_ = nullptr;  // pending while no descriptor is free
  bool is_accepting_ = true;             // used only by the first loop
  // open connections per loop; only the first loop increments
  std::vector<std::atomic<size_t>> num_open_;
};

}  // namespace nereid::net
