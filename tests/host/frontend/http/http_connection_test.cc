// Tests of the HTTP transport over real sockets, with well-behaved clients and with clients that
// violate the protocol.
#include "host/frontend/http/transport/http_connection.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/host/frontend/http/client_socket.h"
#include "tests/host/frontend/http/transport_fixture.h"

namespace nereid::http {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

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
