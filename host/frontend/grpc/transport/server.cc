// Opening, adopting, stopping.
#include "host/frontend/grpc/transport/server.h"

#include <openssl/ssl.h>

#include <thread>
#include <utility>

namespace nereid::rpc {
namespace {

// gRPC's clients insist on "h2". What is chosen is read after the return, and may lie in kH2.
int ChooseProtocol(SSL*, const unsigned char** chosen, unsigned char* chosen_bytes,
                   const unsigned char* offered, unsigned int offered_bytes, void*) {
  static constexpr unsigned char kH2[] = {2, 'h', '2'};
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
  auto port = http::Port::Open({.address = {.host = options.address,
                                            .port = options.port,
                                            .reuse_port = options.is_port_reused,
                                            .any_is_both_families = true},
                                .loop_name = "grpc-loop"});
  if (!port.ok()) return std::move(port).status();
  server->port_ = std::move(port).value();
  server->clients_.resize(server->port_->num_loops());
  NEREID_RETURN_IF_ERROR(server->port_->Serve(*server));
  return server;
}

Server::~Server() {
  if (port_ == nullptr) return;
  Stop(std::chrono::milliseconds(0));
  port_->StopLoops();
  clients_.clear();
}

void Server::Adopt(size_t index, int fd) {
  Clients& clients = clients_[index];
  http::EventLoop& loop = port_->loop(index);
  // It dies when what is posted by now has run: until then it may be in the loop's hands.
  const auto on_closed = [this, index, &clients, &loop](Connection* closed) {
    loop.PostFunction([this, index, &clients, &loop, closed] {
      const auto found = clients.connections.find(closed);
      loop.DestroyLater(std::move(found->second));
      clients.connections.erase(found);
      port_->OnClosed(index);
    });
  };
  auto connection = std::make_unique<Connection>(fd, loop, shared_, on_closed);
  if (clients.is_stopping || !connection->Open().ok()) {
    port_->OnClosed(index);
    return;
  }
  clients.connections.emplace(connection.get(), std::move(connection));
}

template <typename Visit>
void Server::ForEachConnection(const Visit& visit) {
  for (size_t i = 0; i < clients_.size(); ++i) {
    port_->loop(i).PostFunction([&clients = clients_[i], visit] {
      clients.is_stopping = true;
      for (const auto& [key, connection] : clients.connections) visit(*key);
    });
  }
}

bool Server::IsIdle() const {
  return port_->num_open() == 0 && shared_.num_calls.load() == 0;
}

void Server::Stop(std::chrono::milliseconds patience) {
  if (std::exchange(is_stopped_, true)) return;
  port_->StopAccepting();
  ForEachConnection([](Connection& connection) { connection.BeginDrain(0); });
  const auto deadline = std::chrono::steady_clock::now() + patience;
  const auto nap = std::chrono::milliseconds(1);
  while (!IsIdle() && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(nap);
  ForEachConnection([](Connection& connection) { connection.Close(); });
  while (!IsIdle()) std::this_thread::sleep_for(nap);
}

}  // namespace nereid::rpc
