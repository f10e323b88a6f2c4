#include "host/core/scheduling/fifo_scheduler.h"

#include <gtest/gtest.h>

#include <deque>
#include <thread>

#include "tests/host/core/support/test_client.h"

namespace nereid::core {
namespace {

using test::FakeTarget;
using test::TestClient;
using test::TestRequest;

constexpr char kFifoConfig[] = R"({"backend": "b",
  "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [1]}],
  "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [1]}]})";

class FifoSchedulerTest : public testing::Test {
 protected:
  InferRequest* Make(const std::string& id) {
    InferRequest& request =
        requests_.emplace_back(target_, &client_, id, std::vector<int64_t>{1}).request;
    EXPECT_TRUE(request.Prepare().ok());
    return &request;
  }
  static void Answer(InferRequest* request) {
    request->Fail(InternalError("answered"), FailureReason::kOther);
  }

  std::shared_ptr<FakeTarget> target_ = std::make_shared<FakeTarget>(kFifoConfig);
  TestClient client_;
  std::deque<TestRequest> requests_;
  QueueTimeoutThread timeout_thread_;
  FifoScheduler scheduler_{/*num_instances=*/1, &timeout_thread_};
  std::vector<InferRequest*> batch_;
};

TEST_F(FifoSchedulerTest, ReturnsOneRequestAtATimeInOrder) {
  for (const char* id : {"a", "b"}) ASSERT_TRUE(scheduler_.Enqueue(Make(id)).ok());
  EXPECT_EQ(scheduler_.num_pending(), 2U);
  for (const char* id : {"a", "b"}) {
    ASSERT_TRUE(scheduler_.TakeBatch(0, &batch_));
    ASSERT_EQ(batch_.size(), 1U);
    EXPECT_EQ(batch_[0]->id(), id);
    Answer(batch_[0]);
  }
  EXPECT_EQ(scheduler_.num_pending(), 0U);
}

TEST_F(FifoSchedulerTest, ReturnsSeveralRequestsForSerialExecution) {
  for (const char* id : {"a", "b", "c", "d"}) ASSERT_TRUE(scheduler_.Enqueue(Make(id)).ok());
  ASSERT_TRUE(scheduler_.TakeBatch(0, &batch_));
  EXPECT_FALSE(scheduler_.TakeForSerialExecution(0, /*max_requests=*/1, &batch_));
  ASSERT_TRUE(scheduler_.TakeForSerialExecution(0, /*max_requests=*/3, &batch_));
  ASSERT_EQ(batch_.size(), 3U);
  EXPECT_EQ(batch_[1]->id(), "b");
  EXPECT_EQ(batch_[2]->id(), "c");
  EXPECT_EQ(scheduler_.num_pending(), 1U);
  std::vector<InferRequest*> last;
  ASSERT_TRUE(scheduler_.TakeBatch(0, &last));
  EXPECT_FALSE(scheduler_.TakeForSerialExecution(0, /*max_requests=*/3, &last));
  for (InferRequest* request : batch_) Answer(request);
  Answer(last[0]);
}

TEST_F(FifoSchedulerTest, NoSerialExecutionWithSeveralInstances) {
  for (const char* id : {"a", "b", "c"}) ASSERT_TRUE(scheduler_.Enqueue(Make(id)).ok());
  ASSERT_TRUE(scheduler_.TakeBatch(0, &batch_));
  scheduler_.AddInstance();
  EXPECT_FALSE(scheduler_.TakeForSerialExecution(0, /*max_requests=*/3, &batch_));
  scheduler_.RetireInstance(1);
  ASSERT_TRUE(scheduler_.TakeForSerialExecution(0, /*max_requests=*/3, &batch_));
  ASSERT_EQ(batch_.size(), 3U);
  for (InferRequest* request : batch_) Answer(request);
}

TEST_F(FifoSchedulerTest, FailsACancelledRequestWhileEveryInstanceIsBusy) {
  InferRequest* request = Make("a");
  ASSERT_TRUE(scheduler_.Enqueue(request).ok());
  scheduler_.OnCancelled(request);
  const auto answers = client_.WaitFor(1);
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].error.code(), StatusCode::kCancelled);
  EXPECT_EQ(scheduler_.num_pending(), 0U);
}

TEST_F(FifoSchedulerTest, DoesNotFailACancelledRequestInExecution) {
  InferRequest* request = Make("a");
  ASSERT_TRUE(scheduler_.Enqueue(request).ok());
  ASSERT_TRUE(scheduler_.TakeBatch(0, &batch_));
  scheduler_.OnCancelled(request);
  EXPECT_TRUE(client_.answers().empty());
  Answer(request);
}

TEST_F(FifoSchedulerTest, StopFinishesQueuedRequests) {
  InferRequest* queued = Make("a");
  ASSERT_TRUE(scheduler_.Enqueue(queued).ok());
  scheduler_.Stop();
  InferRequest* late = Make("b");
  EXPECT_EQ(scheduler_.Enqueue(late).code(), StatusCode::kUnavailable);
  late->Unprepare();
  ASSERT_TRUE(scheduler_.TakeBatch(0, &batch_));
  Answer(batch_[0]);
  EXPECT_FALSE(scheduler_.TakeBatch(0, &batch_));
}

TEST_F(FifoSchedulerTest, ServesManyClientsAndInstancesWithCancellations) {
  constexpr int kClients = 3, kEach = 200;
  std::vector<InferRequest*> all;
  for (int i = 0; i < kClients * kEach; ++i) all.push_back(Make("r"));
  std::vector<std::thread> instances, clients;
  for (int i = 0; i < 2; ++i) {
    instances.emplace_back([this] {
      std::vector<InferRequest*> batch;
      while (scheduler_.TakeBatch(0, &batch)) Answer(batch[0]);
    });
  }
  for (int c = 0; c < kClients; ++c) {
    clients.emplace_back([&, c] {
      for (int i = c * kEach; i < (c + 1) * kEach; ++i) {
        ASSERT_TRUE(scheduler_.Enqueue(all[i]).ok());
        if (i % 3 == 0) scheduler_.OnCancelled(all[i]);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  client_.WaitFor(all.size());
  scheduler_.Stop();
  for (std::thread& instance : instances) instance.join();
  EXPECT_EQ(client_.answers().size(), all.size());
  EXPECT_EQ(client_.num_released(), all.size());
}

}  // namespace
}  // namespace nereid::core
