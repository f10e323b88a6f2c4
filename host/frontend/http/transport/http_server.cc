// Admitting, counting, stopping.
#include "host/frontend/http/transport/http_server.h"

#include <malloc.h>
#include <sys/socket.h>

#include <thread>
#include <utility>

// Of mimalloc, where the program is linked with it.
extern "C" [[gnu::weak]] void mi_collect(bool force);

namespace nereid::http {
namespace {

// Sent as it stands to a client for whom there is no room.
constexpr char kTooManyConnections[] =
    "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: 32\r\n"
    "Connection: close\r\n\r\n{\"error\":\"too many connections\"}";

// To the system: the calling thread's with mimalloc, everybody's with glibc's allocator.
void ReturnFreeMemory() {
  if (mi_collect != nullptr) {
    mi_collect(true);
  } else {
    // glibc's allocator initialises itself at its first call, without a lock: here, where another
    // (a sanitizer's, a preloaded one) stands in for it and several loops come at once.
    static const bool is_ready = (malloc_trim(0), true);
    if (is_ready) malloc_trim(0);
  }
}

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::Start(const ServerConfig& config,
                                                      Service& service) {
  std::unique_ptr<HttpServer> server(new HttpServer(config, service));
  if (config.tls) {
    NEREID_ASSIGN_OR_RETURN(server->tls_, TlsContext::Create(*config.tls));
  }
  NEREID_RETURN_IF_ERROR(server->Open());
  return server;
}

HttpServer::~HttpServer() {
  if (port_ == nullptr) return;
  CloseConnections();
  port_->StopLoops();
}

Status HttpServer::Open() {
  NEREID_ASSIGN_OR_RETURN(port_, Port::Open({.address = {.host = config_.address,
                                                         .port = config_.port,
                                                         .reuse_port = config_.reuse_port},
                                             .num_loops = config_.num_threads}));
  for (size_t i = 0; i < port_->num_loops(); ++i) {
    EventLoop& loop = port_->loop(i);
    connections_.push_back(
        std::make_unique<LoopConnections>(*port_, i, service_, config_.limits, tls_.get()));
    loop.SetTick([this, connections = connections_.back().get(), quiet = Quiet()]() mutable {
      connections->OnTick();
      TrimWhenQuiet(quiet);
    });
  }
  return port_->Serve(*this);
}

bool HttpServer::Admit(int fd) {
  if (port_->num_open() < config_.limits.max_connections) return true;
  [[maybe_unused]] const ssize_t sent =
      send(fd, kTooManyConnections, sizeof(kTooManyConnections) - 1, MSG_NOSIGNAL);
  return false;
}

void HttpServer::Adopt(size_t loop, int fd) {
  connections_[loop]->Adopt(fd);
}

// [each loop, once a second] After a burst the allocator keeps what thousands of connections held.
void HttpServer::TrimWhenQuiet(Quiet& quiet) {
  uint64_t num_requests = 0;
  size_t num_running = 0;
  for (const auto& connections : connections_) {
    num_requests += connections->num_requests();
    num_running += connections->num_running();
  }
  const bool is_quiet = num_requests == quiet.num_requests_seen && num_running == 0;
  quiet.num_requests_seen = num_requests;
  if (!is_quiet) {
    quiet.is_trimmed = false;
  } else if (!std::exchange(quiet.is_trimmed, true)) {
    ReturnFreeMemory();
  }
}

void HttpServer::ForEachLoop(void (LoopConnections::*visit)()) {
  for (size_t i = 0; i < connections_.size(); ++i) {
    port_->loop(i).PostFunction(
        [connections = connections_[i].get(), visit] { (connections->*visit)(); });
  }
}

void HttpServer::BeginDrain() {
  if (std::exchange(is_draining_, true)) return;
  port_->StopAccepting();
  ForEachLoop(&LoopConnections::BeginDrain);
}

void HttpServer::EndDrain() {
  BeginDrain();
  ForEachLoop(&LoopConnections::EndDrain);
}

size_t HttpServer::num_kept() const {
  size_t sum = 0;
  for (const auto& connections : connections_) sum += connections->num_kept();
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
