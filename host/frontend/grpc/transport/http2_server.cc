// See http2_server.h.
#include "host/frontend/grpc/transport/http2_server.h"

#include <new>
#include <thread>
#include <utility>

#include "base/idle_trim.h"
#include "nereid/ext/response_room.h"

namespace nereid::grpc {
namespace {

constexpr std::chrono::milliseconds kPollPause(1);
constexpr std::chrono::milliseconds kCancelTime(2000);  // for services to finish cancelled calls

}  // namespace

Result<std::unique_ptr<Http2Server>> Http2Server::Start(const GrpcOptions& options,
                                                        const MethodTable& methods) {
  std::unique_ptr<Http2Server> server(new Http2Server(options, methods));
  if (options.tls) {
    net::TlsOptions tls = *options.tls;
    tls.requires_h2 = true;
    NEREID_ASSIGN_OR_RETURN(server->tls_, net::TlsContext::Create(tls));
    server->context_.tls = server->tls_.get();
  }
  auto port = net::SocketServer::Open({.address = {.host = options.address,
                                                   .port = options.port,
                                                   .reuse_port = options.is_port_reused,
                                                   .any_is_both_families = true},
                                       .loop_name = "grpc-loop"});
  if (!port.ok()) return std::move(port).status();
  server->socket_server_ = std::move(port).value();
  server->loop_states_.resize(server->socket_server_->num_loops());
  const auto forbid_waiting = FindForbidWaitingOnThisThread();
  for (size_t i = 0; i < server->loop_states_.size(); ++i) {
    net::EventLoop& loop = server->socket_server_->loop(i);
    if (forbid_waiting != nullptr) loop.PostFunction(forbid_waiting);
    loop.SetTick([&context = server->context_, trim = IdleTrim()]() mutable {
      trim.Tick(context.num_started.load(std::memory_order_relaxed), context.num_calls.load());
    });
  }
  NEREID_RETURN_IF_ERROR(server->socket_server_->Serve(*server));
  return server;
}

Http2Server::~Http2Server() {
  if (socket_server_ == nullptr) return;
  Stop(std::chrono::milliseconds(0));
  while (!IsIdle()) std::this_thread::sleep_for(kPollPause);
  socket_server_->StopLoops();
  loop_states_.clear();
}

void Http2Server::AddConnection(size_t index, int fd) {
  LoopState& loop_state = loop_states_[index];
  net::EventLoop& loop = socket_server_->loop(index);
  // The connection is destroyed after the tasks that are already posted, because one of them may
  // still refer to it.
  const auto on_closed = [this, index, &loop_state, &loop](Http2Connection* closed) {
    loop.PostFunction([this, index, &loop_state, &loop, closed] {
      const auto found = loop_state.connections.find(closed);
      loop.DestroyLater(std::move(found->second));
      loop_state.connections.erase(found);
      socket_server_->OnClosed(index);
    });
  };
  auto connection = net::MakeConnection<Http2Connection>(fd, loop, context_, on_closed);
  Http2Connection* const key = connection.get();
  if (loop_state.is_stopping || !key->is_admitted()) {
    socket_server_->OnClosed(index);
    return;
  }
  loop_state.connections.emplace(key, std::move(connection));
  try {
    if (key->Open().ok()) return;
  } catch (const std::bad_alloc&) {
  }
  loop_state.connections.erase(key);
  socket_server_->OnClosed(index);
}

template <typename Visit>
void Http2Server::ForEachConnection(const Visit& visit) {
  for (size_t i = 0; i < loop_states_.size(); ++i) {
    socket_server_->loop(i).PostFunction([&loop_state = loop_states_[i], visit] {
      loop_state.is_stopping = true;
      for (const auto& [key, connection] : loop_state.connections) visit(*key);
    });
  }
}

bool Http2Server::IsIdle() const {
  return socket_server_->num_open() == 0 && context_.num_calls.load() == 0;
}

size_t Http2Server::Stop(std::chrono::milliseconds timeout) {
  if (std::exchange(is_stopped_, true)) return 0;
  socket_server_->StopAccepting();
  ForEachConnection([](Http2Connection& connection) { connection.BeginDrain(0); });
  WaitUntilIdle(timeout);
  const size_t num_cancelled = num_calls();
  ForEachConnection([](Http2Connection& connection) { connection.Close(); });
  WaitUntilIdle(kCancelTime);
  return num_cancelled;
}

void Http2Server::WaitUntilIdle(std::chrono::milliseconds timeout) const {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!IsIdle() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(kPollPause);
  }
}

}  // namespace nereid::grpc
