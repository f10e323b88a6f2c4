// The transport over real sockets, with a service that echoes, waits or streams: what clients do
// right, and all that they do wrong.
#include "host/frontend/http/transport/connection.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "host/frontend/http/transport/event_loop.h"
#include "host/frontend/http/transport/http_server.h"
#include "tests/host/frontend/http/client_socket.h"

namespace nereid::http {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

bool Eventually(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(milliseconds(2));
  }
  return true;
}

// /echo answers with the body; /sequence does too, and has its connection kept; /big with a
// megabyte block; /wait never answers; /stream sends until its client is gone. /place, while it has
// memory, offers it to all behind the first ten bytes.
class TestService final : public Service {
 public:
  static constexpr size_t kFirstPart = 10;

  void Handle(Connection& connection, const RequestHead& head, Body body) override {
    if (head.path == "/sequence") connection.KeepForSequences();
    if (head.path == "/wait" || head.path == "/stream") {
      auto* call = new WaitingCall(*this, connection);
      connection.BeginCall(call);
      if (head.path == "/stream") call->Stream();
    } else if (head.path == "/big") {
      const auto block = std::make_shared<std::string>(1 << 20, 'b');
      const OutPiece pieces[] = {{"<"}, {*block, true}, {">"}};
      connection.ReplyPieces({}, pieces, block);
    } else if (body.rest.lender() != nullptr) {
      ++num_placed;
      EXPECT_EQ(body.rest.data(), place->data());
      connection.Reply({.content_type = "text/plain"}, StrCat(body.bytes(), body.rest.view()));
    } else {
      connection.Reply({.content_type = "text/plain"}, body.bytes());
    }
  }

  std::optional<size_t> FirstPart(const RequestHead& head, uint64_t) override {
    if (head.path != "/place") return std::nullopt;
    return first_part;
  }
  BodyPlace OfferPlace(const RequestHead&, uint64_t rest_bytes) override {
    if (place == nullptr || place->size() < rest_bytes) return {};
    ++num_offered;
    return {place, place->data()};
  }

  std::atomic<int> num_waiting{0};
  size_t first_part = kFirstPart;
  std::shared_ptr<std::string> place;  // set before the server starts
  std::atomic<int> num_offered{0}, num_placed{0};
  std::atomic<int> num_disconnects{0};
  std::atomic<size_t> max_unsent_bytes{0};

 private:
  class WaitingCall final : public ActiveCall, public LoopTask {
   public:
    WaitingCall(TestService& service, Connection& connection)
        : service_(service), connection_(&connection), loop_(connection.loop()) {
      ++service_.num_waiting;
    }

    void Stream() {
      connection_->BeginStream({.content_type = "text/event-stream"});
      if (connection_ != nullptr) loop_.Post(this);
    }

   private:
    void RunOnLoop() override {
      if (connection_ == nullptr) {
        delete this;
        return;
      }
      is_streaming_ = true;
      connection_->SendChunk(std::string(10000, 's'));
      if (connection_ != nullptr) {
        service_.max_unsent_bytes =
            std::max(service_.max_unsent_bytes.load(), connection_->unsent_bytes());
      }
      loop_.Post(this);
    }

    void OnDisconnect() override {
      connection_ = nullptr;
      ++service_.num_disconnects;
      if (!is_streaming_) delete this;
    }

    TestService& service_;
    Connection* connection_;
    EventLoop& loop_;
    bool is_streaming_ = false;
  };
};

class ConnectionTest : public ::testing::Test {
 protected:
  void Start(const Limits& limits = {}) {
    ServerConfig config;
    config.address = "127.0.0.1";
    config.port = 0;
    config.num_threads = 2;
    config.limits = limits;
    Result<std::unique_ptr<HttpServer>> server = HttpServer::Start(config, service_);
    ASSERT_TRUE(server.ok()) << server.status().message();
    server_ = *std::move(server);
  }

  static std::string Post(std::string_view path, std::string_view body) {
    return StrCat("POST ", path, " HTTP/1.1\r\nHost: x\r\nContent-Length: ", body.size(),
                  "\r\n\r\n", body);
  }

  TestService service_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(ConnectionTest, AnswersOneRequestAfterAnotherOnOneConnection) {
  Start();
  ClientSocket client(server_->port());
  for (int i = 0; i < 20; ++i) {
    client.Send(Post("/echo", StrCat("body", i)));
    const std::string answer = client.ReadUntil(StrCat("body", i));
    EXPECT_EQ(answer.substr(0, 15), "HTTP/1.1 200 OK") << answer;
  }
}

TEST_F(ConnectionTest, AnswersPipelinedRequestsInTheirOrder) {
  Start();
  ClientSocket client(server_->port());
  std::string requests;
  for (int i = 0; i < 500; ++i) requests += Post("/echo", StrCat("<", i, ">"));
  client.Send(requests);
  const std::string answers = client.ReadUntil("<499>");
  size_t at = 0;
  for (int i = 0; i < 500; ++i) {
    at = answers.find(StrCat("<", i, ">"), at);
    ASSERT_NE(at, std::string::npos) << i;
  }
}

TEST_F(ConnectionTest, TakesRequestsByteForByte) {
  Start();
  ClientSocket client(server_->port());
  for (const char c : Post("/echo", "slow")) {
    client.Send({&c, 1});
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_NE(client.ReadUntil("slow").find("200 OK"), std::string::npos);
}

TEST_F(ConnectionTest, PassesOverAnEmptyLineThatComesInPieces) {
  Start();
  ClientSocket client(server_->port());
  for (const std::string_view piece : {"\r", "\n\r", "\n"}) {
    client.Send(piece);
    std::this_thread::sleep_for(milliseconds(20));  // the next one comes by itself
  }
  client.Send(Post("/echo", "body"));
  EXPECT_EQ(client.ReadUntil("body").substr(0, 15), "HTTP/1.1 200 OK");
}

TEST_F(ConnectionTest, TakesLargeAndChunkedBodies) {
  Start();
  const std::string large(3'000'000, 'x');
  ClientSocket client(server_->port());
  std::thread sender([&] { client.Send(Post("/echo", large + "END")); });
  EXPECT_GT(client.ReadUntil("END").size(), large.size());
  sender.join();
  client.Send(
      "POST /echo HTTP/1.1\r\nTransfer-Encoding: "
      "chunked\r\n\r\n3\r\nabc\r\n4\r\ndEnD\r\n0\r\n\r\n" +
      Post("/echo", "next"));
  const std::string answers = client.ReadUntil("next");
  EXPECT_NE(answers.find("abcdEnD"), std::string::npos) << answers;
}

class PlacedBodyTest : public ConnectionTest {
 protected:
  void StartWithPlace(size_t size_bytes) {
    service_.place = std::make_shared<std::string>(size_bytes, '?');
    Start();
  }
  // Nothing but the test has the memory.
  bool IsGivenBack() {
    return Eventually([&] { return service_.place.use_count() == 1; });
  }

  // Bytes that differ, whose end is found.
  const std::string body_ = [] {
    std::string body;
    for (int i = 0; body.size() < 300'000; ++i) body += StrCat(i, ",");
    return body + "END";
  }();
};

TEST_F(PlacedBodyTest, ReceivesTheRestOfALargeBodyWhereItIsToLie) {
  StartWithPlace(body_.size() - TestService::kFirstPart);
  ClientSocket client(server_->port());
  for (int i = 1; i <= 3; ++i) {
    client.Send(Post("/place", body_) + Post("/echo", "next"));
    const std::string answers = client.ReadUntil("next");
    EXPECT_NE(answers.find("\r\n\r\n" + body_), std::string::npos);
    EXPECT_EQ(service_.num_placed, i);
    EXPECT_EQ(*service_.place, body_.substr(TestService::kFirstPart));
  }
  EXPECT_TRUE(IsGivenBack());
}

// Clients send the head by itself, or the head and a part of what follows.
TEST_F(PlacedBodyTest, AsksForThePlaceWhenTheFirstPartIsHere) {
  StartWithPlace(body_.size() - TestService::kFirstPart);
  const std::string request = Post("/place", body_);
  const size_t head_bytes = request.size() - body_.size();
  for (const size_t first_piece : {head_bytes, head_bytes + TestService::kFirstPart - 1}) {
    ClientSocket client(server_->port());
    const int num_offered = service_.num_offered;
    client.Send(request.substr(0, first_piece));
    std::this_thread::sleep_for(milliseconds(20));  // the next one comes by itself
    EXPECT_EQ(service_.num_offered, num_offered);
    client.Send(request.substr(first_piece, 1));
    std::this_thread::sleep_for(milliseconds(20));
    client.Send(request.substr(first_piece + 1));
    EXPECT_NE(client.ReadUntil("END").find("\r\n\r\n" + body_), std::string::npos);
    EXPECT_EQ(service_.num_placed, num_offered + 1);
  }
}

TEST_F(PlacedBodyTest, TakesABodyWithoutAFirstPart) {
  service_.first_part = 0;
  StartWithPlace(body_.size());
  ClientSocket client(server_->port());
  client.Send(Post("/place", body_));
  EXPECT_NE(client.ReadUntil("END").find("\r\n\r\n" + body_), std::string::npos);
  EXPECT_EQ(*service_.place, body_);
}

TEST_F(PlacedBodyTest, TakesABodyForWhichNoPlaceIsOffered) {
  StartWithPlace(1);
  ClientSocket client(server_->port());
  for (int i = 0; i < 2; ++i) {
    client.Send(Post("/place", body_) + Post("/echo", "next"));
    EXPECT_NE(client.ReadUntil("next").find("\r\n\r\n" + body_), std::string::npos);
  }
  EXPECT_EQ(service_.num_placed, 0);
}

TEST_F(PlacedBodyTest, TakesABodyWhoseFirstPartIsLongerThanWhatIsReadAhead) {
  service_.first_part = 20'000;
  StartWithPlace(body_.size());
  ClientSocket client(server_->port());
  client.Send(Post("/place", body_));
  EXPECT_NE(client.ReadUntil("END").find("\r\n\r\n" + body_), std::string::npos);
  EXPECT_EQ(service_.num_offered, 0);
}

TEST_F(PlacedBodyTest, GivesThePlaceBackWhenTheClientStopsInTheMiddle) {
  StartWithPlace(body_.size());
  ClientSocket client(server_->port());
  client.Send(Post("/place", body_).substr(0, 200'000));
  ASSERT_TRUE(Eventually([&] { return service_.num_offered == 1; }));
  EXPECT_GT(service_.place.use_count(), 1);
  client.Close();
  EXPECT_TRUE(IsGivenBack());
  EXPECT_EQ(service_.num_placed, 0);
}

TEST_F(ConnectionTest, SendsBlocksFromWhereTheyLieToSlowReaders) {
  Start();
  ClientSocket client(server_->port(), /*receive_buffer_bytes=*/4096);
  client.Send(Post("/big", "") + Post("/echo", "after"));
  std::this_thread::sleep_for(milliseconds(50));
  const std::string answers = client.ReadUntil("after");
  EXPECT_NE(answers.find('<' + std::string(1 << 20, 'b') + '>'), std::string::npos);
}

TEST_F(ConnectionTest, InvitesTheBodyOfAClientThatAsks) {
  Start();
  ClientSocket client(server_->port());
  client.Send("POST /echo HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.Send("ok");
  EXPECT_NE(client.ReadUntil("ok").find("200 OK"), std::string::npos);
}

TEST_F(ConnectionTest, ClosesAfterAnHttp10Request) {
  Start();
  ClientSocket client(server_->port());
  client.Send("GET /echo HTTP/1.0\r\n\r\n");
  const std::string answer = client.ReadAll();
  EXPECT_NE(answer.find("Connection: close"), std::string::npos);
  EXPECT_TRUE(Eventually([&] { return server_->num_connections() == 0; }));
}

TEST_F(ConnectionTest, TellsTheCallAtOnceWhenItsClientLeaves) {
  Start();
  ClientSocket client(server_->port());
  client.Send(Post("/wait", ""));
  ASSERT_TRUE(Eventually([&] { return service_.num_waiting == 1; }));
  EXPECT_EQ(service_.num_disconnects, 0);
  client.Close();
  EXPECT_TRUE(Eventually([&] { return service_.num_disconnects == 1; }));
}

TEST_F(ConnectionTest, AHalfClosedClientHasLeftToo) {
  Start();
  ClientSocket client(server_->port());
  client.Send(Post("/wait", ""));
  ASSERT_TRUE(Eventually([&] { return service_.num_waiting == 1; }));
  client.HalfClose();
  EXPECT_TRUE(Eventually([&] { return service_.num_disconnects == 1; }));
}

TEST_F(ConnectionTest, NoticesADepartureBehindPipelinedBytesThatItDoesNotRead) {
  Start();
  ClientSocket client(server_->port());
  client.Send(Post("/wait", ""));
  ASSERT_TRUE(Eventually([&] { return service_.num_waiting == 1; }));
  (void)client.TrySend(std::string(40'000, 'x'), milliseconds(100));
  client.HalfClose();
  EXPECT_TRUE(Eventually([&] { return service_.num_disconnects == 1; }));
}

TEST_F(ConnectionTest, DropsAStreamThatIsNotRead) {
  Limits limits;
  limits.max_unsent_bytes = 500'000;
  Start(limits);
  ClientSocket client(server_->port(), /*receive_buffer_bytes=*/4096);
  client.Send(Post("/stream", ""));
  EXPECT_TRUE(Eventually([&] { return service_.num_disconnects == 1; }));
  EXPECT_LT(service_.max_unsent_bytes, 600'000u);
}

TEST_F(ConnectionTest, StreamsInChunksUntilTheClientLeaves) {
  Start();
  {
    ClientSocket client(server_->port());
    client.Send(Post("/stream", ""));
    const std::string answer = client.ReadUntil("\r\n2710\r\nsss");
    EXPECT_NE(answer.find("Transfer-Encoding: chunked"), std::string::npos);
  }
  EXPECT_TRUE(Eventually([&] { return service_.num_disconnects == 1; }));
}

TEST_F(ConnectionTest, RefusesWhatItDoesNotUnderstandAndCloses) {
  Start();
  const struct {
    std::string bytes;
    const char* status;
  } cases[] = {
      {"GARBAGE\r\n\r\n", "400"},
      {"GET / HTTP/3.0\r\n\r\n", "505"},
      {"GET /echo HTTP/1.1\r\nA: " + std::string(100'000, 'a') + "\r\n\r\n", "431"},
      {"POST /echo HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", "413"},
      {"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "400"},
      {"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n", "413"},
  };
  for (const auto& example : cases) {
    ClientSocket client(server_->port());
    (void)client.TrySend(example.bytes, seconds(5));
    EXPECT_EQ(client.ReadAll().substr(9, 3), example.status);
  }
  ClientSocket client(server_->port());
  client.Send(Post("/echo", "alive"));
  EXPECT_NE(client.ReadUntil("alive").find("200 OK"), std::string::npos);
}

TEST_F(ConnectionTest, DropsClientsThatStall) {
  Limits limits;
  limits.read_timeout_s = 1;
  limits.idle_timeout_s = 1;
  Start(limits);
  ClientSocket idle(server_->port());
  ClientSocket in_head(server_->port());
  in_head.Send("GET /echo HT");
  ClientSocket in_body(server_->port());
  in_body.Send("POST /echo HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc");
  ClientSocket waiting(server_->port());
  waiting.Send(Post("/wait", ""));
  EXPECT_TRUE(Eventually([&] { return server_->num_connections() == 1; }));
  EXPECT_EQ(service_.num_disconnects, 0);  // a request that runs has all the time it needs
}

TEST_F(ConnectionTest, TurnsClientsAwayBeyondTheLimit) {
  Limits limits;
  limits.max_connections = 2;
  Start(limits);
  ClientSocket first(server_->port());
  ClientSocket second(server_->port());
  first.Send(Post("/echo", "1"));
  second.Send(Post("/echo", "2"));
  first.ReadUntil("\r\n\r\n1");
  second.ReadUntil("\r\n\r\n2");
  ClientSocket third(server_->port());
  EXPECT_EQ(third.ReadAll().substr(9, 3), "503");
  first.Close();
  ASSERT_TRUE(Eventually([&] { return server_->num_connections() == 1; }));
  ClientSocket fourth(server_->port());
  fourth.Send(Post("/echo", "4"));
  EXPECT_NE(fourth.ReadUntil("\r\n\r\n4").find("200 OK"), std::string::npos);
}

TEST_F(ConnectionTest, DrainingClosesIdleConnectionsAndWaitsForTheOthers) {
  Start();
  ClientSocket idle(server_->port());
  idle.Send(Post("/echo", "x"));
  idle.ReadUntil("\r\n\r\nx");
  ClientSocket waiting(server_->port());
  waiting.Send(Post("/wait", ""));
  ASSERT_TRUE(Eventually([&] { return service_.num_waiting == 1; }));
  server_->BeginDrain();
  EXPECT_EQ(idle.ReadAll(), "");
  EXPECT_FALSE(server_->WaitUntilIdle(std::chrono::steady_clock::now() + milliseconds(50)));
  server_->CloseConnections();
  EXPECT_TRUE(server_->WaitUntilIdle(std::chrono::steady_clock::now() + seconds(20)));
  EXPECT_EQ(service_.num_disconnects, 1);
}

TEST_F(ConnectionTest, DrainingKeepsConnectionsOfSequencesUntilItsEnd) {
  Start();
  ClientSocket kept(server_->port());
  kept.Send(Post("/sequence", "x"));
  kept.ReadUntil("\r\n\r\nx");
  server_->BeginDrain();
  EXPECT_EQ(server_->num_kept(), 1u);
  for (const char* path : {"/sequence", "/echo"}) {
    kept.Send(Post(path, "y"));
    EXPECT_EQ(kept.ReadUntil("\r\n\r\ny").find("Connection: close"), std::string::npos);
  }
  server_->EndDrain();
  EXPECT_EQ(kept.ReadAll(), "");
  EXPECT_TRUE(server_->WaitUntilIdle(std::chrono::steady_clock::now() + seconds(20)));
  EXPECT_EQ(server_->num_kept(), 0u);
}

TEST_F(ConnectionTest, ManyClientsAtOnceAreAllAnswered) {
  Start();
  std::vector<std::thread> clients;
  std::atomic<int> num_good{0};
  for (int t = 0; t < 8; ++t) {
    clients.emplace_back([&] {
      ClientSocket client(server_->port());
      for (int i = 0; i < 100; ++i) {
        client.Send(Post("/echo", "payload"));
        if (client.ReadUntil("payload").find("200 OK") != std::string::npos) ++num_good;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(num_good, 800);
}

}  // namespace
}  // namespace nereid::http
