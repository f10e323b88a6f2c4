// Sequence models as a backend sees them: controls, null requests, states, RESCHEDULE.
#include <gtest/gtest.h>

#include <cstring>

#include "host/core/handle/error.h"
#include "tests/host/core/model/serving_fixture.h"

namespace nereid::core {
namespace {

using test::kEnd;
using test::kStart;
using test::ReadFloat;
using Requests = std::vector<TRITONBACKEND_Request*>;

std::string SequenceConfig(const std::string& fields) {
  return StrCat(R"({"backend": "fake", "max_batch_size": 2,
  "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]}],
  "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]}],
  "sequence_batching": {"max_sequence_idle_microseconds": 3600000000, )",
                fields, R"(, "control_input": [
      {"name": "START", "control": [{"kind": "CONTROL_SEQUENCE_START", "fp32_false_true": [0, 1]}]},
      {"name": "READY", "control": [{"kind": "CONTROL_SEQUENCE_READY", "fp32_false_true": [0, 1]}]}]}})");
}

using ModelSequenceTest = test::ServingFixture;

TEST_F(ModelSequenceTest, FillsBatchesWithUncountedNullRequests) {
  std::vector<std::string> seen;
  backend.execute = [&](auto* instance, Requests requests) {
    std::string entries;
    for (auto* request : requests) {
      uint32_t num_inputs = 0;
      EXPECT_EQ(TRITONBACKEND_RequestInputCount(request, &num_inputs), nullptr);
      entries +=
          StrCat(num_inputs, ":", ReadFloat(request, "READY"), ReadFloat(request, "IN"), " ");
    }
    seen.push_back(entries);
    for (auto* request : requests) test::AnswerIdentity(instance, request);
    return Status::Ok();
  };
  Start(SequenceConfig(R"("direct": {})"));
  SendOne(1, kStart);
  client_.WaitFor(1);
  SendOne(2, kStart | kEnd);
  EXPECT_EQ(client_.WaitFor(2).size(), 2U);
  while (model_->num_inflight() > 0) std::this_thread::yield();
  EXPECT_EQ(seen, (std::vector<std::string>{"3:11 ", "3:00 3:11 "}));
  EXPECT_EQ(model_->statistics().Sum().success.count, 2U);
}

TEST_F(ModelSequenceTest, KeepsStatesBetweenRequests) {
  backend.execute = [](auto* instance, Requests requests) {
    for (auto* request : requests) {
      const int64_t shape[] = {1, 1};
      TRITONBACKEND_State* state = nullptr;
      void* buffer = nullptr;
      TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_GPU;
      int64_t id = 3;
      const float next = ReadFloat(request, "SI") + ReadFloat(request, "IN");
      NEREID_RETURN_IF_ERROR(TakeError(
          TRITONBACKEND_StateNew(&state, request, "SO", TRITONSERVER_TYPE_FP32, shape, 2)));
      NEREID_RETURN_IF_ERROR(
          TakeError(TRITONBACKEND_StateBuffer(state, &buffer, sizeof(next), &type, &id)));
      EXPECT_EQ(type, TRITONSERVER_MEMORY_CPU);
      std::memcpy(buffer, &next, sizeof(next));
      TRITONSERVER_BufferAttributes* attributes = nullptr;
      size_t byte_size = 0;
      EXPECT_EQ(TRITONBACKEND_StateBufferAttributes(state, &attributes), nullptr);
      EXPECT_EQ(TRITONSERVER_BufferAttributesByteSize(attributes, &byte_size), nullptr);
      EXPECT_EQ(byte_size, sizeof(next));
      NEREID_RETURN_IF_ERROR(TakeError(TRITONBACKEND_StateUpdate(state)));
      // The response contains the sum so far, which the next request gets as state.
      TRITONBACKEND_Response* response = nullptr;
      EXPECT_EQ(TRITONBACKEND_ResponseNew(&response, request), nullptr);
      EXPECT_EQ(TRITONBACKEND_ResponseSetIntParameter(response, "sum", static_cast<int64_t>(next)),
                nullptr);
      const Status sum = next == 3 ? InternalError("three") : Status::Ok();
      TRITONSERVER_Error* error = ToError(sum);
      EXPECT_EQ(TRITONBACKEND_ResponseSend(response, TRITONSERVER_RESPONSE_COMPLETE_FINAL, error),
                nullptr);
      TRITONSERVER_ErrorDelete(error);
      EXPECT_EQ(TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_ALL), nullptr);
    }
    return Status::Ok();
  };
  Start(SequenceConfig(R"("oldest": {"max_candidate_sequences": 4}, "state": [{"input_name": "SI",
    "output_name": "SO", "data_type": "TYPE_FP32", "dims": [1]}])"));
  SendOne(1, kStart);
  SendOne(2, kStart);
  SendOne(1, 0);
  SendOne(1, kEnd);
  const auto answers = client_.WaitFor(4);
  ASSERT_EQ(answers.size(), 4U);
  std::string errors;
  for (const auto& answer : answers) errors += answer.error.message();
  EXPECT_EQ(errors, "three") << "the third request of sequence 1, and no other";
}

TEST_F(ModelSequenceTest, RefusesStatesThatTheModelDoesNotHave) {
  Status refused;
  backend.execute = [&](auto* instance, Requests requests) {
    TRITONBACKEND_State* state = nullptr;
    const int64_t shape[] = {1, 1};
    refused = TakeError(
        TRITONBACKEND_StateNew(&state, requests[0], "SO", TRITONSERVER_TYPE_FP32, shape, 2));
    test::AnswerIdentity(instance, requests[0]);
    return Status::Ok();
  };
  Start(SequenceConfig(R"("direct": {})"));
  SendOne(1, kStart | kEnd);
  client_.WaitFor(1);
  EXPECT_EQ(refused.message(),
            "unable to add state 'SO'. State configuration is missing for model 'm'.");
}

TEST_F(ModelSequenceTest, ExecutesARescheduledRequestAgain) {
  std::map<TRITONBACKEND_Request*, int> rounds;
  std::string starts;
  backend.execute = [&](auto* instance, Requests requests) {
    for (auto* request : requests) {
      uint32_t flags = 7;
      EXPECT_EQ(TRITONBACKEND_RequestFlags(request, &flags), nullptr);
      EXPECT_EQ(flags, 0U);
      starts += ReadFloat(request, "START") > 0 ? 's' : '.';
      if (++rounds[request] == 3) {
        test::AnswerIdentity(instance, request);
      } else {
        NEREID_RETURN_IF_ERROR(TakeError(
            TRITONBACKEND_RequestRelease(request, TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)));
      }
    }
    return Status::Ok();
  };
  Start(SequenceConfig(R"("oldest": {"max_candidate_sequences": 4}, "iterative_sequence": true)"));
  SendOne(0, 0);
  client_.WaitFor(1);
  EXPECT_EQ(starts, "s..");
  SendOne(0, 0);
  EXPECT_EQ(client_.WaitFor(2).size(), 2U);
  EXPECT_EQ(starts, "s..s..");
  EXPECT_EQ(model_->num_inflight(), 0U);
}

TEST_F(ModelSequenceTest, FailsEveryRequestOfABatchThatTheBackendRefuses) {
  backend.execute = [](auto*, Requests) { return UnavailableError("device lost"); };
  Start(SequenceConfig(R"("oldest": {"max_candidate_sequences": 4})"));
  for (const uint64_t id : {1, 2, 3}) SendOne(id, kStart | kEnd);
  const auto answers = client_.WaitFor(3);
  ASSERT_EQ(answers.size(), 3U);
  for (const auto& answer : answers) EXPECT_EQ(answer.error.message(), "device lost");
}

}  // namespace
}  // namespace nereid::core
