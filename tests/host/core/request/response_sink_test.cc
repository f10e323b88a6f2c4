#include "host/core/request/response_sink.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "host/core/observe/log.h"
#include "host/core/request/failed_request_log.h"
#include "host/core/request/infer_response.h"
#include "tests/host/core/support/test_client.h"

namespace nereid::core {
namespace {

using test::FakeTarget;
using test::TestClient;
using test::TestRequest;

constexpr uint32_t kFinal = TRITONSERVER_RESPONSE_COMPLETE_FINAL;
constexpr char kSinkConfig[] = R"({"backend": "b", "max_batch_size": 2,
  "model_transaction_policy": {"decoupled": true},
  "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [1]}],
  "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [1], "reshape": {"shape": []}},
             {"name": "A", "data_type": "TYPE_FP32", "dims": [1]},
             {"name": "B", "data_type": "TYPE_FP32", "dims": [1]}]})";

class ResponseSinkTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(request_.Prepare().ok()); }
  std::unique_ptr<InferResponse> NewResponse() {
    return std::move(InferResponse::New(request_.sink())).value();
  }
  void Release() { request_.Release(TRITONSERVER_REQUEST_RELEASE_ALL); }

  std::shared_ptr<FakeTarget> target_ = std::make_shared<FakeTarget>(kSinkConfig);
  TestClient client_;
  TestRequest owner_{target_, &client_, "r", {2, 1}};
  InferRequest& request_ = owner_.request;
};

TEST_F(ResponseSinkTest, DeliversResponsesInOrder) {
  for (const uint32_t flags : {0U, 0U, kFinal}) {
    ASSERT_TRUE(InferResponse::Send(NewResponse(), flags).ok());
  }
  Release();
  const auto answers = client_.answers();
  ASSERT_EQ(answers.size(), 3U);
  EXPECT_FALSE(answers[1].is_final);
  EXPECT_TRUE(answers[2].is_final);
  EXPECT_EQ(answers[2].request_id, "r");
}

// Caches and traces read each sent response, and a backend may send an output for which it got no
// memory.
TEST_F(ResponseSinkTest, AnOutputWithoutMemoryHasNoBytes) {
  client_.allocator().alloc_fn = [](auto*, const char*, size_t, auto, int64_t, void* self,
                                    void** buffer, void** buffer_userp, auto*,
                                    int64_t*) -> TRITONSERVER_Error* {
    ++static_cast<TestClient*>(self)->num_buffers;
    *buffer = nullptr;
    *buffer_userp = self;
    return nullptr;
  };
  auto response = NewResponse();
  const auto output = response->AddOutput("A", DataType::kFp32, std::array<int64_t, 2>{2, 1});
  ASSERT_TRUE(output.ok());
  TRITONSERVER_MemoryType memory_type = TRITONSERVER_MEMORY_CPU;
  int64_t memory_type_id = 0;
  EXPECT_EQ((*output)->AllocateBuffer(8, &memory_type, &memory_type_id).status().message(),
            "output 'A': the response allocator gave no memory for 8 bytes");
  EXPECT_EQ((*output)->attributes().byte_size, 0U);
  ASSERT_TRUE(InferResponse::Send(std::move(response), kFinal).ok());
  Release();
  EXPECT_EQ(client_.num_buffers, 0);
}

// Collects the log's warnings.
class LoggedWarnings {
 public:
  LoggedWarnings() {
    log::SetCallback([this](log::Level level, std::string_view, int, std::string_view message) {
      if (level == log::Level::kWarn) lines.emplace_back(message);
    });
  }
  ~LoggedWarnings() { log::SetCallback(nullptr); }
  std::vector<std::string> lines;
};

TEST_F(ResponseSinkTest, AFailedRequestOfAClientIsLogged) {
  LoggedWarnings logged;
  request_.sink()->LogFailures();
  request_.Fail(InternalError("broken"), FailureReason::kBackend);
  ASSERT_EQ(logged.lines.size(), 1U);
  EXPECT_EQ(logged.lines[0], StrCat("request 'r' of model '", target_->schema().model_name,
                                    "' failed: Internal: broken"));
}

TEST_F(ResponseSinkTest, AFailedRequestOfAModelIsItsOwnAffair) {
  LoggedWarnings logged;
  request_.Fail(InternalError("broken"), FailureReason::kBackend);
  EXPECT_TRUE(logged.lines.empty());
}

TEST_F(ResponseSinkTest, FailedRequestsAreLoggedAtALimitedRate) {
  Release();
  LoggedWarnings logged;
  for (int i = 0; i < 1000; ++i) LogFailedRequest("m", "1", InternalError("broken"));
  LogFailedRequest("m", "1", CancelledError("by the client"));
  EXPECT_GE(logged.lines.size(), 1U);
  EXPECT_LT(logged.lines.size(), 100U);
}

TEST_F(ResponseSinkTest, AnOutputOfAnotherTypeThanConfiguredIsLoggedOnce) {
  LoggedWarnings logged;
  for (int i = 0; i < 2; ++i) {
    auto response = NewResponse();
    const int64_t shape[] = {2, 1};
    EXPECT_EQ((*response->AddOutput("A", DataType::kInt32, shape))->data_type(), DataType::kInt32);
    ASSERT_TRUE(response->AddOutput("B", DataType::kFp32, shape).ok());
    ASSERT_TRUE(InferResponse::Send(std::move(response), i == 1 ? kFinal : 0).ok());
  }
  Release();
  ASSERT_EQ(logged.lines.size(), 1U);
  EXPECT_EQ(logged.lines[0],
            "output 'A' of model 'm' version 1: expected FP32 as in its configuration, its backend "
            "gave INT32; clients get it as it is");
}

TEST_F(ResponseSinkTest, SendsAnErrorIfTheBackendSendsNoResponse) {
  Release();
  const auto answers = client_.answers();
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_TRUE(answers[0].is_final);
  EXPECT_EQ(answers[0].error.code(), StatusCode::kInternal);
  EXPECT_NE(answers[0].error.message().find("model 'm'"), std::string::npos);
  EXPECT_EQ(client_.num_released(), 1U);
}

TEST_F(ResponseSinkTest, SendsAnErrorIfTheBackendSendsNoFinalResponse) {
  ASSERT_TRUE(InferResponse::Send(NewResponse(), 0).ok());
  Release();
  const auto answers = client_.answers();
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_TRUE(answers[0].error.ok());
  EXPECT_EQ(answers[1].error.code(), StatusCode::kInternal);
}

TEST_F(ResponseSinkTest, WaitsForAFactoryThatOutlivesTheRequest) {
  ResponseSink* sink = request_.sink();
  sink->AddRef();
  sink->AddSender();
  Release();
  EXPECT_TRUE(client_.answers().empty());
  ASSERT_TRUE(sink->Send(nullptr, kFinal).ok());
  sink->DropSender();
  sink->Release();
  const auto answers = client_.answers();
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_FALSE(answers[0].has_response);
}

TEST_F(ResponseSinkTest, WaitsForAResponseThatIsStillBeingFilled) {
  auto response = NewResponse();
  Release();
  EXPECT_TRUE(client_.answers().empty());
  ASSERT_TRUE(InferResponse::Send(std::move(response), kFinal).ok());
  EXPECT_EQ(client_.answers().size(), 1U);
}

TEST_F(ResponseSinkTest, SendsAnErrorIfTheLastResponseIsDeletedUnsent) {
  auto response = NewResponse();
  Release();
  response.reset();
  ASSERT_EQ(client_.answers().size(), 1U);
  EXPECT_EQ(client_.answers()[0].error.code(), StatusCode::kInternal);
}

TEST_F(ResponseSinkTest, RejectsResponsesAfterTheFinalResponse) {
  ASSERT_TRUE(InferResponse::Send(NewResponse(), kFinal).ok());
  EXPECT_EQ(InferResponse::Send(NewResponse(), kFinal).code(), StatusCode::kInvalidArg);
  EXPECT_EQ(InferResponse::Send(NewResponse(), 0).code(), StatusCode::kInvalidArg);
  EXPECT_EQ(request_.sink()->Send(nullptr, kFinal).code(), StatusCode::kInvalidArg);
  Release();
  EXPECT_EQ(client_.answers().size(), 1U);
}

TEST_F(ResponseSinkTest, ReleasesOutputsWithTheResponse) {
  auto response = NewResponse();
  const int64_t shape[] = {2};
  for (const char* name : {"OUT", "A", "B"}) {
    auto output = response->AddOutput(name, DataType::kFp32, shape);
    ASSERT_TRUE(output.ok());
    TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_GPU;
    int64_t id = 3;
    const auto buffer = (*output)->AllocateBuffer(8, &type, &id);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ(type, TRITONSERVER_MEMORY_CPU);
    std::memset(*buffer, 'x', 8);
    EXPECT_EQ((*output)->AllocateBuffer(8, &type, &id).status().code(), StatusCode::kAlreadyExists);
  }
  EXPECT_EQ(client_.num_buffers, 3);
  ASSERT_TRUE(InferResponse::Send(std::move(response), kFinal).ok());
  Release();
  EXPECT_EQ(client_.answers()[0].outputs, std::vector<std::string>(3, "xxxxxxxx"));
  EXPECT_EQ(client_.num_buffers, 0);
}

// A leased output that the allocator of a client accepted. The test ends the lease.
struct AcceptedLease {
  NEREID_ReleaseFn_t release_fn = nullptr;
  void* release_userp = nullptr;
  int num_released = 0;
};
AcceptedLease lease;

void AcceptLeasedOutputs(ResponseAllocator& allocator) {
  lease = {};
  allocator.accept_lease_fn = [](const char*, const void*, size_t, NEREID_ReleaseFn_t release_fn,
                                 void* release_userp, void*) -> void* {
    lease.release_fn = release_fn;
    lease.release_userp = release_userp;
    return &lease;
  };
  allocator.release_fn = [](TRITONSERVER_ResponseAllocator*, void*, void* userp, size_t,
                            TRITONSERVER_MemoryType, int64_t) -> TRITONSERVER_Error* {
    ++static_cast<AcceptedLease*>(userp)->num_released;
    return nullptr;
  };
}

void CountReturn(void* count) {
  ++*static_cast<int*>(count);
}

TEST_F(ResponseSinkTest, SendsALeasedOutputWithoutACopy) {
  AcceptLeasedOutputs(client_.allocator());
  const int64_t shape[] = {2};
  const float values[] = {1, 2};
  int num_returned = 0;
  auto response = NewResponse();
  OutputTensor* const output = *response->AddOutput("A", DataType::kFp32, shape);
  EXPECT_TRUE(output->SetLeasedBuffer(values, sizeof values, &CountReturn, &num_returned).value());
  EXPECT_EQ(output->base(), values);
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
  int64_t id = 0;
  EXPECT_EQ(output->AllocateBuffer(8, &type, &id).status().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(
      output->SetLeasedBuffer(values, sizeof values, &CountReturn, &num_returned).status().code(),
      StatusCode::kAlreadyExists);
  ASSERT_TRUE(InferResponse::Send(std::move(response), kFinal).ok());
  Release();
  EXPECT_EQ(client_.answers()[0].outputs[0],
            std::string(reinterpret_cast<const char*>(values), sizeof values));
  EXPECT_EQ(lease.num_released, 1);
  EXPECT_EQ(num_returned, 0);
  lease.release_fn(lease.release_userp);
  EXPECT_EQ(num_returned, 1);
}

TEST_F(ResponseSinkTest, ALeasedOutputKeepsItsModelUntilItIsReleased) {
  auto target = std::make_shared<FakeTarget>(kSinkConfig);
  const int64_t shape[] = {2};
  const float values[] = {1, 2};
  int num_returned = 0;
  {
    TestClient client;
    TestRequest owner(target, &client, "lent", {2, 1});
    AcceptLeasedOutputs(client.allocator());
    ASSERT_TRUE(owner.request.Prepare().ok());
    auto response = InferResponse::New(owner.request.sink()).value();
    OutputTensor* const output = *response->AddOutput("A", DataType::kFp32, shape);
    ASSERT_TRUE(
        output->SetLeasedBuffer(values, sizeof values, &CountReturn, &num_returned).value());
    ASSERT_TRUE(InferResponse::Send(std::move(response), kFinal).ok());
    owner.request.Release(TRITONSERVER_REQUEST_RELEASE_ALL);
  }
  EXPECT_GT(target.use_count(), 1);
  lease.release_fn(lease.release_userp);
  EXPECT_EQ(num_returned, 1);
  EXPECT_EQ(target.use_count(), 1);
}

TEST_F(ResponseSinkTest, AnOutputWhoseLeaseIsNotAcceptedGetsABuffer) {
  const int64_t shape[] = {2};
  const float values[] = {1, 2};
  int num_returned = 0;
  auto response = NewResponse();
  for (const char* name : {"A", "B"}) {
    OutputTensor* const output = *response->AddOutput(name, DataType::kFp32, shape);
    EXPECT_FALSE(
        output->SetLeasedBuffer(values, sizeof values, &CountReturn, &num_returned).value());
    TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
    int64_t id = 0;
    EXPECT_TRUE(output->AllocateBuffer(8, &type, &id).ok());
    client_.allocator().accept_lease_fn = [](const char*, const void*, size_t, NEREID_ReleaseFn_t,
                                             void*, void*) -> void* { return nullptr; };
  }
  ASSERT_TRUE(InferResponse::Send(std::move(response), kFinal).ok());
  Release();
  EXPECT_EQ(client_.num_buffers, 0);
  EXPECT_EQ(num_returned, 0);
}

TEST_F(ResponseSinkTest, UndoesTheReshapeOfAnOutput) {
  auto response = NewResponse();
  const int64_t shape[] = {2};
  EXPECT_EQ((*response->AddOutput("OUT", DataType::kFp32, shape))->shape(), Shape({2, 1}));
  EXPECT_EQ(response->AddOutput("NOPE", DataType::kFp32, shape).status().message(),
            "unexpected inference output 'NOPE' for model 'm'");
  ASSERT_TRUE(InferResponse::Send(std::move(response), kFinal).ok());
  Release();
}

TEST_F(ResponseSinkTest, ReportsAnAllocatorThatFails) {
  client_.allocator().alloc_fn = [](TRITONSERVER_ResponseAllocator*, const char*, size_t,
                                    TRITONSERVER_MemoryType, int64_t, void*, void**, void**,
                                    TRITONSERVER_MemoryType*, int64_t*) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, "full");
  };
  auto response = NewResponse();
  const int64_t shape[] = {2};
  auto output = response->AddOutput("A", DataType::kFp32, shape);
  TRITONSERVER_MemoryType type = TRITONSERVER_MEMORY_CPU;
  int64_t id = 0;
  EXPECT_EQ((*output)->AllocateBuffer(8, &type, &id).status().message(), "full");
  ASSERT_TRUE(InferResponse::Send(std::move(response), kFinal).ok());
  Release();
}

TEST_F(ResponseSinkTest, SendsOneErrorIfTwoThreadsDropTheLastSenders) {
  for (int round = 0; round < 200; ++round) {
    TestClient client;
    TestRequest owner(target_, &client, "race", {1, 1});
    ASSERT_TRUE(owner.request.Prepare().ok());
    ResponseSink* sink = owner.request.sink();
    sink->AddRef();
    sink->AddSender();
    std::thread other([sink] {
      sink->DropSender();
      sink->Release();
    });
    owner.request.Release(TRITONSERVER_REQUEST_RELEASE_ALL);
    other.join();
    ASSERT_EQ(client.answers().size(), 1U);
  }
  Release();
}

}  // namespace
}  // namespace nereid::core
