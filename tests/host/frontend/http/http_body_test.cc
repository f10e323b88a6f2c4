// Tests of request bodies over real sockets: large and chunked ones, those that are received in
// posted memory, and the budget that they count against.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "tests/host/frontend/http/client_socket.h"
#include "tests/host/frontend/http/transport_fixture.h"

namespace nereid::http {
namespace {

using std::chrono::milliseconds;

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
  ASSERT_TRUE(Eventually([&] { return service_.posted_memory.use_count() > 1; }));
  EXPECT_EQ(service_.num_posted, 1);
  client.Close();
  EXPECT_TRUE(IsReleased());
  EXPECT_EQ(service_.num_received_in_posted, 0);
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

}  // namespace
}  // namespace nereid::http
