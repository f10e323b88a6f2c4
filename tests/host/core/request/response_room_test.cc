#include "host/core/request/response_room.h"

#include <gtest/gtest.h>

#include <future>
#include <latch>
#include <thread>
#include <vector>

#include "host/core/request/infer_response.h"
#include "tests/host/core/support/test_client.h"

namespace nereid::core {
namespace {

using test::FakeTarget;
using test::TestClient;
using test::TestRequest;

TEST(ResponseRoomTest, HasRoomUntilItIsTakenAway) {
  ResponseRoom room;
  EXPECT_TRUE(room.HasRoom());
  room.Wait();
  room.Set(false);
  EXPECT_FALSE(room.HasRoom());
  room.Set(true);
  EXPECT_TRUE(room.HasRoom());
  room.Wait();
}

TEST(ResponseRoomTest, StaysOpenOnceItIsOpen) {
  ResponseRoom room;
  room.Set(false);
  room.Open();
  room.Set(false);
  EXPECT_TRUE(room.HasRoom());
  room.Wait();
}

TEST(ResponseRoomTest, NeedsTheRoomOfItsSource) {
  ResponseRoom client, ensemble, step;
  ensemble.SetSource(&client);
  step.SetSource(&ensemble);
  client.Set(false);
  EXPECT_FALSE(step.HasRoom());
  client.Set(true);
  EXPECT_TRUE(step.HasRoom());
  step.Set(false);
  EXPECT_FALSE(step.HasRoom());
  EXPECT_TRUE(client.HasRoom());
  step.Open();
  client.Set(false);
  EXPECT_TRUE(step.HasRoom()) << "nobody reads the responses of a step that was cancelled";
}

// Starts a thread that waits for `room`, and returns when it is about to.
std::future<void> StartWaiting(ResponseRoom& room) {
  auto begun = std::make_shared<std::latch>(1);
  auto waiter = std::async(std::launch::async, [&room, begun] {
    begun->count_down();
    room.Wait();
  });
  begun->wait();
  return waiter;
}

TEST(ResponseRoomTest, WakesAllThatWait) {
  ResponseRoom client, step;
  step.SetSource(&client);
  for (int round = 0; round < 200; ++round) {
    client.Set(false);
    std::vector<std::future<void>> waiters;
    for (int i = 0; i < 4; ++i) waiters.push_back(StartWaiting(i % 2 == 0 ? client : step));
    client.Set(true);
    for (std::future<void>& waiter : waiters) waiter.get();
  }
}

TEST(ResponseRoomTest, ACancelledStepWaitsNoLongerForTheClient) {
  ResponseRoom client, step;
  step.SetSource(&client);
  client.Set(false);
  std::future<void> waiter = StartWaiting(step);
  step.Open();
  waiter.get();
  EXPECT_FALSE(client.HasRoom());
}

TEST(ResponseRoomTest, AThreadThatMustNotWaitDoesNotWait) {
  ResponseRoom room;
  room.Set(false);
  std::async(std::launch::async, [&room] {
    ResponseRoom::ForbidWaitingOnThisThread();
    room.Wait();
  }).get();
  EXPECT_FALSE(room.HasRoom());
}

constexpr char kDecoupledConfig[] =
    R"({"backend": "b", "model_transaction_policy": {"decoupled": true},
  "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [1]}],
  "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [1]}]})";

class WaitingSenderTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(request_.Prepare().ok()); }
  void TearDown() override { request_.Release(TRITONSERVER_REQUEST_RELEASE_ALL); }
  Status Send(uint32_t flags = 0) {
    return InferResponse::Send(InferResponse::New(request_.sink()).value(), flags);
  }
  // Sends a response on another thread, and returns when the client has it.
  std::future<Status> StartSending() {
    const size_t before = client_.answers().size();
    auto sender = std::async(std::launch::async, [this] { return Send(); });
    while (client_.answers().size() == before) std::this_thread::yield();
    return sender;
  }

  std::shared_ptr<FakeTarget> target_ = std::make_shared<FakeTarget>(kDecoupledConfig);
  TestClient client_;
  TestRequest owner_{target_, &client_, "r", {1}};
  InferRequest& request_ = owner_.request;
};

TEST_F(WaitingSenderTest, GoesOnWhenThereIsRoom) {
  request_.sink()->room().Set(false);
  std::future<Status> sender = StartSending();
  request_.sink()->room().Set(true);
  EXPECT_TRUE(sender.get().ok());
  EXPECT_TRUE(Send(TRITONSERVER_RESPONSE_COMPLETE_FINAL).ok());
}

TEST_F(WaitingSenderTest, GoesOnWhenTheRequestIsCancelled) {
  request_.sink()->room().Set(false);
  std::future<Status> sender = StartSending();
  EXPECT_TRUE(request_.Cancel().ok());
  EXPECT_TRUE(sender.get().ok());
  EXPECT_TRUE(Send().ok()) << "nothing waits from now on";
  EXPECT_TRUE(Send(TRITONSERVER_RESPONSE_COMPLETE_FINAL).ok());
}

TEST_F(WaitingSenderTest, GoesOnWhenAnotherThreadEndsTheRequest) {
  request_.sink()->room().Set(false);
  std::future<Status> sender = StartSending();
  EXPECT_TRUE(Send(TRITONSERVER_RESPONSE_COMPLETE_FINAL).ok()) << "the final response never waits";
  EXPECT_TRUE(sender.get().ok());
}

TEST_F(WaitingSenderTest, DoesNotWaitIfItsBackendAsksForRoom) {
  request_.sink()->room().Set(false);
  request_.sink()->SetSenderWaits(false);
  EXPECT_TRUE(Send().ok());
  EXPECT_FALSE(request_.sink()->room().HasRoom());
  EXPECT_TRUE(Send(TRITONSERVER_RESPONSE_COMPLETE_FINAL).ok());
}

TEST_F(WaitingSenderTest, WaitsForTheReaderOfTheRequestThatItServes) {
  TestClient step_client;
  TestRequest step_owner(target_, &step_client, "step", {1});
  InferRequest& step = step_owner.request;
  step.SetRoomSource(request_.sink());
  ASSERT_TRUE(step.Prepare().ok());
  request_.sink()->room().Set(false);
  auto sender = std::async(std::launch::async, [&step] {
    return InferResponse::Send(InferResponse::New(step.sink()).value(), 0);
  });
  while (step_client.answers().empty()) std::this_thread::yield();
  EXPECT_FALSE(step.sink()->room().HasRoom());
  EXPECT_TRUE(request_.Cancel().ok());
  EXPECT_TRUE(sender.get().ok());
  ASSERT_TRUE(InferResponse::Send(InferResponse::New(step.sink()).value(),
                                  TRITONSERVER_RESPONSE_COMPLETE_FINAL)
                  .ok());
  step.Release(TRITONSERVER_REQUEST_RELEASE_ALL);
  EXPECT_TRUE(Send(TRITONSERVER_RESPONSE_COMPLETE_FINAL).ok());
}

}  // namespace
}  // namespace nereid::core
