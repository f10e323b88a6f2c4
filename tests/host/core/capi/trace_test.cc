// Traces: the reported activities, and the ownership of a trace. A trace is released before its
// request, so a test may read the record after it has waited for the request.
#include <algorithm>
#include <cstring>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>

#include "tests/host/core/capi/server_fixture.h"

namespace nereid::core {
namespace {

// The reports of the callbacks of a trace and its children.
struct TraceRecord {
  struct Tensor {
    TRITONSERVER_InferenceTraceActivity activity;
    std::string name;
    std::vector<float> values;
    std::vector<int64_t> shape;
  };
  std::mutex mutex;  // guards what follows
  std::vector<std::pair<TRITONSERVER_InferenceTraceActivity, uint64_t>> activities;
  std::vector<Tensor> tensors;
  std::vector<uint64_t> released;  // trace IDs
  std::string description;         // model, version and request ID at the last activity
  std::string context;
  std::function<void()> in_flight;  // runs once, at the first activity

  std::vector<TRITONSERVER_InferenceTraceActivity> Activities() {
    std::lock_guard lock(mutex);
    std::vector<TRITONSERVER_InferenceTraceActivity> result;
    for (const auto& [activity, timestamp_ns] : activities) result.push_back(activity);
    return result;
  }
};

void OnActivity(TRITONSERVER_InferenceTrace* trace, TRITONSERVER_InferenceTraceActivity activity,
                uint64_t timestamp_ns, void* userp) {
  auto* record = static_cast<TraceRecord*>(userp);
  if (record->in_flight) std::exchange(record->in_flight, nullptr)();
  std::lock_guard lock(record->mutex);
  record->activities.emplace_back(activity, timestamp_ns);
  const char *model = nullptr, *request = nullptr, *context = nullptr;
  int64_t version = 0;
  EXPECT_EQ(TRITONSERVER_InferenceTraceModelName(trace, &model), nullptr);
  EXPECT_EQ(TRITONSERVER_InferenceTraceModelVersion(trace, &version), nullptr);
  EXPECT_EQ(TRITONSERVER_InferenceTraceRequestId(trace, &request), nullptr);
  EXPECT_EQ(TRITONSERVER_InferenceTraceContext(trace, &context), nullptr);
  record->description = StrCat(model, " ", version, " ", request);
  record->context = context == nullptr ? "" : context;
}

void OnTensor(TRITONSERVER_InferenceTrace*, TRITONSERVER_InferenceTraceActivity activity,
              const char* name, TRITONSERVER_DataType datatype, const void* base, size_t byte_size,
              const int64_t* shape, uint64_t dim_count, TRITONSERVER_MemoryType, int64_t,
              void* userp) {
  auto* record = static_cast<TraceRecord*>(userp);
  EXPECT_EQ(datatype, TRITONSERVER_TYPE_FP32);
  std::lock_guard lock(record->mutex);
  std::vector<float> values(byte_size / sizeof(float));
  std::memcpy(values.data(), base, byte_size);
  record->tensors.push_back({activity, name, values, {shape, shape + dim_count}});
}

void OnTraceRelease(TRITONSERVER_InferenceTrace* trace, void* userp) {
  auto* record = static_cast<TraceRecord*>(userp);
  uint64_t id = 0;
  EXPECT_EQ(TRITONSERVER_InferenceTraceId(trace, &id), nullptr);
  EXPECT_EQ(ToStatus(TRITONSERVER_InferenceTraceDelete(trace)).message(), "");
  std::lock_guard lock(record->mutex);
  record->released.push_back(id);
}

TRITONSERVER_InferenceTrace* NewTrace(TraceRecord* record, uint32_t level) {
  TRITONSERVER_InferenceTrace* trace = nullptr;
  const Status status = ToStatus(TRITONSERVER_InferenceTraceTensorNew(
      &trace, static_cast<TRITONSERVER_InferenceTraceLevel>(level), 0, OnActivity, OnTensor,
      OnTraceRelease, record));
  EXPECT_TRUE(status.ok()) << status.message();
  return trace;
}

uint64_t IdOf(TRITONSERVER_InferenceTrace* trace) {
  uint64_t id = 0;
  EXPECT_EQ(TRITONSERVER_InferenceTraceId(trace, &id), nullptr);
  return id;
}

class TraceTest : public ServerTest {
 protected:
  // Executes one request whose input consists of two buffers.
  Status InferTraced(const std::string& model, TRITONSERVER_InferenceTrace* trace) {
    NEREID_ASSIGN_OR_RETURN(auto allocator, ResponseAllocator::Create<HeapOutputPolicy>());
    NEREID_ASSIGN_OR_RETURN(auto request, server_->NewRequest(model.c_str()));
    static const float kData[] = {1, 2, 3};
    const int64_t shape[] = {3};
    NEREID_RETURN_IF_ERROR(request.SetId("r7"));
    NEREID_RETURN_IF_ERROR(request.AddInput("INPUT0", TRITONSERVER_TYPE_FP32, shape));
    NEREID_RETURN_IF_ERROR(request.AppendInputData("INPUT0", kData, sizeof(float)));
    NEREID_RETURN_IF_ERROR(request.AppendInputData("INPUT0", kData + 1, 2 * sizeof(float)));
    internal::Waiter waiter;
    NEREID_RETURN_IF_ERROR(request.SetCallbacks(&waiter, allocator, nullptr));
    NEREID_RETURN_IF_ERROR(server_->InferAsync(std::move(request), trace));
    InferResponse response = waiter.Wait();
    return response.Error();
  }
  void StartIdentity() {
    AddModel("identity");
    ASSERT_TRUE(Start(Options()).ok());
  }
};

TEST_F(TraceTest, ReportsActivitiesInOrder) {
  StartIdentity();
  TraceRecord record;
  ASSERT_TRUE(InferTraced("identity", NewTrace(&record, TRITONSERVER_TRACE_LEVEL_TIMESTAMPS)).ok());
  EXPECT_EQ(record.Activities(),
            (std::vector<TRITONSERVER_InferenceTraceActivity>{
                TRITONSERVER_TRACE_REQUEST_START, TRITONSERVER_TRACE_QUEUE_START,
                TRITONSERVER_TRACE_COMPUTE_START, TRITONSERVER_TRACE_COMPUTE_INPUT_END,
                TRITONSERVER_TRACE_COMPUTE_OUTPUT_START, TRITONSERVER_TRACE_COMPUTE_END,
                TRITONSERVER_TRACE_REQUEST_END}));
  EXPECT_TRUE(std::is_sorted(record.activities.begin(), record.activities.end(),
                             [](const auto& a, const auto& b) { return a.second < b.second; }));
  EXPECT_EQ(record.description, "identity 1 r7");
  EXPECT_TRUE(record.tensors.empty());
}

TEST_F(TraceTest, ReportsEachTensorAsOneBuffer) {
  StartIdentity();
  TraceRecord record;
  ASSERT_TRUE(InferTraced("identity", NewTrace(&record, TRITONSERVER_TRACE_LEVEL_TENSORS)).ok());
  EXPECT_TRUE(record.activities.empty());
  ASSERT_EQ(record.tensors.size(), 2u);
  const auto& input = record.tensors[0];
  EXPECT_EQ(input.activity, TRITONSERVER_TRACE_TENSOR_QUEUE_INPUT);
  EXPECT_EQ(input.name, "INPUT0");
  EXPECT_EQ(input.values, (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(input.shape, (std::vector<int64_t>{3}));
  const auto& output = record.tensors[1];
  EXPECT_EQ(output.activity, TRITONSERVER_TRACE_TENSOR_BACKEND_OUTPUT);
  EXPECT_EQ(output.name, "OUTPUT0");
  EXPECT_EQ(output.values, (std::vector<float>{1, 2, 3}));
}

// tritonserver.h of Triton: ServerInferAsync "unconditionally takes ownership of 'trace'".
TEST_F(TraceTest, IsReleasedWhenTheInferenceDoesNotStart) {
  StartIdentity();
  TraceRecord record;
  TRITONSERVER_InferenceTrace* trace = NewTrace(&record, TRITONSERVER_TRACE_LEVEL_TIMESTAMPS);
  auto request = server_->NewRequest("identity");
  ASSERT_TRUE(request.ok());
  EXPECT_FALSE(
      server_->InferAsync(std::move(*request), trace).ok());  // fails because no callbacks are set
  EXPECT_EQ(record.released.size(), 1u);
  TRITONSERVER_InferenceTrace* other = NewTrace(&record, TRITONSERVER_TRACE_LEVEL_TIMESTAMPS);
  EXPECT_NE(ToStatus(TRITONSERVER_ServerInferAsync(server_->get(), nullptr, other)).message(), "");
  EXPECT_EQ(record.released.size(), 2u);
}

TEST_F(TraceTest, ServesOnlyOneInference) {
  StartIdentity();
  TraceRecord record;
  TRITONSERVER_InferenceTrace* trace = NewTrace(&record, TRITONSERVER_TRACE_LEVEL_TIMESTAMPS);
  TRITONSERVER_InferenceTrace* child = nullptr;
  ASSERT_EQ(TRITONSERVER_InferenceTraceSpawnChildTrace(trace, &child),
            nullptr);  // the child keeps `trace` alive
  std::vector<StatusCode> refusals;
  record.in_flight = [&] {
    refusals.push_back(InferTraced("identity", trace).code());
    refusals.push_back(ToStatus(TRITONSERVER_InferenceTraceDelete(trace)).code());
  };
  ASSERT_TRUE(InferTraced("identity", trace).ok());
  EXPECT_EQ(refusals, (std::vector<StatusCode>(2, StatusCode::kInvalidArg)));
  EXPECT_EQ(InferTraced("identity", trace).code(),
            StatusCode::kInvalidArg);  // a trace serves one inference only
  EXPECT_TRUE(record.released.empty());
  EXPECT_EQ(ToStatus(TRITONSERVER_InferenceTraceDelete(child)).message(), "");
  EXPECT_EQ(record.released.size(), 1u);
}

TEST_F(TraceTest, ReleasesAParentAfterItsChildren) {
  StartIdentity();
  TraceRecord record;
  TRITONSERVER_InferenceTrace* parent = NewTrace(&record, TRITONSERVER_TRACE_LEVEL_TIMESTAMPS);
  TRITONSERVER_InferenceTrace *child = nullptr, *unused = nullptr;
  ASSERT_EQ(TRITONSERVER_InferenceTraceSpawnChildTrace(parent, &child), nullptr);
  ASSERT_EQ(TRITONSERVER_InferenceTraceSpawnChildTrace(parent, &unused), nullptr);
  const uint64_t parent_id = IdOf(parent), child_id = IdOf(child);
  EXPECT_NE(parent_id, child_id);
  uint64_t reported_parent_id = 0;
  ASSERT_EQ(TRITONSERVER_InferenceTraceParentId(child, &reported_parent_id), nullptr);
  EXPECT_EQ(reported_parent_id, parent_id);
  ASSERT_TRUE(InferTraced("identity", parent).ok());
  EXPECT_TRUE(record.released.empty());
  ASSERT_EQ(TRITONSERVER_InferenceTraceDelete(unused), nullptr);
  EXPECT_TRUE(record.released.empty());
  ASSERT_TRUE(InferTraced("identity", child).ok());
  server_.reset();
  EXPECT_EQ(record.released, (std::vector<uint64_t>{child_id, parent_id}));
}

TEST_F(TraceTest, CustomActivitiesAreNamedInTheContext) {
  TraceRecord record;
  TRITONSERVER_InferenceTrace* trace = NewTrace(&record, TRITONSERVER_TRACE_LEVEL_TIMESTAMPS);
  const char* context = "unset";
  ASSERT_EQ(TRITONSERVER_InferenceTraceContext(trace, &context), nullptr);
  EXPECT_STREQ(context, "");
  ASSERT_EQ(TRITONSERVER_InferenceTraceSetContext(trace, R"({"traceparent":"00-a-b-01"})"),
            nullptr);
  ASSERT_EQ(TRITONSERVER_InferenceTraceReportActivity(trace, 17, "PRE_START"), nullptr);
  EXPECT_EQ(record.Activities(),
            (std::vector<TRITONSERVER_InferenceTraceActivity>{TRITONSERVER_TRACE_CUSTOM_ACTIVITY}));
  const auto json = nlohmann::json::parse(record.context);
  EXPECT_EQ(json["17"], "PRE_START");
  EXPECT_EQ(json["traceparent"], "00-a-b-01");
  EXPECT_EQ(TRITONSERVER_InferenceTraceDelete(trace), nullptr);
  EXPECT_TRUE(record.released.empty());
}

TEST_F(TraceTest, DeprecatedLevelsMeanTimestamps) {
  for (const auto level : {TRITONSERVER_TRACE_LEVEL_MIN, TRITONSERVER_TRACE_LEVEL_MAX}) {
    TraceRecord record;
    TRITONSERVER_InferenceTrace* trace = NewTrace(&record, level);
    ASSERT_EQ(TRITONSERVER_InferenceTraceReportActivity(trace, 1, "x"), nullptr);
    EXPECT_EQ(record.activities.size(), 1u);
    EXPECT_EQ(TRITONSERVER_InferenceTraceDelete(trace), nullptr);
  }
}

TEST_F(TraceTest, RequiresTheCallbacksOfItsLevel) {
  TRITONSERVER_InferenceTrace* trace = nullptr;
  Status status = ToStatus(TRITONSERVER_InferenceTraceNew(&trace, TRITONSERVER_TRACE_LEVEL_TENSORS,
                                                          0, OnActivity, OnTraceRelease, nullptr));
  EXPECT_NE(status.message().find("tensor activity function is null"), std::string::npos);
  status = ToStatus(TRITONSERVER_InferenceTraceNew(&trace, TRITONSERVER_TRACE_LEVEL_TIMESTAMPS, 0,
                                                   OnActivity, nullptr, nullptr));
  EXPECT_NE(status.message().find("release function is null"), std::string::npos);
  EXPECT_EQ(trace, nullptr);
}

}  // namespace
}  // namespace nereid::core
