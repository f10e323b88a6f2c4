// A server's life: options, readiness, metadata, exit.
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "server_fixture.h"

namespace nereid {
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

TEST_F(ServerTest, TellsItsNameVersionAndExtensions) {
  ServerOptions options = Options();
  ASSERT_TRUE(options.Set(TRITONSERVER_ServerOptionsSetServerId, "mine").ok());
  ASSERT_TRUE(Start(options).ok());
  const Json json = Json::parse(Text(server_->Metadata()));
  EXPECT_EQ(json["name"], "mine");
  EXPECT_EQ(json["version"].get<std::string>().substr(0, 2), "2.");
  EXPECT_EQ(json["extensions"].size(), 13u);
}

TEST_F(ServerTest, StrictReadinessMindsAFailedModelAndTheOtherDoesNot) {
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

TEST_F(ServerTest, StopUnloadsAndRefuses) {
  AddModel("identity");
  ASSERT_TRUE(Start(Options()).ok());
  ASSERT_TRUE(server_->Stop().ok());
  EXPECT_FALSE(*server_->IsLive());
  EXPECT_FALSE(*server_->IsReady());
  EXPECT_FALSE(Infer("identity", {1}).ok());
  EXPECT_TRUE(server_->Stop().ok());
}

TEST_F(ServerTest, StopWaitsForRequestsInFlight) {
  AddModel("late", R"(backend: 'hostile'
    input [ { name: 'INPUT0' data_type: TYPE_FP32 dims: [ -1 ] } ]
    output [ { name: 'OUTPUT0' data_type: TYPE_FP32 dims: [ -1 ] } ]
    parameters { key: 'fault' value { string_value: 'late' } }
    parameters { key: 'delay_ms' value { string_value: '200' } })");
  ASSERT_TRUE(Start(Options()).ok());
  auto inference = std::async(std::launch::async, [&] { return Infer("late", {5}); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_TRUE(server_->Stop().ok());
  const auto result = inference.get();
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->at(0), 5);
}

TEST_F(ServerTest, TwoServersOfOneProcessKeepApart) {
  AddModel("identity");
  ASSERT_TRUE(Start(Options()).ok());
  auto other = Server::Start(Explicit());
  ASSERT_TRUE(other.ok());
  EXPECT_FALSE(*other->IsModelReady("identity"));
  EXPECT_TRUE(*server_->IsModelReady("identity"));
}

}  // namespace
}  // namespace nereid
