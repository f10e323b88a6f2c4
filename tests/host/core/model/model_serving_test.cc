// Requests through a whole model: queue, instance, backend, response.
#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "host/core/handle/error.h"
#include "tests/host/core/model/serving_fixture.h"

namespace nereid::core {
namespace {

constexpr char kPlain[] = R"({"backend": "fake",
  "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]}],
  "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]}]})";
constexpr char kBatching[] = R"({"backend": "fake", "max_batch_size": 8,
  "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]}],
  "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]}],
  "instance_group": [{"count": 2}],
  "dynamic_batching": {"max_queue_delay_microseconds": 500}})";

using ModelServingTest = test::ServingFixture;

TEST_F(ModelServingTest, ReturnsTheBackendsOutput) {
  Start(kPlain);
  InferRequest* request = Make({2});
  ASSERT_TRUE(Send(request).ok());
  const auto answers = client_.WaitFor(1);
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_TRUE(answers[0].error.ok());
  const float expected[] = {1, 1};
  EXPECT_EQ(answers[0].outputs[0],
            std::string(reinterpret_cast<const char*>(expected), sizeof(expected)));
  EXPECT_EQ(client_.num_buffers, 0);
  EXPECT_EQ(model_->num_inflight(), 0U);
  EXPECT_EQ(model_->statistics().Sum().success.count, 1U);
}

TEST_F(ModelServingTest, FailsEveryRequestWhenTheBackendReturnsAnError) {
  backend.execute = [](auto*, auto) { return UnavailableError("device lost"); };
  Start(kBatching);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Send(Make({1, 2})).ok());
  for (const auto& answer : client_.WaitFor(3)) {
    EXPECT_TRUE(answer.is_final);
    EXPECT_EQ(answer.error.code(), StatusCode::kUnavailable);
    EXPECT_EQ(answer.error.message(), "device lost");
  }
  const StatisticsSnapshot sum = model_->statistics().Sum();
  EXPECT_EQ(sum.failures[static_cast<size_t>(FailureReason::kBackend)], 3U);
}

TEST_F(ModelServingTest, FailsTheRequestWhenTheBackendThrows) {
  backend.execute = [](auto*, auto) -> Status { throw std::runtime_error("boom"); };
  Start(kPlain);
  ASSERT_TRUE(Send(Make({1})).ok());
  const auto answers = client_.WaitFor(1);
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].error.code(), StatusCode::kInternal);
  EXPECT_NE(answers[0].error.message().find("boom"), std::string::npos);
}

TEST_F(ModelServingTest, RefusesToReschedule) {
  Status refused;
  backend.execute = [&](auto* instance, std::vector<TRITONBACKEND_Request*> requests) {
    refused = TakeError(
        TRITONBACKEND_RequestRelease(requests[0], TRITONSERVER_REQUEST_RELEASE_RESCHEDULE));
    test::AnswerIdentity(instance, requests[0]);
    return Status::Ok();
  };
  Start(kPlain);
  ASSERT_TRUE(Send(Make({1})).ok());
  EXPECT_TRUE(client_.WaitFor(1)[0].error.ok());
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArg);
  EXPECT_NE(refused.message().find("not configured to handle such a flag"), std::string::npos);
}

TEST_F(ModelServingTest, FailsAQueuedRequestAtOnceWhenItIsCancelled) {
  std::mutex gate;
  gate.lock();
  backend.execute = [&](auto* instance, std::vector<TRITONBACKEND_Request*> requests) {
    { std::lock_guard wait(gate); }
    for (auto* request : requests) test::AnswerIdentity(instance, request);
    return Status::Ok();
  };
  Start(kPlain);
  InferRequest* running = Make({1}, "running");
  InferRequest* queued = Make({1}, "queued");
  ASSERT_TRUE(Send(running).ok());
  while (backend.Calls().size() < 3) std::this_thread::yield();
  ASSERT_TRUE(Send(queued).ok());
  ASSERT_TRUE(queued->Cancel().ok());
  const auto answers = client_.WaitFor(1);
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].request_id, "queued");
  EXPECT_EQ(answers[0].error.code(), StatusCode::kCancelled);
  ASSERT_TRUE(running->Cancel().ok());
  bool seen = false;
  EXPECT_EQ(
      TRITONBACKEND_RequestIsCancelled(reinterpret_cast<TRITONBACKEND_Request*>(running), &seen),
      nullptr);
  EXPECT_TRUE(seen);
  gate.unlock();
  EXPECT_EQ(client_.WaitFor(2).size(), 2U);
}

TEST_F(ModelServingTest, RefusesNewRequestsWhileItDrains) {
  Start(kPlain);
  model_->StopIntake();
  EXPECT_EQ(Send(Make({1})).code(), StatusCode::kUnavailable);
  EXPECT_EQ(model_->num_inflight(), 0U);
}

TEST_F(ModelServingTest, StreamsResponsesFromAnotherThreadAfterTheRelease) {
  std::mutex starting;  // guards streamer
  std::thread streamer;
  backend.execute = [&](auto*, std::vector<TRITONBACKEND_Request*> requests) {
    TRITONBACKEND_ResponseFactory* factory = nullptr;
    EXPECT_EQ(TRITONBACKEND_ResponseFactoryNew(&factory, requests[0]), nullptr);
    EXPECT_EQ(TRITONBACKEND_RequestRelease(requests[0], TRITONSERVER_REQUEST_RELEASE_ALL), nullptr);
    std::lock_guard lock(starting);
    streamer = std::thread([factory] {
      for (int i = 0; i < 10; ++i) {
        TRITONBACKEND_Response* response = nullptr;
        EXPECT_EQ(TRITONBACKEND_ResponseNewFromFactory(&response, factory), nullptr);
        EXPECT_EQ(TRITONBACKEND_ResponseSetIntParameter(response, "index", i), nullptr);
        EXPECT_EQ(TRITONBACKEND_ResponseSend(response, 0, nullptr), nullptr);
      }
      EXPECT_EQ(
          TRITONBACKEND_ResponseFactorySendFlags(factory, TRITONSERVER_RESPONSE_COMPLETE_FINAL),
          nullptr);
      EXPECT_EQ(TRITONBACKEND_ResponseFactoryDelete(factory), nullptr);
    });
    return Status::Ok();
  };
  Start(R"({"backend": "fake", "model_transaction_policy": {"decoupled": true},
    "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]}]})");
  ASSERT_TRUE(Send(Make({1})).ok());
  const auto answers = client_.WaitFor(1);
  std::lock_guard lock(starting);
  streamer.join();
  ASSERT_EQ(answers.size(), 11U);
  EXPECT_FALSE(answers[10].has_response);
  EXPECT_TRUE(answers[10].is_final);
}

TEST_F(ModelServingTest, ServesManyClientsThatSendAndCancel) {
  Start(kBatching);
  constexpr int kClients = 4, kEach = 100;
  std::vector<InferRequest*> all;
  for (int i = 0; i < kClients * kEach; ++i) all.push_back(Make({1 + i % 3, 2 + i % 2}));
  std::vector<std::thread> clients;
  for (int c = 0; c < kClients; ++c) {
    clients.emplace_back([&, c] {
      for (int i = c * kEach; i < (c + 1) * kEach; ++i) {
        ASSERT_TRUE(Send(all[i]).ok());
        if (i % 5 == 0) {
          ASSERT_TRUE(all[i]->Cancel().ok());
        }
      }
    });
  }
  std::thread reader([&] {
    for (int i = 0; i < 20; ++i) {
      EXPECT_NE(services->metrics.Page().find("nv_inference_count"), std::string::npos);
    }
  });
  for (std::thread& client : clients) client.join();
  reader.join();
  EXPECT_EQ(client_.WaitFor(all.size()).size(), all.size());
  EXPECT_EQ(model_->num_inflight(), 0U);
  const StatisticsSnapshot sum = model_->statistics().Sum();
  EXPECT_EQ(sum.success.count + sum.fail.count, all.size());
}

}  // namespace
}  // namespace nereid::core
