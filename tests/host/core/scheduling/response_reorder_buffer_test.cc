#include "host/core/scheduling/response_reorder_buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <thread>

#include "tests/host/core/support/test_client.h"

namespace nereid::core {
namespace {

using test::FakeTarget;
using test::TestClient;
using test::TestRequest;

constexpr char kReorderConfig[] = R"({"backend": "b",
  "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [1]}],
  "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [1]}]})";

class ResponseReorderBufferTest : public testing::Test {
 protected:
  InferRequest* Make(const std::string& id) {
    InferRequest& request =
        requests_.emplace_back(target_, &client_, id, std::vector<int64_t>{1}).request;
    EXPECT_TRUE(request.Prepare().ok());
    request.sink()->set_reorderer(&reorder_buffer_, reorder_buffer_.TakeTicket());
    return &request;
  }
  static void Answer(InferRequest* request) {
    auto response = std::move(InferResponse::New(request->sink())).value();
    EXPECT_TRUE(
        InferResponse::Send(std::move(response), TRITONSERVER_RESPONSE_COMPLETE_FINAL).ok());
    request->Release(TRITONSERVER_REQUEST_RELEASE_ALL);
  }
  std::string Received() {
    std::string ids;
    for (const auto& answer : client_.answers()) ids += answer.request_id;
    return ids;
  }

  std::shared_ptr<FakeTarget> target_ = std::make_shared<FakeTarget>(kReorderConfig);
  ResponseReorderBuffer reorder_buffer_;
  TestClient client_;
  std::deque<TestRequest> requests_;
};

TEST_F(ResponseReorderBufferTest, DelaysResponsesOfLaterRequests) {
  InferRequest* a = Make("a");
  InferRequest* b = Make("b");
  InferRequest* c = Make("c");
  Answer(c);
  Answer(b);
  EXPECT_EQ(Received(), "");
  Answer(a);
  EXPECT_EQ(Received(), "abc");
}

TEST_F(ResponseReorderBufferTest, KeepsTheOrderOfRejectedRequests) {
  InferRequest* a = Make("a");
  InferRequest* b = Make("b");
  b->Fail(UnavailableError("rejected"), FailureReason::kRejected);
  EXPECT_EQ(Received(), "");
  Answer(a);
  EXPECT_EQ(Received(), "ab");
}

// A response that arrives after the final response of another thread is dropped.
TEST_F(ResponseReorderBufferTest, DropsResponsesAfterTheFinalResponse) {
  InferRequest* a = Make("a");
  InferRequest* b = Make("b");
  const auto late = [&](InferRequest* request) {
    auto response = std::move(InferResponse::New(request->sink())).value();
    reorder_buffer_.Deliver(request->sink(), response.release(), 0);
  };
  b->sink()->AddRef();
  ResponseSink* const sink = b->sink();
  EXPECT_TRUE(sink->Send(nullptr, TRITONSERVER_RESPONSE_COMPLETE_FINAL).ok());
  late(b);
  Answer(a);
  EXPECT_EQ(Received(), "a");
  late(b);
  EXPECT_EQ(Received(), "a");
  b->Release(TRITONSERVER_REQUEST_RELEASE_ALL);
  sink->Release();
  Answer(Make("c"));
  EXPECT_EQ(Received(), "ac");
}

// A decoupled model: each response names its request; an empty final response ends it.
TEST_F(ResponseReorderBufferTest, DeliversResponsesOfTheFirstRequestAtOnce) {
  InferRequest* a = Make("a");
  InferRequest* b = Make("b");
  const auto send = [](InferRequest* request) {
    auto response = std::move(InferResponse::New(request->sink())).value();
    EXPECT_TRUE(InferResponse::Send(std::move(response), 0).ok());
  };
  const auto end = [](InferRequest* request) {
    EXPECT_TRUE(request->sink()->Send(nullptr, TRITONSERVER_RESPONSE_COMPLETE_FINAL).ok());
    request->Release(TRITONSERVER_REQUEST_RELEASE_ALL);
  };
  send(b);
  send(a);
  EXPECT_EQ(Received(), "a");
  send(b);
  end(b);
  send(a);
  EXPECT_EQ(Received(), "aa");
  end(a);
  EXPECT_EQ(Received(), "aabb") << "the final flags have no response";
  EXPECT_EQ(client_.answers().size(), 6U);
}

TEST_F(ResponseReorderBufferTest, KeepsTheOrderWithManySenders) {
  constexpr int kRequests = 400;
  std::vector<InferRequest*> shuffled;
  std::string expected;
  for (int i = 0; i < kRequests; ++i) {
    shuffled.push_back(Make(std::string(1, static_cast<char>('a' + i % 26))));
    expected += shuffled.back()->id();
  }
  std::shuffle(shuffled.begin(), shuffled.end(), std::minstd_rand(1));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t; i < kRequests; i += 4) Answer(shuffled[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Received(), expected);
}

}  // namespace
}  // namespace nereid::core
