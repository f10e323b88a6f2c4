#include "host/core/scheduling/batch_rules.h"

#include <gtest/gtest.h>

#include <deque>

#include "tests/host/core/support/test_client.h"

namespace nereid::core {
namespace {

using test::FakeTarget;
using test::TestClient;
using test::TestRequest;

constexpr char kRulesConfig[] = R"({"backend": "b", "max_batch_size": 8,
  "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]},
            {"name": "EXTRA", "data_type": "TYPE_FP32", "dims": [1], "optional": true},
            {"name": "RAGGED", "data_type": "TYPE_FP32", "dims": [-1], "optional": true,
             "allow_ragged_batch": true}],
  "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]}]})";

// A queue of requests with given batch sizes, queued at 1000 ns.
class BatchRulesTest : public testing::Test {
 protected:
  InferRequest* Push(int64_t batch_size, int64_t dim = 2) {
    TestRequest& owner =
        requests_.emplace_back(target_, &client_, "r", std::vector<int64_t>{batch_size, dim});
    EXPECT_TRUE(owner.request.Prepare().ok());
    owner.request.queue_start_ns = 1000;
    EXPECT_TRUE(queue_.Push(&owner.request, 1000).ok());
    return &owner.request;
  }
  void TearDown() override {
    while (InferRequest* request = queue_.First()) queue_.Remove(request);
    for (TestRequest& owner : requests_)
      owner.request.Fail(InternalError("end"), FailureReason::kOther);
  }
  // Decides with a queue delay of 10 us by default.
  BatchRules::Decision Decide(std::vector<int32_t> preferred, uint64_t now_ns,
                              uint64_t delay_us = 10) {
    DynamicBatching config;
    config.preferred_batch_sizes = std::move(preferred);
    config.max_queue_delay_us = delay_us;
    return BatchRules(config, 8).Decide(queue_, now_ns);
  }

  std::shared_ptr<FakeTarget> target_ = std::make_shared<FakeTarget>(kRulesConfig);
  TestClient client_;
  std::deque<TestRequest> requests_;
  PriorityQueue queue_{DynamicBatching{}};
};

TEST_F(BatchRulesTest, ReleasesAllRequestsWithoutDelay) {
  for (int i = 0; i < 3; ++i) Push(1);
  const auto decision = Decide({}, 1000, 0);
  EXPECT_EQ(decision.num_requests, 3U);
  EXPECT_EQ(decision.wait_until_ns, 0U);
}

TEST_F(BatchRulesTest, PrefersAPreferredSizeWithoutDelay) {
  for (int i = 0; i < 5; ++i) Push(1);
  EXPECT_EQ(Decide({4, 6}, 2000, 0).num_requests, 4U);
  Push(1);
  EXPECT_EQ(Decide({4, 6}, 2000, 0).num_requests, 6U);
  const auto below = Decide({7}, 2000, 0);
  EXPECT_EQ(below.num_requests, 6U);
  EXPECT_EQ(below.wait_until_ns, 0U);
}

TEST_F(BatchRulesTest, NeverExceedsTheMaximumBatchSize) {
  for (int i = 0; i < 4; ++i) Push(3);
  const auto decision = Decide({}, 1000);
  EXPECT_EQ(decision.num_requests, 2U);
  EXPECT_EQ(decision.wait_until_ns, 0U);
}

TEST_F(BatchRulesTest, WaitsForMoreUntilTheOldestHasWaitedLongEnough) {
  Push(1);
  EXPECT_EQ(Decide({}, 1000).wait_until_ns, 11000U);
  EXPECT_EQ(Decide({}, 10999).wait_until_ns, 11000U);
  EXPECT_EQ(Decide({}, 11000).wait_until_ns, 0U);
  EXPECT_EQ(Decide({}, 11000).num_requests, 1U);
}

TEST_F(BatchRulesTest, ReleasesAFullBatchAtOnce) {
  for (int i = 0; i < 8; ++i) Push(1);
  EXPECT_EQ(Decide({}, 1000).num_requests, 8U);
  EXPECT_EQ(Decide({}, 1000).wait_until_ns, 0U);
}

TEST_F(BatchRulesTest, ReleasesAPreferredSizeAtOnce) {
  for (int i = 0; i < 5; ++i) Push(1);
  const auto decision = Decide({2, 4}, 1000);
  EXPECT_EQ(decision.num_requests, 4U);
  EXPECT_EQ(decision.wait_until_ns, 0U);
}

TEST_F(BatchRulesTest, WaitsForAPreferredSizeWithinTheDelay) {
  for (int i = 0; i < 3; ++i) Push(1);
  EXPECT_EQ(Decide({4, 8}, 1000).wait_until_ns, 11000U);
  const auto late = Decide({4, 8}, 11000);
  EXPECT_EQ(late.num_requests, 3U);
  EXPECT_EQ(late.wait_until_ns, 0U);
}

TEST_F(BatchRulesTest, ClosesTheBatchAtARequestOfAnotherShape) {
  Push(1, 2);
  Push(1, 2);
  Push(1, 3);
  const auto decision = Decide({}, 1000);
  EXPECT_EQ(decision.num_requests, 2U);
  EXPECT_EQ(decision.wait_until_ns, 0U);
}

TEST_F(BatchRulesTest, SeparatesDifferentShapesAndSetsOfOptionalInputs) {
  TestRequest plain(target_, &client_, "a", {1, 2});
  TestRequest other(target_, &client_, "b", {2, 2});
  const float extra[4] = {};
  BufferAttributes four;
  four.byte_size = 4;
  TestRequest with_extra(target_, &client_, "c", {1, 2});
  const int64_t one[] = {1, 1};
  ASSERT_TRUE(with_extra.request.AddInput("EXTRA", DataType::kFp32, one).ok());
  ASSERT_TRUE(with_extra.request.AppendInputData("EXTRA", extra, four).ok());
  for (TestRequest* owner : {&plain, &other, &with_extra}) {
    ASSERT_TRUE(owner->request.Prepare().ok());
  }
  EXPECT_TRUE(MayShareBatch(plain.request, other.request));
  EXPECT_FALSE(MayShareBatch(plain.request, with_extra.request));
  EXPECT_FALSE(MayShareBatch(with_extra.request, plain.request));
  for (TestRequest* owner : {&plain, &other, &with_extra}) {
    owner->request.Fail(InternalError("end"), FailureReason::kOther);
  }
}

TEST_F(BatchRulesTest, AllowsDifferentShapesOfRaggedInputs) {
  std::deque<TestRequest> owners;
  const float data[8] = {};
  for (const int64_t length : {2, 5}) {
    TestRequest& owner = owners.emplace_back(target_, &client_, "r", std::vector<int64_t>{1, 2});
    const int64_t shape[] = {1, length};
    ASSERT_TRUE(owner.request.AddInput("RAGGED", DataType::kFp32, shape).ok());
    BufferAttributes attributes;
    attributes.byte_size = length * sizeof(float);
    ASSERT_TRUE(owner.request.AppendInputData("RAGGED", data, attributes).ok());
    ASSERT_TRUE(owner.request.Prepare().ok());
  }
  EXPECT_TRUE(MayShareBatch(owners[0].request, owners[1].request));
  for (TestRequest& owner : owners) owner.request.Fail(InternalError("end"), FailureReason::kOther);
}

}  // namespace
}  // namespace nereid::core
