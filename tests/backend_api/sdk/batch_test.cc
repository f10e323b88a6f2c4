// Tests Execute on a batch: gathered inputs, scattered outputs, errors of one or all requests,
// statistics.
#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/backend_api/sdk/backend_fixture.h"

namespace nereid {
namespace {

using fake::BytesOf;

class BatchTest : public BackendTest {};

Status Double(Batch& batch) {
  NEREID_ASSIGN_OR_RETURN(const Gathered<float> in, batch.Gather<float>("IN"));
  NEREID_ASSIGN_OR_RETURN(const std::span<float> out, batch.Output<float>("OUT", in.shape));
  for (size_t i = 0; i < out.size(); ++i) out[i] = 2 * in.elements[i];
  return {};
}

TEST_F(BatchTest, GathersAndScattersRowsOfSeveralRequests) {
  Load(/*max_batch_size=*/8);
  fake::Request& one = AddRequest({1, 2}, 1);
  fake::Request& two = AddRequest({3, 4, 5, 6}, 2);
  Execute([](Batch& batch) -> Status {
    EXPECT_EQ(batch.batch_size(), 3);
    EXPECT_EQ(batch.Gather<float>("IN")->shape, (std::vector<int64_t>{3, 2}));
    return Double(batch);
  });
  ASSERT_EQ(one.responses.size(), 1u);
  EXPECT_EQ(one.responses[0].outputs.at("OUT").bytes, BytesOf<float>({2, 4}));
  EXPECT_EQ(one.responses[0].outputs.at("OUT").shape, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(two.responses[0].outputs.at("OUT").bytes, BytesOf<float>({6, 8, 10, 12}));
  EXPECT_EQ(two.responses[0].outputs.at("OUT").shape, (std::vector<int64_t>{2, 2}));
  EXPECT_TRUE(one.responses[0].is_final && two.responses[0].is_final);
}

TEST_F(BatchTest, ReportsStatisticsBeforeTheResponse) {
  Load(/*max_batch_size=*/8);
  fake::Request& one = AddRequest({1, 2}, 1);
  AddRequest({3, 4, 5, 6}, 2);
  Execute(Double);
  EXPECT_EQ(one.events, (Events{"statistics ok", "response", "release"}));
  EXPECT_EQ(instance_.batch_sizes, (std::vector<uint64_t>{3}));
  for (const auto& times : {instance_.request_times_ns.at(0), instance_.batch_times_ns.at(0)}) {
    EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
    EXPECT_GT(times[1], times[0]) << "reading inputs is not counted";
  }
}

TEST_F(BatchTest, ScattersStrings) {
  Load(/*max_batch_size=*/8);
  fake::Request& one = AddRequest({1}, 1);
  fake::Request& two = AddRequest({3, 4}, 2);
  Execute([](Batch& batch) { return batch.SetStrings("TEXT", {3, 1}, {"a", "", "ccc"}); });
  EXPECT_EQ(one.responses.at(0).outputs.at("TEXT").bytes, std::string("\1\0\0\0a", 5));
  EXPECT_EQ(two.responses.at(0).outputs.at("TEXT").bytes, std::string("\0\0\0\0\3\0\0\0ccc", 11));
  EXPECT_EQ(two.responses.at(0).outputs.at("TEXT").shape, (std::vector<int64_t>{2, 1}));
}

TEST_F(BatchTest, OneRequestIsReadAndWrittenInPlace) {
  Load(/*max_batch_size=*/8);
  fake::Request& one = AddRequest({1, 2, 3, 4}, 2);
  Execute([&](Batch& batch) -> Status {
    EXPECT_EQ(static_cast<const void*>(batch.Gather<float>("IN")->elements.data()),
              one.inputs[0].pieces[0].data());
    return Double(batch);
  });
  EXPECT_EQ(one.responses.at(0).outputs.at("OUT").bytes, BytesOf<float>({2, 4, 6, 8}));
}

TEST_F(BatchTest, AnOutputThatWasNotRequestedIsNotSent) {
  Load(/*max_batch_size=*/8);
  fake::Request& one = AddRequest({1});
  one.requested_outputs = {"TEXT"};
  fake::Request& two = AddRequest({2});
  Execute([](Batch& batch) -> Status {
    NEREID_RETURN_IF_ERROR(Double(batch));
    return batch.SetStrings("TEXT", {2, 1}, {"a", "b"});
  });
  EXPECT_FALSE(one.responses.at(0).outputs.contains("OUT"));
  EXPECT_TRUE(one.responses.at(0).outputs.contains("TEXT"));
  EXPECT_TRUE(two.responses.at(0).outputs.contains("OUT"));
}

TEST_F(BatchTest, AModelThatDoesNotBatchKeepsItsShape) {
  Load(/*max_batch_size=*/0);
  fake::Request& one = AddRequest({1, 2, 3}, 3);
  Execute([](Batch& batch) -> Status {
    NEREID_RETURN_IF_ERROR(Double(batch));
    return batch.SetStrings("TEXT", {2}, {"a", "b"});
  });
  EXPECT_EQ(one.responses.at(0).outputs.at("OUT").shape, (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(one.responses.at(0).outputs.at("TEXT").shape, (std::vector<int64_t>{2}));
  EXPECT_EQ(instance_.batch_sizes, (std::vector<uint64_t>{1}));
}

TEST_F(BatchTest, RequestsOfDifferentShapesAreNotGathered) {
  Load(/*max_batch_size=*/8);
  fake::Request& one = AddRequest({1, 2});
  fake::Request& two = AddRequest({1, 2, 3});
  Execute(Double);
  const fake::Error expected{
      TRITONSERVER_ERROR_INVALID_ARG,
      "input 'IN': requests of one batch differ: expected [1, 2], got [1, 3]"};
  EXPECT_EQ(one.responses.at(0).error, expected);
  EXPECT_EQ(two.responses.at(0).error, expected);
}

TEST_F(BatchTest, AnErrorAnswersEveryRequest) {
  Load(/*max_batch_size=*/8);
  fake::Request& one = AddRequest({1});
  AddRequest({2});
  Execute([](Batch&) -> Status { return UnavailableError("out of luck"); });
  for (const auto& request : requests_) {
    EXPECT_EQ(request->events, (Events{"statistics failed", "error", "release"}));
  }
  EXPECT_EQ(one.responses.at(0).error,
            (fake::Error{TRITONSERVER_ERROR_UNAVAILABLE, "out of luck"}));
}

TEST_F(BatchTest, AnExceptionAnswersEveryRequestAndGoesNoFurther) {
  Load(/*max_batch_size=*/8);
  fake::Request& one = AddRequest({1});
  Execute([](Batch&) -> Status { throw std::runtime_error("boom"); });
  EXPECT_EQ(one.responses.at(0).error, (fake::Error{TRITONSERVER_ERROR_INTERNAL, "model_0: boom"}));
  fake::Request& two = AddRequest({1});
  requests_.erase(requests_.begin());
  Execute([](Batch&) -> Status { throw 5; });
  EXPECT_EQ(two.responses.at(0).error->code, TRITONSERVER_ERROR_INTERNAL);
}

TEST_F(BatchTest, OneRequestFailsAlone) {
  Load(/*max_batch_size=*/8);
  fake::Request& one = AddRequest({1});
  fake::Request& two = AddRequest({2});
  fake::Request& three = AddRequest({3});
  Execute([](Batch& batch) -> Status {
    EXPECT_TRUE(batch[1].Fail(InvalidArgError("not this one")).ok());
    EXPECT_EQ(batch.batch_size(), 2);
    return Double(batch);
  });
  EXPECT_EQ(one.responses.at(0).outputs.at("OUT").bytes, BytesOf<float>({2}));
  EXPECT_EQ(two.responses.at(0).error->message, "not this one");
  EXPECT_EQ(two.responses.size(), 1u);
  EXPECT_EQ(three.responses.at(0).outputs.at("OUT").bytes, BytesOf<float>({6}));
}

TEST_F(BatchTest, ARequestThatFailsAfterTheOutputWasMadeKeepsTheRowsOfOthersApart) {
  Load(/*max_batch_size=*/8);
  AddRequest({1});
  fake::Request& two = AddRequest({2});
  Execute([](Batch& batch) -> Status {
    NEREID_RETURN_IF_ERROR(Double(batch));
    return batch[0].Fail(InternalError("late"));
  });
  EXPECT_EQ(two.responses.at(0).outputs.at("OUT").bytes, BytesOf<float>({4}));
}

TEST_F(BatchTest, ARequestWithoutMemoryForItsOutputFailsAlone) {
  Load(/*max_batch_size=*/8);
  fake::Request& one = AddRequest({1});
  one.failing_output = "OUT";
  fake::Request& two = AddRequest({2});
  Execute(Double);
  EXPECT_EQ(one.responses.at(0).error->code, TRITONSERVER_ERROR_UNAVAILABLE);
  EXPECT_EQ(one.events, (Events{"statistics failed", "error", "release"}));
  EXPECT_EQ(two.responses.at(0).outputs.at("OUT").bytes, BytesOf<float>({4}));
}

TEST_F(BatchTest, AnOutputOfOtherRowsIsRefused) {
  Load(/*max_batch_size=*/8);
  fake::Request& one = AddRequest({1, 2}, 2);
  Execute([](Batch& batch) { return batch.Output<float>("OUT", {3, 1}).status(); });
  EXPECT_EQ(one.responses.at(0).error->message,
            "output 'OUT': expected 2 as the first dimension, got shape [3, 1]");
}

TEST_F(BatchTest, AMisalignedOutputIsFilledByTheTimeItIsSent) {
  Load(/*max_batch_size=*/8);
  fake::Request& one = AddRequest({1, 2});
  one.output_offset_bytes = 1;
  Execute(Double);
  EXPECT_EQ(one.responses.at(0).outputs.at("OUT").bytes, BytesOf<float>({2, 4}));
}

TEST_F(BatchTest, AModelThatAnswersNothingFailsItsRequests) {
  Load(/*max_batch_size=*/8);
  fake::Request& one = AddRequest({1});
  Execute([](Batch&) { return Status(); });
  EXPECT_EQ(
      one.responses.at(0).error,
      (fake::Error{TRITONSERVER_ERROR_INTERNAL, "model 'model': the backend made no response"}));
}

}  // namespace
}  // namespace nereid
