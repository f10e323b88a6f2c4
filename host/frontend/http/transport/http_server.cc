// Listening, accepting, dealing out, stopping.
#include "host/frontend/http/transport/http_server.h"

#include <event2/event.h>
#include <malloc.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

namespace nereid::http {
namespace {

// Sent as it stands to a client for whom there is no room.
constexpr char kTooManyConnections[] =
    "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: 32\r\n"
    "Connection: close\r\n\r\n{\"error\":\"too many connections\"}";

uint16_t PortOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

// A listening socket at one of the addresses that the name stands for, or -1 with errno set.
int ListenAt(const addrinfo& where, bool reuse_port) {
  const int fd = socket(where.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (reuse_port) setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
  if (bind(fd, where.ai_addr, where.ai_addrlen) == 0 && listen(fd, 1024) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

}  // namespace

int OneLoopACore() {
  return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 8u));
}

Result<std::unique_ptr<HttpServer>> HttpServer::Start(const ServerConfig& config,
                                                      Service& service) {
  std::unique_ptr<HttpServer> server(new HttpServer(config, service));
  if (config.tls) {
    NEREID_ASSIGN_OR_RETURN(server->tls_, TlsContext::Create(*config.tls));
  }
  NEREID_RETURN_IF_ERROR(server->Listen());
  NEREID_RETURN_IF_ERROR(server->StartWorkers());
  return server;
}

HttpServer::~HttpServer() {
  CloseConnections();
  for (Worker& worker : workers_) worker.loop->Stop();
  if (accept_event_ != nullptr) event_free(accept_event_);
  if (listen_fd_ >= 0) close(listen_fd_);
}

Status HttpServer::Listen() {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(config_.port);
  const int error = getaddrinfo(config_.address.c_str(), port.c_str(), &hints, &found);
  if (error != 0) {
    return InvalidArgError("address '", config_.address, "': ", gai_strerror(error));
  }
  for (const addrinfo* where = found; where != nullptr && listen_fd_ < 0; where = where->ai_next) {
    listen_fd_ = ListenAt(*where, config_.reuse_port);
  }
  const int bind_error = errno;
  freeaddrinfo(found);
  if (listen_fd_ < 0) {
    return UnavailableError("cannot listen at ", config_.address, ":", config_.port, ": ",
                            std::strerror(bind_error));
  }
  port_ = PortOf(listen_fd_);
  return Status::Ok();
}

Status HttpServer::StartWorkers() {
  for (int i = 0; i < config_.num_threads; ++i) {
    Worker worker;
    NEREID_ASSIGN_OR_RETURN(worker.loop, EventLoop::Create());
    worker.connections = std::make_unique<LoopConnections>(*worker.loop, service_, config_.limits,
                                                           tls_.get(), num_open_);
    worker.loop->SetTick([this, connections = worker.connections.get(), is_first = i == 0] {
      connections->OnTick();
      if (is_first) TrimWhenQuiet();
    });
    workers_.push_back(std::move(worker));
  }
  accept_event_ = event_new(workers_.front().loop->base(), listen_fd_, EV_READ | EV_PERSIST,
                            &OnAcceptEvent, this);
  if (accept_event_ == nullptr) return InternalError("listener: cannot allocate its event");
  event_add(accept_event_, nullptr);
  for (Worker& worker : workers_) worker.loop->Start();
  return Status::Ok();
}

void HttpServer::OnAcceptEvent(int, short, void* self) {
  static_cast<HttpServer*>(self)->OnAcceptable();
}

// [first loop]
void HttpServer::OnAcceptable() {
  constexpr int kMaxAccepts = 64;  // at a time, so that the loop's connections are not starved
  for (int i = 0; i < kMaxAccepts; ++i) {
    const int fd = accept4(listen_fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      // Out of descriptors, the event would fire without end: let others run in between.
      if (errno == EMFILE || errno == ENFILE)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    if (num_open_.fetch_add(1) >= config_.limits.max_connections) {
      num_open_.fetch_sub(1);
      [[maybe_unused]] const ssize_t sent =
          send(fd, kTooManyConnections, sizeof(kTooManyConnections) - 1, MSG_NOSIGNAL);
      close(fd);
      continue;
    }
    Deal(fd);
  }
}

// [first loop]
void HttpServer::Deal(int fd) {
  const size_t index = next_worker_++ % workers_.size();
  LoopConnections* connections = workers_[index].connections.get();
  if (index == 0) {
    connections->Adopt(fd);
  } else {
    workers_[index].loop->PostFunction([connections, fd] { connections->Adopt(fd); });
  }
}

// [first loop, once a second] After a burst the allocator keeps what thousands of connections held.
void HttpServer::TrimWhenQuiet() {
  uint64_t num_requests = 0;
  size_t num_running = 0;
  for (const Worker& worker : workers_) {
    num_requests += worker.connections->num_requests();
    num_running += worker.connections->num_running();
  }
  const bool is_quiet = num_requests == num_requests_seen_ && num_running == 0;
  num_requests_seen_ = num_requests;
  if (!is_quiet) {
    is_trimmed_ = false;
  } else if (!std::exchange(is_trimmed_, true)) {
    malloc_trim(0);
  }
}

void HttpServer::BeginDrain() {
  if (workers_.empty() || std::exchange(is_draining_, true)) return;
  workers_.front().loop->PostFunction([this] {
    event_del(accept_event_);
    close(listen_fd_);
    listen_fd_ = -1;
  });
  for (Worker& worker : workers_) {
    worker.loop->PostFunction(
        [connections = worker.connections.get()] { connections->BeginDrain(); });
  }
}

bool HttpServer::WaitUntilIdle(std::chrono::steady_clock::time_point deadline) {
  while (num_open_.load() != 0) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

void HttpServer::CloseConnections() {
  BeginDrain();
  for (Worker& worker : workers_) {
    worker.loop->PostFunction(
        [connections = worker.connections.get()] { connections->CloseAll(); });
  }
}

}  // namespace nereid::http
