// Options, readiness, metadata and stop of a server.
#include <array>
#include <chrono>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/host/core/capi/server_fixture.h"

namespace nereid::core {
namespace {

using Json = nlohmann::json;

TEST_F(ServerTest, AnswersAnInferenceOfABackendLibrary) {
  AddModel("identity");
  ASSERT_TRUE(Start(Options()).ok());
  const auto result = Infer("identity", {1, 2, 3});
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(*result, (std::vector<float>{1, 2, 3}));
}

TEST_F(ServerTest, IsReadyWhenEveryModelServes) {
  AddModel("identity");
  ASSERT_TRUE(Start(Options()).ok());
  EXPECT_TRUE(*server_->IsLive());
  EXPECT_TRUE(*server_->IsReady());
  EXPECT_TRUE(*server_->IsModelReady("identity"));
  EXPECT_TRUE(*server_->IsModelReady("identity", 1));
  EXPECT_FALSE(*server_->IsModelReady("identity", 9));
  EXPECT_FALSE(*server_->IsModelReady("nosuch"));
}

TEST_F(ServerTest, ReportsItsNameVersionAndExtensions) {
  ServerOptions options = Options();
  ASSERT_TRUE(options.Set(TRITONSERVER_ServerOptionsSetServerId, "mine").ok());
  ASSERT_TRUE(Start(options).ok());
  const Json json = Json::parse(Text(server_->Metadata()));
  EXPECT_EQ(json["name"], "mine");
  EXPECT_EQ(json["version"].get<std::string>().substr(0, 2), "2.");
  EXPECT_EQ(json["extensions"].size(), 13u);
}

TEST_F(ServerTest, LogsStartupTables) {
  AddModel("good");
  AddModel("bad", "backend: 'nosuch'");
  const std::string log = (root_ / "log").string();
  ServerOptions options = Options();
  ASSERT_TRUE(options.Set(TRITONSERVER_ServerOptionsSetLogFile, log).ok());
  ASSERT_TRUE(options.Set(TRITONSERVER_ServerOptionsSetExitOnError, false).ok());
  ASSERT_TRUE(Start(options).ok());
  ASSERT_TRUE(options.Set(TRITONSERVER_ServerOptionsSetLogFile, "").ok());
  std::ifstream file(log);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const auto find_text = [&](const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
    return text.find(part);
  };
  const size_t agents = find_text("] \n+------------------+------+\n| Repository Agent | Path |\n");
  const size_t backends = find_text("\n| Backend ");
  find_text("| identity_c | ");
  find_text(R"({"cmdline":{)");
  const size_t models = find_text("\n| Model | Version | Status");
  find_text("\n| bad   | 1       | UNAVAILABLE: ");
  find_text("\n| good  | 1       | READY ");
  const size_t settings = find_text("\n| Option  ");
  find_text(StrCat("\n| model_repository_path[0]         | ", (root_ / "repo").string(), " "));
  find_text("\n| exit_timeout                     | 30 ");
  find_text("\n| min_supported_compute_capability | 6.0 ");
  EXPECT_LT(agents, backends);
  EXPECT_LT(backends, models);
  EXPECT_LT(models, settings);
}

TEST_F(ServerTest, OnlyStrictReadinessDependsOnFailedModels) {
  AddModel("good");
  AddModel("bad", "backend: 'nosuch'");
  for (const bool strict : {true, false}) {
    ServerOptions options = Options();
    ASSERT_TRUE(options.Set(TRITONSERVER_ServerOptionsSetExitOnError, false).ok());
    ASSERT_TRUE(options.Set(TRITONSERVER_ServerOptionsSetStrictReadiness, strict).ok());
    ASSERT_TRUE(Start(options).ok());
    EXPECT_EQ(*server_->IsReady(), !strict);
    EXPECT_TRUE(Infer("good", {1}).ok());
    server_.reset();
  }
}

TEST_F(ServerTest, NeedsItsRepositoriesInEveryMode) {
  for (ServerOptions& options : std::array{Options(), Explicit()}) {
    ASSERT_TRUE(options.AddModelRepository((root_ / "nosuch").string()).ok());
    EXPECT_NE(Start(options).message().find((root_ / "nosuch").string()), std::string::npos);
    ASSERT_TRUE(options.Set(TRITONSERVER_ServerOptionsSetExitOnError, false).ok());
    EXPECT_TRUE(Start(options).ok());
    server_.reset();
  }
}

TEST_F(ServerTest, StaysReadyWhenARequestToLoadIsRefused) {
  AddModel("good");
  AddModel("bad", "max_batch_size: {");
  AddModel("broken", "backend: 'nosuch'");
  ASSERT_TRUE(Start(Explicit()).ok());
  ASSERT_TRUE(server_->LoadModel("good").ok());
  EXPECT_FALSE(server_->LoadModel("bad").ok());
  EXPECT_TRUE(*server_->IsReady()) << "an invalid configuration does not affect readiness";
  EXPECT_FALSE(server_->LoadModel("broken").ok());
  EXPECT_TRUE(*server_->IsReady()) << "it has never served";
  ASSERT_TRUE(server_->UnloadModel("good").ok());
  AddModel("good", "backend: 'nosuch'");
  EXPECT_FALSE(server_->LoadModel("good").ok());
  EXPECT_FALSE(*server_->IsReady()) << "it has served";
  AddModel("good", "max_batch_size: {");
  EXPECT_FALSE(server_->LoadModel("good").ok());
  EXPECT_FALSE(*server_->IsReady()) << "it affected readiness before";
  EXPECT_TRUE(server_->UnloadModel("good").ok());
  EXPECT_TRUE(*server_->IsReady());
}

TEST_F(ServerTest, StopUnloadsAndRefuses) {
  AddModel("identity");
  ASSERT_TRUE(Start(Options()).ok());
  ASSERT_TRUE(server_->Stop().ok());
  for (const Result<bool>& answer : {server_->IsLive(), server_->IsReady()}) {
    EXPECT_EQ(answer.status().code(), StatusCode::kUnavailable);
    EXPECT_EQ(answer.status().message(), "Server exiting");
  }
  for (const Status& status :
       {server_->IsModelReady("identity").status(), server_->ModelMetadata("identity").status(),
        server_->ModelStatistics("identity").status(), server_->ModelIndex(false).status()}) {
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_EQ(status.message(), "Server not ready");
  }
  EXPECT_FALSE(Infer("identity", {1}).ok());
  EXPECT_TRUE(server_->Stop().ok());
}

TEST_F(ServerTest, CancellationStatusNeedsASentRequest) {
  AddModel("identity");
  ASSERT_TRUE(Start(Options()).ok());
  const auto request = server_->NewRequest("identity");
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->IsCancelled().status().code(), StatusCode::kInternal);
  EXPECT_EQ(request->IsCancelled().status().message(),
            "It is not possible to query cancellation status before calling "
            "TRITONSERVER_InferAsync.");
}

// A backend may write to the buffer that it gets, so a missing buffer must be an error.
TEST_F(ServerTest, FailsTheResponseWhenTheAllocatorReturnsNoMemory) {
  struct NoMemory : HeapOutputPolicy {
    static Result<OutputBuffer> Allocate(const OutputRequest&, void*) {
      return OutputBuffer{nullptr};
    }
  };
  AddModel("identity");
  ASSERT_TRUE(Start(Options()).ok());
  const auto result = Infer<NoMemory>("identity", {1});
  EXPECT_NE(result.status().message().find("the response allocator gave no memory for 4 bytes"),
            std::string::npos)
      << result.status().message();
}

TEST_F(ServerTest, StopWaitsForRequestsInFlight) {
  AddModel("late", R"(backend: 'hostile'
    input [ { name: 'INPUT0' data_type: TYPE_FP32 dims: [ -1 ] } ]
    output [ { name: 'OUTPUT0' data_type: TYPE_FP32 dims: [ -1 ] } ]
    parameters { key: 'fault' value { string_value: 'late' } }
    parameters { key: 'delay_ms' value { string_value: '200' } })");
  ASSERT_TRUE(Start(Options()).ok());
  auto inference = std::async(std::launch::async, [&] { return Infer("late", {5}); });
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_TRUE(server_->Stop().ok());
  const auto result = inference.get();
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->at(0), 5);
}

TEST_F(ServerTest, RefusesNewRequestsWhileItStops) {
  AddModel("identity");
  AddModel("late", R"(backend: 'hostile'
    input [ { name: 'INPUT0' data_type: TYPE_FP32 dims: [ -1 ] } ]
    output [ { name: 'OUTPUT0' data_type: TYPE_FP32 dims: [ -1 ] } ]
    parameters { key: 'fault' value { string_value: 'late' } }
    parameters { key: 'delay_ms' value { string_value: '4000' } })");
  ASSERT_TRUE(Start(Options()).ok());
  auto inference = std::async(std::launch::async, [&] { return Infer("late", {5}); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  auto stop = std::async(std::launch::async, [&] { return server_->Stop(); });
  while (server_->IsLive().ok()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(server_->IsLive().status().message(), "Server exiting");
  EXPECT_EQ(server_->IsModelReady("identity").status().message(), "Server not ready");
  const auto refused = Infer("identity", {1});
  EXPECT_EQ(refused.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(refused.status().message().find("Server is stopping, scheduler for model has stopped "
                                            "accepting new inference requests"),
            std::string::npos)
      << refused.status().message();
  EXPECT_TRUE(stop.get().ok());
  EXPECT_TRUE(inference.get().ok()) << "accepted requests are answered";
}

TEST_F(ServerTest, TwoServersInOneProcessAreIndependent) {
  AddModel("identity");
  ASSERT_TRUE(Start(Options()).ok());
  auto other = Server::Start(Explicit());
  ASSERT_TRUE(other.ok());
  EXPECT_FALSE(*other->IsModelReady("identity"));
  EXPECT_TRUE(*server_->IsModelReady("identity"));
}

}  // namespace
}  // namespace nereid::core
