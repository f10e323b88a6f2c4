#include "host/core/scheduling/priority_queue.h"

#include <gtest/gtest.h>

#include <deque>

#include "tests/host/core/support/test_client.h"

namespace nereid::core {
namespace {

using test::FakeTarget;
using test::TestClient;
using test::TestRequest;

constexpr char kQueueConfig[] = R"({"backend": "b", "max_batch_size": 8,
  "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [1]}],
  "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [1]}],
  "dynamic_batching": {"priority_levels": 3, "default_priority_level": 2}})";

class PriorityQueueTest : public testing::Test {
 protected:
  InferRequest* Make(const std::string& id, uint64_t priority, uint64_t timeout_us = 0) {
    InferRequest& request =
        requests_.emplace_back(target_, &client_, id, std::vector<int64_t>{1, 1}).request;
    request.set_priority(priority);
    request.set_timeout_us(timeout_us);
    EXPECT_TRUE(request.Prepare().ok());
    return &request;
  }
  static std::string Order(const PriorityQueue& queue) {
    std::string ids;
    for (InferRequest* r = queue.First(); r != nullptr; r = queue.Next(r)) ids += r->id();
    return ids;
  }
  void TearDown() override {
    for (TestRequest& owner : requests_) {
      owner.request.Fail(InternalError("end"), FailureReason::kOther);
    }
  }

  std::shared_ptr<FakeTarget> target_ = std::make_shared<FakeTarget>(kQueueConfig);
  TestClient client_;
  std::deque<TestRequest> requests_;
  DynamicBatching config_ = target_->schema().priority_levels == 3
                                ? *test::ConfigOf(kQueueConfig).dynamic_batching
                                : DynamicBatching{};
};

TEST_F(PriorityQueueTest, OrdersByLevelThenByArrival) {
  PriorityQueue queue(config_);
  for (const auto& [id, priority] :
       std::vector<std::pair<const char*, int>>{{"a", 3}, {"b", 1}, {"c", 0}, {"d", 1}, {"e", 9}}) {
    ASSERT_TRUE(queue.Push(Make(id, priority), 0).ok());
  }
  EXPECT_EQ(Order(queue), "bdcea");
  EXPECT_EQ(queue.size(), 5U);
}

TEST_F(PriorityQueueTest, RemovesFromAnyPosition) {
  PriorityQueue queue(config_);
  InferRequest* middle = nullptr;
  for (const char* id : {"a", "b", "c"}) {
    InferRequest* request = Make(id, 1);
    if (request->id() == "b") middle = request;
    ASSERT_TRUE(queue.Push(request, 0).ok());
  }
  EXPECT_TRUE(queue.Remove(middle));
  EXPECT_FALSE(queue.Remove(middle));
  EXPECT_EQ(Order(queue), "ac");
}

TEST_F(PriorityQueueTest, LimitsTheSizeOfEachLevel) {
  config_.priority_queue_policy[1].max_queue_size = 2;
  PriorityQueue queue(config_);
  ASSERT_TRUE(queue.Push(Make("a", 1), 0).ok());
  ASSERT_TRUE(queue.Push(Make("b", 1), 0).ok());
  const Status full = queue.Push(Make("c", 1), 0);
  EXPECT_EQ(full.code(), StatusCode::kUnavailable);
  EXPECT_EQ(full.message(), "[request id: c] Exceeds maximum queue size");
  EXPECT_TRUE(queue.Push(Make("d", 2), 0).ok());
}

TEST_F(PriorityQueueTest, RejectsExpiredRequests) {
  config_.default_queue_policy.default_timeout_us = 5;
  PriorityQueue queue(config_);
  ASSERT_TRUE(queue.Push(Make("a", 1), 0).ok());
  ASSERT_TRUE(queue.Push(Make("b", 1), 3000).ok());
  EXPECT_EQ(queue.earliest_deadline_ns(), 5000U);
  std::vector<InferRequest*> rejected;
  queue.TakeExpired(4999, &rejected);
  EXPECT_TRUE(rejected.empty());
  queue.TakeExpired(5000, &rejected);
  ASSERT_EQ(rejected.size(), 1U);
  EXPECT_EQ(rejected[0]->id(), "a");
  EXPECT_EQ(queue.earliest_deadline_ns(), 8000U);
  EXPECT_EQ(Order(queue), "b");
}

TEST_F(PriorityQueueTest, MovesDelayedRequestsToTheEndOfTheirLevel) {
  config_.priority_queue_policy[1].timeout_action = QueuePolicy::TimeoutAction::kDelay;
  config_.priority_queue_policy[1].default_timeout_us = 5;
  PriorityQueue queue(config_);
  ASSERT_TRUE(queue.Push(Make("a", 1), 0).ok());
  ASSERT_TRUE(queue.Push(Make("b", 1), 3000).ok());
  ASSERT_TRUE(queue.Push(Make("c", 2), 0).ok());
  std::vector<InferRequest*> rejected;
  queue.TakeExpired(6000, &rejected);
  EXPECT_TRUE(rejected.empty());
  EXPECT_EQ(Order(queue), "bac");
  EXPECT_EQ(queue.size(), 3U);
  queue.TakeExpired(9000, &rejected);
  EXPECT_EQ(Order(queue), "abc");
  EXPECT_TRUE(queue.Remove(queue.First()));
  EXPECT_EQ(Order(queue), "bc");
}

TEST_F(PriorityQueueTest, SupportsAnyNumberOfLevels) {
  std::string json = kQueueConfig;
  json.replace(json.find("3,"), 1, "4294967296");
  target_ = std::make_shared<FakeTarget>(json);
  config_ = *test::ConfigOf(json).dynamic_batching;
  config_.priority_queue_policy[200].max_queue_size = 1;
  PriorityQueue queue(config_);
  for (const uint64_t priority : {uint64_t{1} << 32, uint64_t{1} << 31, uint64_t{1}}) {
    ASSERT_TRUE(queue.Push(Make(StrCat(priority, " "), priority), 0).ok());
  }
  const std::string order = "1 2147483648 4294967296 ";
  EXPECT_EQ(Order(queue), order);
  std::vector<InferRequest*> many;
  for (uint64_t priority = 100; priority < 300; ++priority) {
    many.push_back(Make("", priority));
    ASSERT_TRUE(queue.Push(many.back(), 0).ok());
  }
  InferRequest* const full = Make("", 200);
  EXPECT_EQ(queue.Push(full, 0).code(), StatusCode::kUnavailable);
  for (InferRequest* request : many) EXPECT_TRUE(queue.Remove(request));
  EXPECT_EQ(queue.size(), 3U);
  EXPECT_EQ(Order(queue), order);
  EXPECT_TRUE(queue.Push(full, 0).ok()) << "the level was created again with its policy";
  EXPECT_EQ(queue.Push(Make("", 200), 0).code(), StatusCode::kUnavailable);
}

TEST_F(PriorityQueueTest, KeepsLevelsInOrderWhenMostRequestsExpire) {
  std::string json = kQueueConfig;
  json.replace(json.find("3,"), 1, "4294967296");
  target_ = std::make_shared<FakeTarget>(json);
  config_ = *test::ConfigOf(json).dynamic_batching;
  config_.default_queue_policy.default_timeout_us = 5;
  config_.priority_queue_policy[150].timeout_action = QueuePolicy::TimeoutAction::kDelay;
  for (const uint64_t priority : {150, 200}) {
    config_.priority_queue_policy[priority].default_timeout_us = 5;
  }
  config_.priority_queue_policy[200].max_queue_size = 1;
  PriorityQueue queue(config_);
  for (uint64_t priority = 100; priority < 300; ++priority) {
    ASSERT_TRUE(queue.Push(Make(StrCat(priority, " "), priority), 0).ok());
  }
  ASSERT_TRUE(queue.Push(Make("late ", 250), 1000).ok());
  std::vector<InferRequest*> rejected;
  queue.TakeExpired(5000, &rejected);
  EXPECT_EQ(rejected.size(), 199U);
  EXPECT_EQ(queue.size(), 2U);
  EXPECT_EQ(queue.earliest_deadline_ns(), 6000U);
  EXPECT_EQ(Order(queue), "150 late ");
  EXPECT_LE(queue.num_levels(), 64U) << "empty levels are erased";
  InferRequest* const again = Make("200 ", 200);
  EXPECT_TRUE(queue.Push(again, 0).ok());
  EXPECT_EQ(queue.Push(Make("", 200), 0).code(), StatusCode::kUnavailable);
  EXPECT_EQ(Order(queue), "150 200 late ");
}

TEST_F(PriorityQueueTest, RequestsMayShortenTheirTimeoutIfAllowed) {
  const auto deadline = [&](uint64_t level_timeout_us, bool allowed, uint64_t request_timeout_us) {
    DynamicBatching config = config_;
    config.default_queue_policy.default_timeout_us = level_timeout_us;
    config.default_queue_policy.allow_timeout_override = allowed;
    PriorityQueue queue(config);
    InferRequest* request = Make("x", 2, request_timeout_us);
    EXPECT_TRUE(queue.Push(request, 0).ok());
    EXPECT_TRUE(queue.Remove(request));
    return request->queue_deadline_ns;
  };
  EXPECT_EQ(deadline(10, true, 4), 4000U);
  EXPECT_EQ(deadline(10, true, 40), 10000U);
  EXPECT_EQ(deadline(10, true, 0), 10000U);
  EXPECT_EQ(deadline(10, false, 4), 10000U);
  EXPECT_EQ(deadline(0, true, 4), 4000U);
  EXPECT_EQ(deadline(0, false, 4), 0U);
  EXPECT_EQ(deadline(0, true, UINT64_MAX), 0U);
}

}  // namespace
}  // namespace nereid::core
