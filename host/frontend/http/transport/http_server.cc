// Admission, counting and shutdown of connections.
#include "host/frontend/http/transport/http_server.h"

#include <thread>
#include <utility>

#include "nereid/ext/response_room.h"

namespace nereid::http {

Result<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpServerOptions& options,
                                                      HttpService& service) {
  std::unique_ptr<HttpServer> server(new HttpServer(options, service));
  if (options.tls) {
    NEREID_ASSIGN_OR_RETURN(server->tls_, net::TlsContext::Create(*options.tls));
  }
  NEREID_RETURN_IF_ERROR(server->Open());
  return server;
}

HttpServer::~HttpServer() {
  if (socket_server_ == nullptr) return;
  CloseConnections();
  socket_server_->StopLoops();
}

Status HttpServer::Open() {
  NEREID_ASSIGN_OR_RETURN(socket_server_,
                          net::SocketServer::Open({.address = {.host = options_.address,
                                                               .port = options_.port,
                                                               .reuse_port = options_.reuse_port},
                                                   .num_loops = options_.num_threads}));
  for (size_t i = 0; i < socket_server_->num_loops(); ++i) {
    net::EventLoop& loop = socket_server_->loop(i);
    connections_.push_back(std::make_unique<LoopConnections>(*socket_server_, i, service_,
                                                             options_.limits, tls_.get()));
    loop.SetTick([this, connections = connections_.back().get(), trim = IdleTrim()]() mutable {
      connections->OnTick();
      TrimMemoryWhenIdle(trim);
    });
    if (const auto forbid_waiting = FindForbidWaitingOnThisThread(); forbid_waiting != nullptr) {
      loop.PostFunction(forbid_waiting);
    }
  }
  return socket_server_->Serve(*this);
}

bool HttpServer::Admit(int fd) {
  if (socket_server_->num_open() < options_.limits.max_connections) return true;
  TurnAway(fd);
  return false;
}

void HttpServer::AddConnection(size_t loop, int fd) {
  connections_[loop]->AddConnection(fd);
}

// [each loop, once a second]
void HttpServer::TrimMemoryWhenIdle(IdleTrim& trim) {
  uint64_t num_requests = 0;
  for (const auto& connections : connections_) num_requests += connections->num_requests();
  trim.Tick(num_requests, num_running());
}

void HttpServer::ForEachLoop(void (LoopConnections::*visit)()) {
  for (size_t i = 0; i < connections_.size(); ++i) {
    socket_server_->loop(i).PostFunction(
        [connections = connections_[i].get(), visit] { (connections->*visit)(); });
  }
}

void HttpServer::BeginDrain() {
  if (std::exchange(is_draining_, true)) return;
  socket_server_->StopAccepting();
  ForEachLoop(&LoopConnections::BeginDrain);
}

void HttpServer::EndDrain() {
  BeginDrain();
  ForEachLoop(&LoopConnections::EndDrain);
}

size_t HttpServer::num_running() const {
  size_t sum = 0;
  for (const auto& connections : connections_) sum += connections->num_running();
  return sum;
}

size_t HttpServer::num_kept_open() const {
  size_t sum = 0;
  for (const auto& connections : connections_) sum += connections->num_kept_open();
  return sum;
}

bool HttpServer::WaitUntilIdle(std::chrono::steady_clock::time_point deadline) {
  while (num_connections() != 0) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

void HttpServer::CloseConnections() {
  BeginDrain();
  ForEachLoop(&LoopConnections::CloseAll);
}

}  // namespace nereid::http
