// Tests of the HTTP transport over real sockets, with well-behaved clients and with clients that
// violate the protocol.
#include "host/frontend/http/transport/http_connection.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "host/frontend/http/transport/http_server.h"
#include "net/event_loop.h"
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

// /echo answers with the body. /sequence does the same and keeps its connection open for sequences.
// /big answers with a borrowed megabyte. /wait never answers. /later answers with the body after
// AnswerWaiting. /stream sends until its client disconnects, and pauses while more than the limit
// is unsent. /posted receives everything after the leading bytes in posted memory, if there is any.
class TestService final : public HttpService {
 public:
  static constexpr size_t kNumLeadingBytes = 10;

  void Handle(HttpConnection& connection, const RequestHead& head, RequestBody&& body) override {
    if (head.path == "/sequence") connection.KeepOpenForSequences();
    if (head.path == "/wait" || head.path == "/stream" || head.path == "/later") {
      auto* call = new WaitingCall(*this, connection);
      connection.BeginCall(call);
      if (head.path == "/stream") call->Stream();
      if (head.path == "/later") call->AnswerLater(body.bytes());
    } else if (head.path == "/big") {
      const auto block = std::make_shared<std::string>(1 << 20, 'b');
      const OutputSegment pieces[] = {{"<"}, {*block, true}, {">"}};
      connection.ReplySegments({}, pieces, block);
    } else if (body.posted.external_owner() != nullptr) {
      ++num_received_in_posted;
      EXPECT_EQ(body.posted.data(), posted_memory->data());
      connection.Reply({.content_type = "text/plain"}, StrCat(body.bytes(), body.posted.view()));
    } else {
      connection.Reply({.content_type = "text/plain"}, body.bytes());
    }
  }

  std::optional<size_t> NumLeadingBytes(const RequestHead& head, uint64_t) override {
    if (head.path != "/posted") return std::nullopt;
    return num_leading_bytes;
  }
  PostedMemory AcquirePostedMemory(const RequestHead&, uint64_t rest_bytes) override {
    if (posted_memory == nullptr || posted_memory->size() < rest_bytes) return {};
    ++num_posted;
    return {posted_memory, posted_memory->data()};
  }

  // Answers the last request to /later.
  void AnswerWaiting() {
    ASSERT_TRUE(Eventually([&] { return waiting_loop_ != nullptr; }));
    net::EventLoop* const loop = waiting_loop_.exchange(nullptr);
    loop->PostFunction(std::exchange(answer_waiting_, {}));
  }

  std::atomic<int> num_waiting{0};
  size_t num_leading_bytes = kNumLeadingBytes;
  std::shared_ptr<std::string> posted_memory;  // set before the server starts
  std::atomic<int> num_posted{0}, num_received_in_posted{0};
  std::atomic<int> num_disconnects{0};
  std::atomic<int> num_pauses{0};
  std::atomic<size_t> max_unsent_bytes{0};

 private:
  class WaitingCall final : public InFlightCall, public net::LoopTask {
   public:
    WaitingCall(TestService& service, HttpConnection& connection)
        : service_(service), connection_(&connection), loop_(connection.loop()) {
      ++service_.num_waiting;
    }

    void AnswerLater(std::string_view body) {
      service_.answer_waiting_ = [this, text = std::string(body)] {
        if (connection_ != nullptr) connection_->Reply({.content_type = "text/plain"}, text);
        delete this;
      };
      service_.waiting_loop_ = &loop_;
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
      is_posted_ = true;
      connection_->SendChunk(std::string(10000, 's'));
      if (connection_ != nullptr) {
        const size_t unsent_bytes = connection_->unsent_bytes();
        service_.max_unsent_bytes = std::max(service_.max_unsent_bytes.load(), unsent_bytes);
        is_posted_ = unsent_bytes <= connection_->limits().max_unsent_bytes;
      }
      if (is_posted_) loop_.Post(this);
      if (!is_posted_) ++service_.num_pauses;
    }

    void OnOutputSent(size_t unsent_bytes) override {
      if (is_posted_ || unsent_bytes > connection_->limits().max_unsent_bytes) return;
      is_posted_ = true;
      loop_.Post(this);
    }

    void OnDisconnect() override {
      connection_ = nullptr;
      ++service_.num_disconnects;
      if (!is_posted_) delete this;
    }

    TestService& service_;
    HttpConnection* connection_;
    net::EventLoop& loop_;
    bool is_posted_ = false;  // to the loop
  };

  std::function<void()> answer_waiting_;  // written by the loop before waiting_loop_
  std::atomic<net::EventLoop*> waiting_loop_{nullptr};
};

class HttpConnectionTest : public ::testing::Test {
 protected:
  void Start(const HttpLimits& limits = {}) {
    HttpServerOptions options;
    options.address = "127.0.0.1";
    options.port = 0;
    options.num_threads = 2;
    options.limits = limits;
    Result<std::unique_ptr<HttpServer>> server = HttpServer::Start(options, service_);
    ASSERT_TRUE(server.ok()) << server.status().message();
    server_ = *std::move(server);
  }

  static std::string Post(std::string_view path, std::string_view body) {
    return StrCat("POST ", path, " HTTP/1.1\r\nHost: x\r\nContent-Length: ", body.size(),
                  "\r\n\r\n", body);
  }

  TestService service_;
  std::optional<ByteBudget> budget_;  // outlives the connections that count against it
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpConnectionTest, AnswersSuccessiveRequestsOnOneConnection) {
  Start();
  ClientSocket client(server_->port());
  for (int i = 0; i < 20; ++i) {
    client.Send(Post("/echo", StrCat("body", i)));
    const std::string answer = client.ReadUntil(StrCat("body", i));
    EXPECT_EQ(answer.substr(0, 15), "HTTP/1.1 200 OK") << answer;
  }
}

TEST_F(HttpConnectionTest, AnswersPipelinedRequestsInOrder) {
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

TEST_F(HttpConnectionTest, ReadsARequestByteByByte) {
  Start();
  ClientSocket client(server_->port());
  for (const char c : Post("/echo", "slow")) {
    client.Send({&c, 1});
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_NE(client.ReadUntil("slow").find("200 OK"), std::string::npos);
}

TEST_F(HttpConnectionTest, SkipsAnEmptyLineThatArrivesInParts) {
  Start();
  ClientSocket client(server_->port());
  for (const std::string_view piece : {"\r", "\n\r", "\n"}) {
    client.Send(piece);
    std::this_thread::sleep_for(milliseconds(20));  // the next part arrives separately
  }
  client.Send(Post("/echo", "body"));
  EXPECT_EQ(client.ReadUntil("body").substr(0, 15), "HTTP/1.1 200 OK");
}

TEST_F(HttpConnectionTest, ReadsLargeAndChunkedBodies) {
  Start();
  const std::string large(3'000'000, 'x');
  ClientSocket client(server_->port());
  std::thread sender([&] { client.Send(Post("/echo", large + "END")); });
  EXPECT_GT(client.ReadUntil("END").size(), large.size());
  sender.join();
  client.Send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
      "chunked\r\n\r\n3\r\nabc\r\n4\r\ndEnD\r\n0\r\n\r\n" +
      Post("/echo", "next"));
  const std::string answers = client.ReadUntil("next");
  EXPECT_NE(answers.find("abcdEnD"), std::string::npos) << answers;
}

class PostedBodyTest : public HttpConnectionTest {
 protected:
  void StartWithPostedMemory(size_t size_bytes) {
    service_.posted_memory = std::make_shared<std::string>(size_bytes, '?');
    Start();
  }
  // True if only the test still references the memory.
  bool IsReleased() {
    return Eventually([&] { return service_.posted_memory.use_count() == 1; });
  }

  // A body without repetition that ends with a marker.
  const std::string body_ = [] {
    std::string body;
    for (int i = 0; body.size() < 300'000; ++i) body += StrCat(i, ",");
    return body + "END";
  }();
};

TEST_F(PostedBodyTest, ReceivesALargeBodyInPostedMemory) {
  StartWithPostedMemory(body_.size() - TestService::kNumLeadingBytes);
  ClientSocket client(server_->port());
  for (int i = 1; i <= 3; ++i) {
    client.Send(Post("/posted", body_) + Post("/echo", "next"));
    const std::string answers = client.ReadUntil("next");
    EXPECT_NE(answers.find("\r\n\r\n" + body_), std::string::npos);
    EXPECT_EQ(service_.num_received_in_posted, i);
    EXPECT_EQ(*service_.posted_memory, body_.substr(TestService::kNumLeadingBytes));
  }
  EXPECT_TRUE(IsReleased());
}

// Clients send the head alone, or the head and a part of the leading bytes.
TEST_F(PostedBodyTest, AcquiresPostedMemoryOnceTheLeadingBytesHaveArrived) {
  StartWithPostedMemory(body_.size() - TestService::kNumLeadingBytes);
  const std::string request = Post("/posted", body_);
  const size_t head_bytes = request.size() - body_.size();
  for (const size_t first_piece : {head_bytes, head_bytes + TestService::kNumLeadingBytes - 1}) {
    ClientSocket client(server_->port());
    const int num_posted = service_.num_posted;
    client.Send(request.substr(0, first_piece));
    std::this_thread::sleep_for(milliseconds(20));  // the next part arrives separately
    EXPECT_EQ(service_.num_posted, num_posted);
    client.Send(request.substr(first_piece, 1));
    std::this_thread::sleep_for(milliseconds(20));
    client.Send(request.substr(first_piece + 1));
    EXPECT_NE(client.ReadUntil("END").find("\r\n\r\n" + body_), std::string::npos);
    EXPECT_EQ(service_.num_received_in_posted, num_posted + 1);
  }
}

TEST_F(PostedBodyTest, ReceivesABodyWithoutLeadingBytes) {
  service_.num_leading_bytes = 0;
  StartWithPostedMemory(body_.size());
  ClientSocket client(server_->port());
  client.Send(Post("/posted", body_));
  EXPECT_NE(client.ReadUntil("END").find("\r\n\r\n" + body_), std::string::npos);
  EXPECT_EQ(*service_.posted_memory, body_);
}

TEST_F(PostedBodyTest, ReceivesABodyWithoutPostedMemory) {
  StartWithPostedMemory(1);
  ClientSocket client(server_->port());
  for (int i = 0; i < 2; ++i) {
    client.Send(Post("/posted", body_) + Post("/echo", "next"));
    EXPECT_NE(client.ReadUntil("next").find("\r\n\r\n" + body_), std::string::npos);
  }
  EXPECT_EQ(service_.num_received_in_posted, 0);
}

TEST_F(PostedBodyTest, ReceivesABodyWhoseLeadingBytesExceedTheInputBuffer) {
  service_.num_leading_bytes = 20'000;
  StartWithPostedMemory(body_.size());
  ClientSocket client(server_->port());
  client.Send(Post("/posted", body_));
  EXPECT_NE(client.ReadUntil("END").find("\r\n\r\n" + body_), std::string::npos);
  EXPECT_EQ(service_.num_posted, 0);
}

TEST_F(PostedBodyTest, ReleasesPostedMemoryWhenTheClientClosesInTheMiddle) {
  StartWithPostedMemory(body_.size());
  ClientSocket client(server_->port());
  client.Send(Post("/posted", body_).substr(0, 200'000));
  ASSERT_TRUE(Eventually([&] { return service_.num_posted == 1; }));
  EXPECT_GT(service_.posted_memory.use_count(), 1);
  client.Close();
  EXPECT_TRUE(IsReleased());
  EXPECT_EQ(service_.num_received_in_posted, 0);
}

TEST_F(HttpConnectionTest, SendsBorrowedSegmentsToSlowReaders) {
  Start();
  ClientSocket client(server_->port(), /*receive_buffer_bytes=*/4096);
  client.Send(Post("/big", "") + Post("/echo", "after"));
  std::this_thread::sleep_for(milliseconds(50));
  const std::string answers = client.ReadUntil("after");
  EXPECT_NE(answers.find('<' + std::string(1 << 20, 'b') + '>'), std::string::npos);
}

TEST_F(HttpConnectionTest, SendsContinueToAClientThatExpectsIt) {
  Start();
  ClientSocket client(server_->port());
  client.Send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.Send("ok");
  EXPECT_NE(client.ReadUntil("ok").find("200 OK"), std::string::npos);
}

TEST_F(HttpConnectionTest, ClosesAfterAnHttp10Request) {
  Start();
  ClientSocket client(server_->port());
  client.Send("GET /echo HTTP/1.0\r\n\r\n");
  const std::string answer = client.ReadAll();
  EXPECT_NE(answer.find("Connection: close"), std::string::npos);
  EXPECT_TRUE(Eventually([&] { return server_->num_connections() == 0; }));
}

TEST_F(HttpConnectionTest, NotifiesTheCallWhenItsClientDisconnects) {
  Start();
  ClientSocket client(server_->port());
  client.Send(Post("/wait", ""));
  ASSERT_TRUE(Eventually([&] { return service_.num_waiting == 1; }));
  EXPECT_EQ(service_.num_disconnects, 0);
  client.Close();
  EXPECT_TRUE(Eventually([&] { return service_.num_disconnects == 1; }));
}

TEST_F(HttpConnectionTest, AnswersAClientThatHasEndedItsSide) {
  Start();
  ClientSocket client(server_->port());
  client.Send(Post("/later", "first") + Post("/later", "second"));
  ASSERT_TRUE(Eventually([&] { return service_.num_waiting == 1; }));
  client.HalfClose();
  // The interim response has been sent, so the server has noticed the end.
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  service_.AnswerWaiting();
  EXPECT_NE(client.ReadUntil("first").find("200 OK"), std::string::npos);
  ASSERT_TRUE(Eventually([&] { return service_.num_waiting == 2; }));
  service_.AnswerWaiting();
  EXPECT_NE(client.ReadAll().find("second"), std::string::npos);
  EXPECT_EQ(service_.num_disconnects, 0);
  EXPECT_TRUE(Eventually([&] { return server_->num_connections() == 0; }));
}

TEST_F(HttpConnectionTest, NotifiesTheCallWhenAHalfClosedClientDisconnects) {
  Start();
  ClientSocket client(server_->port());
  client.Send(Post("/wait", ""));
  client.HalfClose();
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_EQ(service_.num_disconnects, 0);
  client.Reset();
  EXPECT_TRUE(Eventually([&] { return service_.num_disconnects == 1; }));
}

TEST_F(HttpConnectionTest, DetectsADisconnectBehindUnreadPipelinedBytes) {
  Start();
  ClientSocket client(server_->port());
  client.Send(Post("/wait", ""));
  ASSERT_TRUE(Eventually([&] { return service_.num_waiting == 1; }));
  (void)client.TrySend(std::string(40'000, 'x'), milliseconds(100));
  client.Close();
  EXPECT_TRUE(Eventually([&] { return service_.num_disconnects == 1; }));
}

TEST_F(HttpConnectionTest, RefusesABodyBeyondTheBudgetAndKeepsTheConnection) {
  ByteBudget& budget = budget_.emplace(1'000'000);
  HttpLimits limits;
  limits.budget = &budget;
  Start(limits);
  ClientSocket client(server_->port());
  const std::string large(3'000'000, 'x');
  std::string chunked = "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 3; ++i) chunked += "f4240\r\n" + std::string(1'000'000, 'x') + "\r\n";
  for (const std::string& request : {Post("/echo", large), chunked + "0\r\n\r\n"}) {
    client.Send(request + Post("/echo", "next"));
    const std::string answers = client.ReadUntil("next");
    EXPECT_EQ(answers.substr(9, 3), "503");
    EXPECT_NE(answers.find("of 1000000 bytes are in use"), std::string::npos) << answers;
    EXPECT_NE(answers.find("200 OK"), std::string::npos);
    EXPECT_TRUE(Eventually([&] { return budget.used_bytes() == 0; }));
  }
}

TEST_F(HttpConnectionTest, CountsWhatHasArrivedOfABodyAndNotWhatItClaims) {
  ByteBudget& budget = budget_.emplace(0);
  HttpLimits limits;
  limits.budget = &budget;
  Start(limits);
  ClientSocket client(server_->port());
  client.Send("POST /wait HTTP/1.1\r\nHost: x\r\nContent-Length: 50000000\r\n\r\n" +
              std::string(300'000, 'x'));
  EXPECT_TRUE(Eventually([&] { return budget.used_bytes() >= 300'000; }));
  EXPECT_LT(budget.used_bytes(), 400'000u);
  client.Close();
  EXPECT_TRUE(Eventually([&] { return budget.used_bytes() == 0; }));
}

TEST_F(HttpConnectionTest, ReadsABodyThatOutgrowsItsFirstMemory) {
  ByteBudget& budget = budget_.emplace(0);
  HttpLimits limits;
  limits.budget = &budget;
  Start(limits);
  std::string body;
  for (int i = 0; body.size() < 5'000'000; ++i) body += StrCat(i, ",");
  ClientSocket client(server_->port());
  std::thread sender([&] { client.Send(Post("/echo", body + "END")); });
  const std::string answer = client.ReadUntil("END");
  sender.join();
  EXPECT_TRUE(answer.ends_with(body + "END"));
  EXPECT_TRUE(Eventually([&] { return budget.used_bytes() == 0; }));
}

TEST_F(HttpConnectionTest, DropsAStreamThatIsNotRead) {
  HttpLimits limits;
  limits.max_unsent_bytes = 500'000;
  limits.write_timeout_s = 1;
  Start(limits);
  ClientSocket client(server_->port(), /*receive_buffer_bytes=*/4096);
  client.Send(Post("/stream", ""));
  EXPECT_TRUE(Eventually([&] { return service_.num_disconnects == 1; }));
  EXPECT_LT(service_.max_unsent_bytes, 600'000u);
}

TEST_F(HttpConnectionTest, GoesOnWithAStreamWhenItsClientReads) {
  HttpLimits limits;
  limits.max_unsent_bytes = 500'000;
  Start(limits);
  ClientSocket client(server_->port(), /*receive_buffer_bytes=*/4096);
  client.Send(Post("/stream", ""));
  for (int round = 1; round <= 3; ++round) {
    ASSERT_TRUE(Eventually([&] { return service_.num_pauses == round; }));
    while (service_.num_pauses == round) ASSERT_NE(client.ReadUntil("s"), "");
  }
  EXPECT_EQ(service_.num_disconnects, 0);
  EXPECT_LT(service_.max_unsent_bytes, 600'000u);
}

TEST_F(HttpConnectionTest, StreamsInChunksUntilTheClientLeaves) {
  Start();
  {
    ClientSocket client(server_->port());
    client.Send(Post("/stream", ""));
    const std::string answer = client.ReadUntil("\r\n2710\r\nsss");
    EXPECT_NE(answer.find("Transfer-Encoding: chunked"), std::string::npos);
  }
  EXPECT_TRUE(Eventually([&] { return service_.num_disconnects == 1; }));
}

TEST_F(HttpConnectionTest, RejectsMalformedRequestsAndCloses) {
  Start();
  const struct {
    std::string bytes;
    const char* status;
  } cases[] = {
      {"GARBAGE\r\n\r\n", "400"},
      {"GET / HTTP/3.0\r\n\r\n", "505"},
      {"GET /echo HTTP/1.1\r\nHost: x\r\nA: " + std::string(100'000, 'a') + "\r\n\r\n", "431"},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n", "400"},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "400"},
      {"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n", "400"},
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

TEST_F(HttpConnectionTest, DropsClientsThatStall) {
  HttpLimits limits;
  limits.read_timeout_s = 1;
  limits.idle_timeout_s = 1;
  Start(limits);
  ClientSocket idle(server_->port());
  ClientSocket in_head(server_->port());
  in_head.Send("GET /echo HT");
  ClientSocket in_body(server_->port());
  in_body.Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
  ClientSocket waiting(server_->port());
  waiting.Send(Post("/wait", ""));
  EXPECT_TRUE(Eventually([&] { return server_->num_connections() == 1; }));
  EXPECT_EQ(service_.num_disconnects, 0);  // a running request has no timeout
}

TEST_F(HttpConnectionTest, RejectsClientsBeyondTheConnectionLimit) {
  HttpLimits limits;
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

TEST_F(HttpConnectionTest, DrainingClosesIdleConnectionsAndWaitsForTheOthers) {
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

TEST_F(HttpConnectionTest, DrainingKeepsConnectionsOfSequencesUntilItsEnd) {
  Start();
  ClientSocket client(server_->port());
  client.Send(Post("/sequence", "x"));
  client.ReadUntil("\r\n\r\nx");
  server_->BeginDrain();
  EXPECT_EQ(server_->num_kept_open(), 1u);
  for (const char* path : {"/sequence", "/echo"}) {
    client.Send(Post(path, "y"));
    EXPECT_EQ(client.ReadUntil("\r\n\r\ny").find("Connection: close"), std::string::npos);
  }
  server_->EndDrain();
  EXPECT_EQ(client.ReadAll(), "");
  EXPECT_TRUE(server_->WaitUntilIdle(std::chrono::steady_clock::now() + seconds(20)));
  EXPECT_EQ(server_->num_kept_open(), 0u);
}

TEST_F(HttpConnectionTest, ManyClientsAtOnceAreAllAnswered) {
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
