// Tests of what a service adds to the transport: headers, refusals in its own form, and a call that
// its connection calls once a second.
#include "host/frontend/http/transport/http_service.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "host/frontend/http/transport/http_connection.h"
#include "host/frontend/http/transport/http_server.h"
#include "tests/host/frontend/http/client_socket.h"

namespace nereid::http {
namespace {

// /marked echoes with a header of its own, and its refusals have a form of their own. /wait never
// answers. Other paths echo.
class MarkingService final : public HttpService {
 public:
  void Handle(HttpConnection& connection, const RequestHead& head, RequestBody&& body) override {
    if (head.path == "/wait") return connection.BeginCall(&call_);
    if (head.path == "/marked") connection.AddResponseHeaders("X-Mark: 1\r\n");
    connection.Reply({.content_type = "text/plain"}, body.bytes());
  }
  Refusal Refuse(const RequestHead& head, int status, std::string_view reason) override {
    if (head.path != "/marked") return HttpService::Refuse(head, status, reason);
    return {status, "own form"};
  }

  int num_seconds() const { return call_.num_seconds; }

 private:
  struct Call final : InFlightCall {
    void OnDisconnect() override {}
    void OnSecond() override { ++num_seconds; }
    std::atomic<int> num_seconds{0};
  };
  Call call_;
};

class HttpServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    HttpServerOptions options;
    options.address = "127.0.0.1";
    options.port = 0;
    options.num_threads = 1;
    Result<std::unique_ptr<HttpServer>> server = HttpServer::Start(options, service_);
    ASSERT_TRUE(server.ok()) << server.status().message();
    server_ = *std::move(server);
  }
  static std::string Post(std::string_view path, std::string_view body) {
    return StrCat("POST ", path, " HTTP/1.1\r\nHost: x\r\nContent-Length: ", body.size(),
                  "\r\n\r\n", body);
  }

  MarkingService service_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServiceTest, AServiceRefusesInItsOwnForm) {
  ClientSocket client(server_->port());
  client.Send("POST /marked HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n");
  const std::string answer = client.ReadAll();
  EXPECT_EQ(answer.substr(9, 3), "413");
  EXPECT_NE(answer.find("own form"), std::string::npos);
  ClientSocket reused(server_->port());
  reused.Send(Post("/marked", "a"));
  reused.ReadUntil("\r\n\r\na");
  // The head of the first request says nothing about the second one.
  (void)reused.TrySend("GET /" + std::string(100'000, 'a'), std::chrono::seconds(5));
  const std::string too_long = reused.ReadAll();
  EXPECT_EQ(too_long.substr(9, 3), "431");
  EXPECT_EQ(too_long.find("own form"), std::string::npos);
}

TEST_F(HttpServiceTest, AddedHeadersBelongToOneResponse) {
  ClientSocket client(server_->port());
  client.Send(Post("/marked", "a"));
  EXPECT_NE(client.ReadUntil("\r\n\r\na").find("X-Mark: 1\r\n"), std::string::npos);
  client.Send(Post("/echo", "b"));
  EXPECT_EQ(client.ReadUntil("\r\n\r\nb").find("X-Mark"), std::string::npos);
}

TEST_F(HttpServiceTest, ACallHearsFromItsConnectionWhileItWaits) {
  ClientSocket client(server_->port());
  client.Send(Post("/wait", ""));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (service_.num_seconds() == 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_GT(service_.num_seconds(), 0);
}

}  // namespace
}  // namespace nereid::http
