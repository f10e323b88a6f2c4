#include "host/core/request/infer_request.h"

#include <gtest/gtest.h>

#include "tests/host/core/support/test_client.h"

namespace nereid::core {
namespace {

using test::FakeTarget;
using test::TestClient;
using test::TestRequest;

constexpr char kRequestConfig[] = R"({"backend": "b", "max_batch_size": 4,
  "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [2]}],
  "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [2]},
             {"name": "MORE", "data_type": "TYPE_FP32", "dims": [2]}],
  "dynamic_batching": {"priority_levels": 3, "default_priority_level": 2}})";

class InferRequestTest : public testing::Test {
 protected:
  std::shared_ptr<FakeTarget> target_ = std::make_shared<FakeTarget>(kRequestConfig);
  TestClient client_;
  TestRequest owner_{target_, &client_, "r", {1, 2}};
  InferRequest& request_ = owner_.request;
};

TEST_F(InferRequestTest, RejectsTheSameInputTwice) {
  const Status status = request_.AddInput("IN", DataType::kFp32, {});
  EXPECT_EQ(status.message(), "[request id: r] input 'IN' already exists in request");
}

TEST_F(InferRequestTest, NamesUnknownInputs) {
  EXPECT_EQ(request_.RemoveInput("X").message(),
            "[request id: r] input 'X' does not exist in request");
  EXPECT_EQ(request_.AppendInputData("X", nullptr, {}).code(), StatusCode::kInvalidArg);
  EXPECT_EQ(request_.RemoveAllInputData("X").code(), StatusCode::kInvalidArg);
}

TEST_F(InferRequestTest, RejectsDataWithoutAnAddress) {
  BufferAttributes attributes;
  attributes.byte_size = 4;
  EXPECT_EQ(request_.AppendInputData("IN", nullptr, attributes).code(), StatusCode::kInvalidArg);
}

TEST_F(InferRequestTest, RejectsOutputsThatTheModelDoesNotHave) {
  ASSERT_TRUE(request_.AddRequestedOutput("OUT").ok());
  ASSERT_TRUE(request_.AddRequestedOutput("NOPE").ok());
  EXPECT_EQ(request_.Prepare().message(), "unexpected inference output 'NOPE' for model 'm'");
  request_.RemoveRequestedOutput("NOPE");
  EXPECT_EQ(request_.num_outputs(), 1U);
  ASSERT_TRUE(request_.Prepare().ok());
  request_.Fail(InternalError("x"), FailureReason::kOther);
}

TEST_F(InferRequestTest, RejectsSeveralOutputsThatTheModelDoesNotHave) {
  ASSERT_TRUE(request_.AddRequestedOutput("NOPE").ok());
  ASSERT_TRUE(request_.AddRequestedOutput("NEITHER").ok());
  EXPECT_FALSE(request_.Prepare().ok());
  request_.RemoveAllRequestedOutputs();
  ASSERT_TRUE(request_.Prepare().ok());
  request_.Fail(InternalError("x"), FailureReason::kOther);
}

TEST_F(InferRequestTest, ListsEveryOutputWhenTheClientNamedNone) {
  EXPECT_EQ(request_.num_outputs(), 2U);
  EXPECT_EQ(request_.output_name(0), "OUT");
  ASSERT_TRUE(request_.AddRequestedOutput("MORE").ok());
  EXPECT_EQ(request_.num_outputs(), 1U);
  EXPECT_EQ(request_.output_name(0), "MORE");
  request_.RemoveRequestedOutput("MORE");
  EXPECT_EQ(request_.num_outputs(), 2U);
}

TEST_F(InferRequestTest, RejectsAnOutputThatIsRequestedTwice) {
  ASSERT_TRUE(request_.AddRequestedOutput("MORE").ok());
  const Status status = request_.AddRequestedOutput("MORE");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArg);
  EXPECT_EQ(status.message(), "[request id: r] output 'MORE' already exists in request");
  request_.RemoveRequestedOutput("MORE");
  EXPECT_TRUE(request_.AddRequestedOutput("MORE").ok());
}

TEST_F(InferRequestTest, GivesUnknownPrioritiesTheDefaultLevel) {
  EXPECT_EQ(request_.priority(), 2U);
  request_.set_priority(3);
  EXPECT_EQ(request_.priority(), 3U);
  request_.set_priority(4);
  EXPECT_EQ(request_.priority(), 2U);
  request_.set_priority(0);
  EXPECT_EQ(request_.priority(), 2U);
}

TEST(EnsembleRequestTest, KeepsThePriorityForTheSteps) {
  const auto target = std::make_shared<FakeTarget>(R"({"platform": "ensemble",
    "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [2]}],
    "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [2]}],
    "ensemble_scheduling": {"step": [{"model_name": "m", "model_version": -1,
      "input_map": {"IN": "IN"}, "output_map": {"OUT": "OUT"}}]}})");
  InferRequest request(target, -1);
  EXPECT_EQ(request.priority(), 0U);
  request.set_priority(7);
  EXPECT_EQ(request.priority(), 7U);
}

TEST_F(InferRequestTest, DistinguishesTheTwoKindsOfCorrelationId) {
  uint64_t number = 1;
  const char* text = nullptr;
  EXPECT_TRUE(request_.GetCorrelationId(&number).ok());
  EXPECT_EQ(number, 0U);
  EXPECT_EQ(request_.GetCorrelationId(&text).code(), StatusCode::kInvalidArg);
  request_.set_correlation_id(std::string("abc"));
  EXPECT_EQ(request_.GetCorrelationId(&number).code(), StatusCode::kInvalidArg);
  ASSERT_TRUE(request_.GetCorrelationId(&text).ok());
  EXPECT_STREQ(text, "abc");
}

TEST_F(InferRequestTest, CannotBeCancelledBeforeTheFirstInference) {
  EXPECT_EQ(request_.Cancel().code(), StatusCode::kInternal);
  EXPECT_EQ(request_.Cancel().message(),
            "It is not possible to cancel an inference request before calling "
            "TRITONSERVER_InferAsync.");
}

TEST_F(InferRequestTest, NotifiesItsTargetOfACancellation) {
  ASSERT_TRUE(request_.Prepare().ok());
  ASSERT_TRUE(request_.Cancel().ok());
  EXPECT_TRUE(request_.IsCancelled());
  ASSERT_EQ(target_->cancelled.size(), 1U);
  request_.Fail(CancelledError("gone"), FailureReason::kCanceled);
  EXPECT_EQ(client_.WaitFor(1)[0].error.code(), StatusCode::kCancelled);
}

TEST_F(InferRequestTest, ARawInputKeepsTheClientsName) {
  constexpr char kNames[] = R"({"backend": "b", "max_batch_size": 0,
    "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [2]}],
    "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [2]}]})";
  TestRequest owner(std::make_shared<FakeTarget>(kNames), &client_, "raw", {1, 2});
  InferRequest& request = owner.request;
  request.RemoveAllInputs();
  ASSERT_TRUE(request.AddRawInput("mine").ok());
  const float data[] = {1, 2};
  BufferAttributes attributes;
  attributes.byte_size = sizeof(data);
  for (int use = 0; use < 2; ++use) {
    ASSERT_TRUE(request.AppendInputData("mine", data, attributes).ok()) << use;
    ASSERT_TRUE(request.Prepare().ok());
    EXPECT_NE(request.FindInput("IN"), nullptr) << "as the backend calls it";
    request.Fail(InternalError("x"), FailureReason::kOther);
    EXPECT_TRUE(request.RemoveAllInputData("mine").ok());
    EXPECT_FALSE(request.RemoveAllInputData("IN").ok());
  }
  EXPECT_TRUE(request.RemoveInput("mine").ok());
}

TEST_F(InferRequestTest, CannotBePreparedTwice) {
  ASSERT_TRUE(request_.Prepare().ok());
  EXPECT_EQ(request_.Prepare().message(),
            "[request id: r] request to model 'm' is still in flight");
  request_.Fail(InternalError("x"), FailureReason::kOther);
}

TEST_F(InferRequestTest, NeedsBothCallbacks) {
  InferRequest bare(target_, -1);
  EXPECT_EQ(bare.Prepare().code(), StatusCode::kInvalidArg);
}

TEST_F(InferRequestTest, CanBeReusedAfterItsRelease) {
  for (size_t i = 1; i <= 3; ++i) {
    ASSERT_TRUE(request_.Prepare().ok());
    EXPECT_TRUE(request_.in_flight());
    EXPECT_FALSE(request_.IsCancelled());
    ASSERT_TRUE(request_.Cancel().ok());
    request_.Fail(InternalError("round ", i), FailureReason::kOther);
    const auto answers = client_.WaitFor(i);
    ASSERT_EQ(answers.size(), i);
    EXPECT_EQ(answers.back().error.message(), "round " + std::to_string(i));
    EXPECT_FALSE(request_.in_flight());
  }
}

TEST_F(InferRequestTest, ReturnsToTheClientWithoutAResponseIfTheQueueRejectsIt) {
  ASSERT_TRUE(request_.Prepare().ok());
  request_.Unprepare();
  EXPECT_FALSE(request_.in_flight());
  EXPECT_TRUE(client_.answers().empty());
  EXPECT_EQ(client_.num_released(), 0U);
  EXPECT_TRUE(request_.Prepare().ok());
  request_.Fail(InternalError("x"), FailureReason::kOther);
}

TEST_F(InferRequestTest, IsDeletedAfterItsReleaseIfTheClientDeletedItAfterTheResponse) {
  auto* request = new InferRequest(target_, -1);
  client_.Listen(request);
  const float data[] = {1, 2};
  BufferAttributes attributes;
  attributes.byte_size = sizeof(data);
  const int64_t shape[] = {1, 2};
  ASSERT_TRUE(request->AddInput("IN", DataType::kFp32, shape).ok());
  ASSERT_TRUE(request->AppendInputData("IN", data, attributes).ok());
  ASSERT_TRUE(request->Prepare().ok());
  EXPECT_EQ(InferRequest::Delete(request).message(),
            "[request id: <id_unknown>] cannot delete a request that is in flight");
  auto response = InferResponse::New(request->sink());
  ASSERT_TRUE(InferResponse::Send(std::move(*response), TRITONSERVER_RESPONSE_COMPLETE_FINAL).ok());
  EXPECT_TRUE(InferRequest::Delete(request).ok());
  EXPECT_EQ(InferRequest::Delete(request).message(),
            "[request id: <id_unknown>] request was deleted before");
  EXPECT_FALSE(request->Prepare().ok()) << "only the backend owns it";
  EXPECT_EQ(request->input(0).name, "IN") << "which still reads it";
  request->Release(TRITONSERVER_REQUEST_RELEASE_ALL);
  EXPECT_EQ(client_.num_released(), 1U);
  EXPECT_FALSE(InferRequest::IsLive(request));
}

TEST_F(InferRequestTest, IsReleasedOnceIfItFailsAfterItsRelease) {
  ASSERT_TRUE(request_.Prepare().ok());
  request_.Release(TRITONSERVER_REQUEST_RELEASE_ALL);
  request_.Fail(InternalError("its backend is done"), FailureReason::kOther);
  EXPECT_EQ(client_.num_released(), 1U);
  EXPECT_EQ(target_->num_released, 1);
}

TEST_F(InferRequestTest, ReportsInvalidInputsBeforeMissingCallbacks) {
  InferRequest bare(target_, -1);
  EXPECT_EQ(
      bare.Prepare().message(),
      "[request id: <id_unknown>] expected 1 inputs but got 0 inputs for model 'm'. Got input(s) "
      "[], but missing required input(s) ['IN']. Please provide all required input(s).");
}

TEST_F(InferRequestTest, CountsFailuresByReason) {
  ASSERT_TRUE(request_.Prepare().ok());
  request_.Fail(InternalError("x"), FailureReason::kRejected);
  const StatisticsSnapshot sum = target_->statistics().Sum();
  EXPECT_EQ(sum.fail.count, 1U);
  EXPECT_EQ(sum.failures[static_cast<size_t>(FailureReason::kRejected)], 1U);
}

TEST_F(InferRequestTest, PrefersTheDataOfAHostPolicy) {
  const float numa[2] = {7, 8};
  BufferAttributes attributes;
  attributes.byte_size = sizeof(numa);
  ASSERT_TRUE(request_.AppendInputData("IN", numa, attributes, "gpu_0").ok());
  const InputTensor& input = request_.input(0);
  EXPECT_EQ(input.BuffersFor("gpu_0")[0].base, numa);
  EXPECT_EQ(input.BuffersFor("cpu")[0].base, owner_.data.data());
  EXPECT_EQ(input.BuffersFor(nullptr)[0].base, owner_.data.data());
}

}  // namespace
}  // namespace nereid::core
