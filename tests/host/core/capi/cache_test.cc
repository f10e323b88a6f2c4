// The response cache, with the local cache and with a faulty one.
#include <nlohmann/json.hpp>

#include "tests/host/core/capi/server_fixture.h"
#include "triton/core/tritoncache.h"

namespace nereid::core {
namespace {

using Json = nlohmann::json;

constexpr char kTwoOutputs[] =
    "backend: 'identity_c'\n"
    "input [ { name: 'INPUT0' data_type: TYPE_FP32 dims: [ -1 ] },"
    "        { name: 'INPUT1' data_type: TYPE_FP32 dims: [ -1 ] optional: true } ]\n"
    "output [ { name: 'OUTPUT0' data_type: TYPE_FP32 dims: [ -1 ] },"
    "         { name: 'OUTPUT1' data_type: TYPE_FP32 dims: [ -1 ] } ]\n";
constexpr char kCached[] = "response_cache { enable: true }\n";

class CacheTest : public ServerTest {
 protected:
  ServerOptions CacheOptions(const std::string& cache, const std::string& config) const {
    ServerOptions options = Options();
    EXPECT_TRUE(options.Set(TRITONSERVER_ServerOptionsSetCacheDirectory, NEREID_TEST_CACHES).ok());
    EXPECT_TRUE(options.Set(TRITONSERVER_ServerOptionsSetCacheConfig, cache, config).ok());
    return options;
  }
  Status StartWith(const std::string& cache, const std::string& config) {
    return Start(CacheOptions(cache, config));
  }
  void StartLocal() {
    const Status status = StartWith("local", R"({"size": "1048576"})");
    ASSERT_TRUE(status.ok()) << status.message();
  }
  Json Statistics(const std::string& model) const {
    return Json::parse(Text(server_->ModelStatistics(model.c_str())))["model_stats"][0];
  }
  // Number of requests that the model executed. Backends report it before they release the request.
  // Statistics of whole executions may be reported later.
  uint64_t Executions(const std::string& model) const {
    return Statistics(model)["inference_count"].get<uint64_t>();
  }
  uint64_t Hits(const std::string& model) const {
    return Statistics(model)["inference_stats"]["cache_hit"]["count"].get<uint64_t>();
  }
};

TEST_F(CacheTest, AnswersRepeatedRequestsFromTheCache) {
  AddModel("cached", std::string(kIdentity) + kCached);
  StartLocal();
  for (int i = 0; i < 3; ++i) {
    const auto result = Infer("cached", {1, 2, 3});
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(*result, (std::vector<float>{1, 2, 3}));
  }
  const Json statistics = Statistics("cached");
  EXPECT_EQ(statistics["inference_count"], 1);
  EXPECT_EQ(statistics["inference_stats"]["success"]["count"], 3);
  EXPECT_EQ(statistics["inference_stats"]["cache_hit"]["count"], 2);
  EXPECT_EQ(statistics["inference_stats"]["cache_miss"]["count"], 1);
}

TEST_F(CacheTest, KeyDependsOnDataShapeAndModel) {
  AddModel("cached", std::string(kIdentity) + kCached);
  AddModel("other", std::string(kIdentity) + kCached);
  StartLocal();
  EXPECT_EQ(*Infer("cached", {1}), (std::vector<float>{1}));
  EXPECT_EQ(*Infer("cached", {2}), (std::vector<float>{2}));
  EXPECT_EQ(*Infer("cached", {1, 2}), (std::vector<float>{1, 2}));
  EXPECT_EQ(*Infer("other", {1}), (std::vector<float>{1}));
  EXPECT_EQ(Executions("cached"), 3u);
  EXPECT_EQ(Executions("other"), 1u);
}

TEST_F(CacheTest, IgnoresModelsThatDoNotEnableTheCache) {
  AddModel("plain");
  StartLocal();
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(Infer("plain", {1}).ok());
  EXPECT_EQ(Executions("plain"), 2u);
}

TEST_F(CacheTest, DoesNotCacheErrors) {
  AddModel("failing", R"(backend: 'hostile'
    input [ { name: 'INPUT0' data_type: TYPE_FP32 dims: [ -1 ] } ]
    output [ { name: 'OUTPUT0' data_type: TYPE_FP32 dims: [ -1 ] } ]
    parameters { key: 'fault' value { string_value: 'execute' } }
    response_cache { enable: true })");
  StartLocal();
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(Infer("failing", {1}).ok());
  EXPECT_EQ(Hits("failing"), 0u);
}

TEST_F(CacheTest, KeyDependsOnRequestedOutputs) {
  AddModel("two", std::string(kTwoOutputs) + kCached);
  StartLocal();
  const auto infer = [&](const char* output) -> Result<size_t> {
    NEREID_ASSIGN_OR_RETURN(auto allocator, ResponseAllocator::Create<HeapOutputPolicy>());
    NEREID_ASSIGN_OR_RETURN(auto request, server_->NewRequest("two"));
    const float data = 4;
    const int64_t shape[] = {1};
    for (const char* input : {"INPUT1", "INPUT0"}) {
      NEREID_RETURN_IF_ERROR(request.AddInput(input, TRITONSERVER_TYPE_FP32, shape));
      NEREID_RETURN_IF_ERROR(request.AppendInputData(input, &data, sizeof(data)));
    }
    if (output != nullptr) NEREID_RETURN_IF_ERROR(request.AddRequestedOutput(output));
    internal::Waiter waiter;
    NEREID_RETURN_IF_ERROR(request.SetCallbacks(&waiter, allocator, nullptr));
    NEREID_RETURN_IF_ERROR(server_->InferAsync(std::move(request)));
    InferResponse response = waiter.Wait();
    NEREID_RETURN_IF_ERROR(response.Error());
    uint32_t count = 0;
    NEREID_RETURN_IF_ERROR(
        ToStatus(TRITONSERVER_InferenceResponseOutputCount(response.get(), &count)));
    return static_cast<size_t>(count);
  };
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(*infer(nullptr), 2u);
    EXPECT_EQ(*infer("OUTPUT1"), 1u);
  }
  EXPECT_EQ(Executions("two"), 2u);
  EXPECT_EQ(Hits("two"), 2u);
}

TEST_F(CacheTest, ReportsMetricsForModelsThatUseIt) {
  AddModel("cached", std::string(kIdentity) + kCached);
  AddModel("plain");
  StartLocal();
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(Infer("cached", {1}).ok());
  const auto page = server_->Metrics();
  ASSERT_TRUE(page.ok());
  const auto view = page->PrometheusText();
  ASSERT_TRUE(view.ok());
  const std::string text(*view);
  EXPECT_NE(text.find("nv_cache_num_hits_per_model{model=\"cached\",version=\"1\"} 1"),
            std::string::npos);
  EXPECT_NE(text.find("nv_cache_num_misses_per_model{model=\"cached\",version=\"1\"} 1"),
            std::string::npos);
  EXPECT_EQ(text.find("nv_cache_num_hits_per_model{model=\"plain\""), std::string::npos);
}

TEST_F(CacheTest, RefusesDecoupledModels) {
  AddModel("stream",
           std::string(kIdentity) + kCached + "model_transaction_policy { decoupled: true }\n");
  const Status status = StartWith("local", R"({"size": "1048576"})");
  EXPECT_NE(status.message().find("Please disable the response cache"), std::string::npos)
      << status.message();
}

TEST_F(CacheTest, ServesAModelWithoutAConfiguredCache) {
  AddModel("cached", std::string(kIdentity) + kCached);
  ASSERT_TRUE(Start(Options()).ok());
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(Infer("cached", {1}).ok());
  EXPECT_EQ(Executions("cached"), 2u);
}

TEST_F(CacheTest, ServesResponsesThatAreTooLargeToCache) {
  AddModel("cached", std::string(kIdentity) + kCached);
  ASSERT_TRUE(StartWith("local", R"({"size": "100"})").ok());
  for (int i = 0; i < 2; ++i) EXPECT_EQ(*Infer("cached", {1, 2}), (std::vector<float>{1, 2}));
  EXPECT_EQ(Executions("cached"), 2u);
}

TEST_F(CacheTest, ServesWhenTheCacheFails) {
  AddModel("cached", std::string(kIdentity) + kCached);
  for (const char* fault : {"lookup", "insert", "garbage", "no_copy", "many", "none"}) {
    ASSERT_TRUE(StartWith("faulty", StrCat(R"({"fault": ")", fault, R"("})")).ok()) << fault;
    for (int i = 0; i < 2; ++i) {
      const auto result = Infer("cached", {7});
      ASSERT_TRUE(result.ok()) << fault << ": " << result.status().message();
      EXPECT_EQ(*result, (std::vector<float>{7})) << fault;
    }
    EXPECT_EQ(Executions("cached"), 2u) << fault;
    server_.reset();
  }
}

TEST_F(CacheTest, LogsACacheThatThrowsInFinalize) {
  ASSERT_TRUE(StartWith("faulty", R"({"fault": "throw"})").ok());
  testing::internal::CaptureStderr();
  server_.reset();
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("CacheFinalize threw: faulty: as told"), std::string::npos) << log;
}

TEST_F(CacheTest, AbandonsACacheThatDoesNotFinish) {
  const auto gate = root_ / "gate";
  const ServerOptions options =
      CacheOptions("faulty", StrCat(R"({"fault": "hang:)", gate.string(), R"("})"));
  TRITONSERVER_Server* server = nullptr;
  ASSERT_EQ(TRITONSERVER_ServerNew(&server, options.get()), nullptr);
  ASSERT_EQ(TRITONSERVER_ServerSetExitTimeout(server, 0), nullptr);
  testing::internal::CaptureStderr();
  const Status status = ToStatus(TRITONSERVER_ServerDelete(server));
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("cache 'faulty' has not ended: CacheFinalize did not return within 5 s"),
            std::string::npos)
      << log;
  EXPECT_NE(status.message().find("must not end by exit()"), std::string::npos);
  std::ofstream(gate) << "open";
  std::string text;
  while (text != "ended") std::getline(std::ifstream(gate.string() + ".ended"), text);
}

TEST_F(CacheTest, ServerDoesNotStartWithoutItsCache) {
  Status status = StartWith("faulty", R"({"fault": "initialize"})");
  EXPECT_NE(status.message().find("faulty: initialize fails as told"), std::string::npos);
  status = StartWith("nosuch", "{}");
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find("libtritoncache_nosuch.so"), std::string::npos);
  status = StartWith("../escape", "{}");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArg);
  status = StartWith("local", R"({"size": "many"})");
  EXPECT_NE(status.message().find("got 'many'"), std::string::npos) << status.message();
}

TEST(CacheEntryTest, KeepsItsBuffersInOrder) {
  TRITONCACHE_CacheEntry* entry = nullptr;
  ASSERT_EQ(TRITONCACHE_CacheEntryNew(&entry), nullptr);
  TRITONSERVER_BufferAttributes* attributes = nullptr;
  ASSERT_EQ(TRITONSERVER_BufferAttributesNew(&attributes), nullptr);
  char first = 0, second = 0;
  ASSERT_EQ(TRITONSERVER_BufferAttributesSetByteSize(attributes, 11), nullptr);
  ASSERT_EQ(TRITONCACHE_CacheEntryAddBuffer(entry, &first, attributes), nullptr);
  size_t count = 0;
  ASSERT_EQ(TRITONCACHE_CacheEntryBufferCount(entry, &count), nullptr);
  EXPECT_EQ(count, 1u);
  ASSERT_EQ(TRITONCACHE_CacheEntrySetBuffer(entry, 0, &second, nullptr), nullptr);
  void* base = nullptr;
  size_t byte_size = 0;
  ASSERT_EQ(TRITONSERVER_BufferAttributesSetByteSize(attributes, 0), nullptr);
  ASSERT_EQ(TRITONCACHE_CacheEntryGetBuffer(entry, 0, &base, attributes), nullptr);
  ASSERT_EQ(TRITONSERVER_BufferAttributesByteSize(attributes, &byte_size), nullptr);
  EXPECT_EQ(base, &second);
  EXPECT_EQ(byte_size, 11u);
  EXPECT_EQ(ToStatus(TRITONCACHE_CacheEntryGetBuffer(entry, 1, &base, attributes)).code(),
            StatusCode::kInvalidArg);
  EXPECT_EQ(ToStatus(TRITONCACHE_CacheEntrySetBuffer(entry, 1, nullptr, nullptr)).code(),
            StatusCode::kInvalidArg);
  EXPECT_EQ(ToStatus(TRITONCACHE_Copy(nullptr, entry)).code(), StatusCode::kInvalidArg);
  EXPECT_EQ(TRITONSERVER_BufferAttributesDelete(attributes), nullptr);
  EXPECT_EQ(TRITONCACHE_CacheEntryDelete(entry), nullptr);
}

}  // namespace
}  // namespace nereid::core
