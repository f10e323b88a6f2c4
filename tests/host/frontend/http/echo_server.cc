// An HTTP server that answers each request with what the transport has understood of it, for
// tests/e2e/test_http_oracle.py: method, path, query, headers and body, each as one line of
// hexadecimal digits (headers: name=value). Prints its port, and ends when its standard input ends.
#include <iostream>
#include <string>
#include <string_view>

#include "host/frontend/http/transport/http_connection.h"
#include "host/frontend/http/transport/http_server.h"

namespace nereid::http {
namespace {

std::string Hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    text += {kDigits[value >> 4], kDigits[value & 15]};
  }
  return text;
}

std::string_view NameOf(Method method) {
  switch (method) {
    case Method::kGet:
      return "GET";
    case Method::kHead:
      return "HEAD";
    case Method::kPost:
      return "POST";
    case Method::kPut:
      return "PUT";
    case Method::kDelete:
      return "DELETE";
    case Method::kOptions:
      return "OPTIONS";
    case Method::kOther:
      break;
  }
  return "another";
}

class EchoService final : public HttpService {
  void Handle(HttpConnection& connection, const RequestHead& head, RequestBody&& body) override {
    std::string text(NameOf(head.method));
    text += '\n' + Hex(head.path) + '\n' + Hex(head.query) + '\n' + Hex(body.bytes()) +
            Hex(body.posted.view()) + '\n';
    for (const auto& [name, value] : head.headers) text += Hex(name) + '=' + Hex(value) + '\n';
    connection.Reply({.content_type = "text/plain"}, text);
  }
};

int Main() {
  EchoService service;
  HttpServerOptions options;
  options.address = "127.0.0.1";
  options.port = 0;
  options.num_threads = 1;
  const auto server = HttpServer::Start(options, service);
  if (!server.ok()) return 1;
  std::cout << (*server)->port() << std::endl;
  while (std::cin.get() != std::istream::traits_type::eof()) {
  }
  (*server)->BeginDrain();
  (*server)->EndDrain();
  (*server)->CloseConnections();
  (*server)->WaitUntilIdle(std::chrono::steady_clock::now() + std::chrono::seconds(10));
  return 0;
}

}  // namespace
}  // namespace nereid::http

int main() {
  return nereid::http::Main();
}
