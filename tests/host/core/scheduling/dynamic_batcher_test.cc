#include "host/core/scheduling/dynamic_batcher.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <deque>
#include <fstream>
#include <string>
#include <thread>

#include "base/clock.h"
#include "tests/host/core/support/test_client.h"

namespace nereid::core {
namespace {

using test::FakeTarget;
using test::TestClient;
using test::TestRequest;

constexpr char kBatcherConfig[] = R"({"backend": "b", "max_batch_size": 4,
  "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]}],
  "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]}],
  "dynamic_batching": {}})";

class DynamicBatcherTest : public testing::Test {
 protected:
  void SetUp() override { config_ = *test::ConfigOf(kBatcherConfig).dynamic_batching; }
  std::shared_ptr<DynamicBatcher> NewBatcher() {
    return std::make_shared<DynamicBatcher>(config_, 4, &timeout_thread_);
  }
  InferRequest* Make(const std::string& id, uint64_t timeout_us = 0, int64_t dim = 1) {
    InferRequest& request =
        requests_.emplace_back(target_, &client_, id, std::vector<int64_t>{1, dim}).request;
    request.set_timeout_us(timeout_us);
    EXPECT_TRUE(request.Prepare().ok());
    return &request;
  }
  static void Answer(InferRequest* request) {
    request->Fail(InternalError("answered"), FailureReason::kOther);
  }
  static void AnswerAll(const std::vector<InferRequest*>& batch) {
    for (InferRequest* request : batch) Answer(request);
  }

  std::shared_ptr<FakeTarget> target_ = std::make_shared<FakeTarget>(kBatcherConfig);
  TestClient client_;
  std::deque<TestRequest> requests_;
  DynamicBatching config_;
  QueueTimeoutThread timeout_thread_;
  std::vector<InferRequest*> batch_;
};

TEST_F(DynamicBatcherTest, BatchesWhatIsQueued) {
  const auto batcher = NewBatcher();
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(batcher->Enqueue(Make("r")).ok());
  EXPECT_EQ(batcher->num_pending(), 6U);
  for (const size_t expected : {4, 2}) {
    ASSERT_TRUE(batcher->TakeBatch(0, &batch_));
    EXPECT_EQ(batch_.size(), expected);
    AnswerAll(batch_);
  }
}

class DelayedBatcherTest : public DynamicBatcherTest {
 protected:
  DelayedBatcherTest() { setenv("TRITONSERVER_DELAY_SCHEDULER", "3", 1); }
  ~DelayedBatcherTest() override { unsetenv("TRITONSERVER_DELAY_SCHEDULER"); }
};

TEST_F(DelayedBatcherTest, StartsWhenTheConfiguredNumberOfRequestsWait) {
  const auto batcher = NewBatcher();
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(batcher->Enqueue(Make("r")).ok());
  EXPECT_FALSE(batcher->Take(0, TakeMode::kTry, &batch_));
  std::thread instance([&] { EXPECT_TRUE(batcher->TakeBatch(0, &batch_)); });
  ASSERT_TRUE(batcher->Enqueue(Make("r")).ok());
  instance.join();
  EXPECT_EQ(batch_.size(), 3U);
  AnswerAll(batch_);
  ASSERT_TRUE(batcher->Enqueue(Make("r")).ok());
  ASSERT_TRUE(batcher->TakeBatch(0, &batch_)) << "the delay is over";
  AnswerAll(batch_);
}

TEST_F(DelayedBatcherTest, StopEndsTheDelay) {
  const auto batcher = NewBatcher();
  ASSERT_TRUE(batcher->Enqueue(Make("r")).ok());
  batcher->Stop();
  ASSERT_TRUE(batcher->TakeBatch(0, &batch_));
  AnswerAll(batch_);
}

TEST_F(DynamicBatcherTest, WaitsForTheDelay) {
  config_.max_queue_delay_us = 20'000;
  const auto batcher = NewBatcher();
  const uint64_t start_ns = SteadyNowNs();
  ASSERT_TRUE(batcher->Enqueue(Make("r")).ok());
  ASSERT_TRUE(batcher->TakeBatch(0, &batch_));
  EXPECT_EQ(batch_.size(), 1U);
  EXPECT_GE(SteadyNowNs() - start_ns, 20'000'000U);
  AnswerAll(batch_);
}

TEST_F(DynamicBatcherTest, ReleasesABatchThatFillsUpWithinTheDelay) {
  config_.max_queue_delay_us = 60'000'000;
  const auto batcher = NewBatcher();
  std::vector<InferRequest*> late;
  for (int i = 0; i < 3; ++i) late.push_back(Make("r"));
  ASSERT_TRUE(batcher->Enqueue(Make("r")).ok());
  std::thread client([&] {
    for (InferRequest* request : late) ASSERT_TRUE(batcher->Enqueue(request).ok());
  });
  ASSERT_TRUE(batcher->TakeBatch(0, &batch_));
  EXPECT_EQ(batch_.size(), 4U);
  AnswerAll(batch_);
  client.join();
}

// True if the thread of this process sleeps: here it waits in TakeBatch, because no other thread
// holds the mutex.
bool IsSleeping(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string text;
  std::getline(file, text);
  return text.compare(text.rfind(')') + 2, 1, "S") == 0;
}

// One request leaves a batch of three elements. The remaining two elements are a preferred size;
// otherwise they would wait for a day.
class ShrinkingBatchTest : public DynamicBatcherTest {
 protected:
  void EnqueueBoth(uint64_t timeout_us) {
    config_.max_queue_delay_us = 86'400'000'000;
    config_.preferred_batch_sizes = {2, 4};
    config_.default_queue_policy.allow_timeout_override = true;
    config_.default_queue_policy.default_timeout_us = 60'000'000;
    batcher_ = NewBatcher();
    removed_ = Make("leaver", timeout_us);
    InferRequest& pair =
        requests_.emplace_back(target_, &client_, "pair", std::vector<int64_t>{2, 1}).request;
    ASSERT_TRUE(pair.Prepare().ok());
    ASSERT_TRUE(batcher_->Enqueue(removed_).ok());
    ASSERT_TRUE(batcher_->Enqueue(&pair).ok());
  }
  void ExpectThePairOfElements() {
    ASSERT_TRUE(batcher_->TakeBatch(0, &batch_));
    ASSERT_EQ(batch_.size(), 1U);
    EXPECT_EQ(batch_[0]->id(), "pair");
    AnswerAll(batch_);
  }

  std::shared_ptr<DynamicBatcher> batcher_;
  InferRequest* removed_ = nullptr;
};

TEST_F(ShrinkingBatchTest, IsReleasedAfterARequestTimedOut) {
  EnqueueBoth(/*timeout_us=*/100'000);
  ExpectThePairOfElements();
}

TEST_F(ShrinkingBatchTest, IsReleasedAfterARequestWasCancelled) {
  EnqueueBoth(/*timeout_us=*/0);
  std::thread client([&, taker = gettid()] {
    while (!IsSleeping(taker)) std::this_thread::yield();
    batcher_->OnCancelled(removed_);
  });
  ExpectThePairOfElements();
  client.join();
}

TEST_F(DynamicBatcherTest, RejectsATimedOutRequestWhileEveryInstanceIsBusy) {
  config_.default_queue_policy.allow_timeout_override = true;
  const auto batcher = NewBatcher();
  ASSERT_TRUE(batcher->Enqueue(Make("a", 500'000)).ok());
  ASSERT_TRUE(batcher->Enqueue(Make("b", 1'000)).ok());
  const auto answers = client_.WaitFor(2);
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[0].request_id, "b");
  EXPECT_EQ(answers[1].error.code(), StatusCode::kUnavailable);
  EXPECT_EQ(answers[1].error.message(), "Request timeout expired");
  EXPECT_EQ(batcher->num_pending(), 0U);
}

TEST_F(DynamicBatcherTest, FailsACancelledRequestWhileEveryInstanceIsBusy) {
  const auto batcher = NewBatcher();
  InferRequest* request = Make("a");
  ASSERT_TRUE(batcher->Enqueue(request).ok());
  batcher->OnCancelled(request);
  ASSERT_EQ(client_.WaitFor(1).size(), 1U);
  EXPECT_EQ(client_.answers()[0].error.code(), StatusCode::kCancelled);
}

TEST_F(DynamicBatcherTest, RefusesRequestsBeyondTheQueueSize) {
  config_.default_queue_policy.max_queue_size = 1;
  const auto batcher = NewBatcher();
  InferRequest* first = Make("a");
  InferRequest* second = Make("b");
  ASSERT_TRUE(batcher->Enqueue(first).ok());
  EXPECT_EQ(batcher->Enqueue(second).code(), StatusCode::kUnavailable);
  second->Unprepare();
  ASSERT_TRUE(batcher->TakeBatch(0, &batch_));
  AnswerAll(batch_);
}

TEST_F(DynamicBatcherTest, PreservesTheOrderOfRequestsAcrossInstances) {
  config_.preserve_ordering = true;
  const auto batcher = NewBatcher();
  for (const char* id : {"a", "b", "c", "d", "e", "f"}) {
    ASSERT_TRUE(batcher->Enqueue(Make(id)).ok());
  }
  std::vector<InferRequest*> second;
  ASSERT_TRUE(batcher->TakeBatch(0, &batch_));
  ASSERT_TRUE(batcher->TakeBatch(0, &second));
  AnswerAll(second);
  EXPECT_TRUE(client_.answers().empty());
  AnswerAll(batch_);
  std::string ids;
  for (const auto& answer : client_.answers()) ids += answer.request_id;
  EXPECT_EQ(ids, "abcdef");
}

TEST_F(DynamicBatcherTest, ServesManyClientsAndInstances) {
  config_.max_queue_delay_us = 100;
  config_.preferred_batch_sizes = {2};
  config_.default_queue_policy.allow_timeout_override = true;
  const auto batcher = NewBatcher();
  constexpr int kClients = 3, kEach = 200;
  std::vector<InferRequest*> all;
  for (int i = 0; i < kClients * kEach; ++i) {
    all.push_back(Make("r", i % 5 == 0 ? 50 : 0, 1 + i % 2));
  }
  std::vector<std::thread> instances, clients;
  for (int i = 0; i < 3; ++i) {
    instances.emplace_back([&] {
      std::vector<InferRequest*> batch;
      while (batcher->TakeBatch(0, &batch)) AnswerAll(batch);
    });
  }
  for (int c = 0; c < kClients; ++c) {
    clients.emplace_back([&, c] {
      for (int i = c * kEach; i < (c + 1) * kEach; ++i) {
        ASSERT_TRUE(batcher->Enqueue(all[i]).ok());
        if (i % 7 == 0) batcher->OnCancelled(all[i]);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  client_.WaitFor(all.size());
  batcher->Stop();
  for (std::thread& instance : instances) instance.join();
  EXPECT_EQ(client_.answers().size(), all.size());
  EXPECT_EQ(client_.num_released(), all.size());
}

// All requests have one shape: an arrival that does not fill the batch wakes no thread.
TEST_F(DynamicBatcherTest, ReleasesABatchOfFixedShapesThatFillsUpWithinTheDelay) {
  std::string config = kBatcherConfig;
  for (size_t at; (at = config.find("[-1]")) != std::string::npos;) config.replace(at, 4, "[1]");
  target_ = std::make_shared<FakeTarget>(config);
  config_.max_queue_delay_us = 3'600'000'000;
  config_.preferred_batch_sizes = {3};
  const auto batcher = NewBatcher();
  std::vector<InferRequest*> all;
  for (int i = 0; i < 300; ++i) all.push_back(Make("r"));
  std::thread client([&] {
    for (InferRequest* request : all) ASSERT_TRUE(batcher->Enqueue(request).ok());
  });
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(batcher->TakeBatch(0, &batch_));
    EXPECT_EQ(batch_.size(), 3U);
    AnswerAll(batch_);
  }
  client.join();
}

TEST_F(DynamicBatcherTest, WakesAnInstanceForEachSingleRequest) {
  const auto batcher = NewBatcher();
  std::vector<std::thread> instances;
  for (int i = 0; i < 3; ++i) {
    instances.emplace_back([&] {
      std::vector<InferRequest*> batch;
      while (batcher->TakeBatch(0, &batch)) AnswerAll(batch);
    });
  }
  for (size_t i = 1; i <= 500; ++i) {
    ASSERT_TRUE(batcher->Enqueue(Make("r")).ok());
    client_.WaitFor(i);
  }
  batcher->Stop();
  for (std::thread& instance : instances) instance.join();
  EXPECT_EQ(client_.answers().size(), 500U);
}

}  // namespace
}  // namespace nereid::core
