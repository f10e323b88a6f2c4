// Listening, accepting, dealing out, stopping.
#include "host/frontend/grpc/transport/server.h"

#include <event2/event.h>
#include <netdb.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

namespace nereid::rpc {
namespace {

constexpr std::string_view kUnixPrefix = "unix:";
constexpr int kBacklog = 1024;

int OneLoopACore() {
  return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 8u));
}

uint16_t PortOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

// A listening socket, or -1 with errno set.
int ListenOn(int family, const sockaddr* address, socklen_t size, bool reuse_port) {
  const int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const int on = 1;
  const int off = 0;
  if (family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  if (family != AF_UNIX) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (reuse_port) setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
  if (bind(fd, address, size) == 0 && listen(fd, kBacklog) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

// As gRPC has it, "any address" is that of both families.
bool IsAnyIpv4(const addrinfo& where) {
  return where.ai_family == AF_INET &&
         reinterpret_cast<const sockaddr_in*>(where.ai_addr)->sin_addr.s_addr == INADDR_ANY;
}

int ListenOnAny(uint16_t port, bool reuse_port) {
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  any.sin6_port = htons(port);
  return ListenOn(AF_INET6, reinterpret_cast<sockaddr*>(&any), sizeof(any), reuse_port);
}

// gRPC's clients insist on "h2".
int ChooseProtocol(SSL*, const unsigned char** chosen, unsigned char* chosen_bytes,
                   const unsigned char* offered, unsigned int offered_bytes, void*) {
  constexpr unsigned char kH2[] = {2, 'h', '2'};
  unsigned char* found = nullptr;
  if (SSL_select_next_proto(&found, chosen_bytes, kH2, sizeof(kH2), offered, offered_bytes) !=
      OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  }
  *chosen = found;
  return SSL_TLSEXT_ERR_OK;
}

}  // namespace

Result<std::unique_ptr<Server>> Server::Start(const GrpcOptions& options,
                                              const MethodTable& methods) {
  std::unique_ptr<Server> server(new Server(options, methods));
  if (options.tls) {
    NEREID_ASSIGN_OR_RETURN(server->tls_, TlsContext::Create(*options.tls));
    SSL_CTX_set_alpn_select_cb(server->tls_->get(), &ChooseProtocol, nullptr);
    server->shared_.tls = server->tls_.get();
  }
  NEREID_RETURN_IF_ERROR(server->Listen());
  NEREID_RETURN_IF_ERROR(server->StartWorkers());
  return server;
}

Server::~Server() {
  Stop(std::chrono::milliseconds(0));
  for (const auto& worker : workers_) worker->loop->Stop();
  if (accept_event_ != nullptr) event_free(accept_event_);
  if (listen_fd_ >= 0) close(listen_fd_);
  for (const auto& worker : workers_) worker->connections.clear();
}

// ---- listening

Status Server::Listen() {
  if (!options_.address.starts_with(kUnixPrefix)) return ListenAtPort();
  // Both "unix:path" and "unix:///path", as gRPC has it.
  std::string path = options_.address.substr(kUnixPrefix.size());
  if (path.starts_with("//")) path.erase(0, 2);
  return ListenAtPath(path);
}

Status Server::ListenAtPort() {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(options_.port);
  const int error = getaddrinfo(options_.address.c_str(), port.c_str(), &hints, &found);
  if (error != 0) {
    return InvalidArgError("gRPC: address '", options_.address, "': ", gai_strerror(error));
  }
  for (const addrinfo* at = found; at != nullptr && listen_fd_ < 0; at = at->ai_next) {
    if (IsAnyIpv4(*at)) listen_fd_ = ListenOnAny(options_.port, options_.is_port_reused);
    if (listen_fd_ >= 0) break;  // a machine without IPv6 goes on
    listen_fd_ = ListenOn(at->ai_family, at->ai_addr, at->ai_addrlen, options_.is_port_reused);
  }
  const int bind_error = errno;
  freeaddrinfo(found);
  if (listen_fd_ < 0) {
    return UnavailableError("gRPC: cannot listen on ", options_.address, ":", options_.port, ": ",
                            std::strerror(bind_error));
  }
  port_ = PortOf(listen_fd_);
  return {};
}

Status Server::ListenAtPath(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return InvalidArgError("gRPC: address '", options_.address, "': expected a path of 1 to ",
                           sizeof(address.sun_path) - 1, " bytes, got ", path.size());
  }
  std::memcpy(address.sun_path, path.c_str(), path.size());
  const auto* const where = reinterpret_cast<const sockaddr*>(&address);
  // A server that died left its socket behind; one that lives is found by connecting.
  const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (probe >= 0 && connect(probe, where, sizeof(address)) != 0 && errno == ECONNREFUSED) {
    unlink(path.c_str());
  }
  if (probe >= 0) close(probe);
  listen_fd_ = ListenOn(AF_UNIX, where, sizeof(address), /*reuse_port=*/false);
  if (listen_fd_ < 0) {
    return UnavailableError("gRPC: cannot listen on ", options_.address, ": ",
                            std::strerror(errno));
  }
  unix_path_ = path;
  return {};
}

// ---- loops

Status Server::StartWorkers() {
  for (int i = 0; i < OneLoopACore(); ++i) {
    auto worker = std::make_unique<Worker>();
    NEREID_ASSIGN_OR_RETURN(worker->loop, http::EventLoop::Create());
    workers_.push_back(std::move(worker));
  }
  accept_event_ = event_new(workers_.front()->loop->base(), listen_fd_, EV_READ | EV_PERSIST,
                            &OnAcceptEvent, this);
  if (accept_event_ == nullptr) return InternalError("gRPC: cannot allocate the listener's event");
  event_add(accept_event_, nullptr);
  for (const auto& worker : workers_) worker->loop->Start("grpc-loop");
  return {};
}

void Server::OnAcceptEvent(int, short, void* self) {
  static_cast<Server*>(self)->OnAcceptable();
}

// [first loop]
void Server::OnAcceptable() {
  constexpr int kMaxAccepts = 64;  // at a time, so that the loop's connections are not starved
  for (int i = 0; i < kMaxAccepts; ++i) {
    const int fd = accept4(listen_fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      // Out of descriptors, the event would fire without end: let others run in between.
      if (errno == EMFILE || errno == ENFILE) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      return;
    }
    shared_.num_connections.fetch_add(1);
    Worker& worker = *workers_[next_worker_++ % workers_.size()];
    if (&worker == workers_.front().get()) {
      Adopt(worker, fd);
    } else {
      worker.loop->PostFunction([this, &worker, fd] { Adopt(worker, fd); });
    }
  }
}

// [the worker's loop]
void Server::Adopt(Worker& worker, int fd) {
  // It dies when what is posted by now has run: until then it may be in the loop's hands.
  const auto on_closed = [this, &worker](Connection* closed) {
    worker.loop->PostFunction([this, &worker, closed] {
      const auto found = worker.connections.find(closed);
      worker.loop->DestroyLater(std::move(found->second));
      worker.connections.erase(found);
      shared_.num_connections.fetch_sub(1);
    });
  };
  auto connection = std::make_unique<Connection>(fd, *worker.loop, shared_, on_closed);
  if (worker.is_stopping || !connection->Open().ok()) {
    shared_.num_connections.fetch_sub(1);
    return;
  }
  worker.connections.emplace(connection.get(), std::move(connection));
}

// ---- stopping

template <typename Visit>
void Server::ForEachConnection(const Visit& visit) {
  for (const auto& worker : workers_) {
    worker->loop->PostFunction([&worker = *worker, visit] {
      worker.is_stopping = true;
      for (const auto& [key, connection] : worker.connections) visit(*key);
    });
  }
}

bool Server::IsIdle() const {
  return shared_.num_connections.load() == 0 && shared_.num_calls.load() == 0;
}

void Server::Stop(std::chrono::milliseconds patience) {
  if (workers_.empty() || std::exchange(is_stopped_, true)) return;
  workers_.front()->loop->PostFunction([this] {
    event_del(accept_event_);
    close(listen_fd_);
    listen_fd_ = -1;
  });
  if (!unix_path_.empty()) unlink(unix_path_.c_str());
  ForEachConnection([](Connection& connection) { connection.BeginDrain(0); });
  const auto deadline = std::chrono::steady_clock::now() + patience;
  const auto nap = std::chrono::milliseconds(1);
  while (!IsIdle() && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(nap);
  ForEachConnection([](Connection& connection) { connection.Close(); });
  while (!IsIdle()) std::this_thread::sleep_for(nap);
}

}  // namespace nereid::rpc
