// Metadata, configuration, properties, statistics, index, load and unload.
#include <array>
#include <nlohmann/json.hpp>

#include "tests/host/core/capi/server_fixture.h"

namespace nereid::core {
namespace {

using Json = nlohmann::json;

TEST_F(ServerTest, MetadataListsVersionsAndShapesWithTheBatchDimension) {
  AddModel("m", "max_batch_size: 4 version_policy { all { } } " + std::string(kIdentity));
  std::filesystem::create_directories(root_ / "repo/m/3");
  ASSERT_TRUE(Start(Options()).ok());
  EXPECT_EQ(Json::parse(Text(server_->ModelMetadata("m"))), Json::parse(R"({"name": "m",
      "versions": ["1", "3"], "platform": "identity_c",
      "inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [-1, -1]}],
      "outputs": [{"name": "OUTPUT0", "datatype": "FP32", "shape": [-1, -1]}]})"));
  EXPECT_EQ(Text(server_->ModelMetadata("m", 2)),
            "Request for unknown model: 'm' version 2 is not found");
  EXPECT_EQ(Text(server_->ModelMetadata("x")), "Request for unknown model: 'x' is not found");
}

TEST_F(ServerTest, ConfigIsTheNormalisedOne) {
  AddModel("m");
  ASSERT_TRUE(Start(Options()).ok());
  const Json config = Json::parse(Text(server_->ModelConfig("m")));
  EXPECT_EQ(config["name"], "m");
  EXPECT_EQ(config["instance_group"][0]["name"], "m_0");
  EXPECT_EQ(config["version_policy"]["latest"]["num_versions"], 1);
}

TEST_F(ServerTest, SupportsOneConfigVersion) {
  AddModel("m");
  ASSERT_TRUE(Start(Options()).ok());
  TRITONSERVER_Message* message = nullptr;
  const auto ask = [&](const char* model, uint32_t form) {
    return ToStatus(TRITONSERVER_ServerModelConfig(server_->get(), model, /*model_version=*/-1,
                                                   form, &message));
  };
  EXPECT_EQ(ask("m", 2).code(), StatusCode::kInvalidArg);
  EXPECT_EQ(ask("m", 2).message(),
            "model configuration version 2 not supported, supported versions are: 1");
  EXPECT_EQ(ask("nosuch", 2).code(), StatusCode::kNotFound);
}

TEST_F(ServerTest, PropertiesFollowTheConfig) {
  AddModel("plain");
  AddModel("stream", "max_batch_size: 2 model_transaction_policy { decoupled: true } " +
                         std::string(kIdentity));
  ASSERT_TRUE(Start(Options()).ok());
  EXPECT_FALSE(*server_->IsDecoupled("plain"));
  EXPECT_FALSE(*server_->IsBatched("plain"));
  EXPECT_TRUE(*server_->IsDecoupled("stream"));
  EXPECT_TRUE(*server_->IsBatched("stream"));
  EXPECT_EQ(server_->IsDecoupled("x").status().code(), StatusCode::kNotFound);
}

TEST_F(ServerTest, StatisticsCountWhatWasServed) {
  AddModel("a");
  AddModel("b");
  ASSERT_TRUE(Start(Options()).ok());
  ASSERT_TRUE(Infer("a", {1}).ok());
  const Json all = Json::parse(Text(server_->ModelStatistics("")));
  ASSERT_EQ(all["model_stats"].size(), 2u);
  const Json one = Json::parse(Text(server_->ModelStatistics("a")));
  ASSERT_EQ(one["model_stats"].size(), 1u);
  EXPECT_EQ(one["model_stats"][0]["inference_count"], 1);
  EXPECT_EQ(one["model_stats"][0]["inference_stats"]["success"]["count"], 1);
  EXPECT_EQ(Text(server_->ModelStatistics("x")), "requested model 'x' is not available");
  EXPECT_EQ(Text(server_->ModelStatistics("a", 7)),
            "requested model version is not available for model 'a'");
  EXPECT_EQ(server_->ModelStatistics("x").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(server_->ModelStatistics("a", 7).status().code(), StatusCode::kNotFound);
}

TEST_F(ServerTest, NamespacesSeparateEqualNames) {
  AddModel("m");
  Write("../other/m/config.pbtxt", kIdentity);
  std::filesystem::create_directories(root_ / "other/m/1");
  ServerOptions options = Options();
  ASSERT_TRUE(options.AddModelRepository((root_ / "other").string()).ok());
  ASSERT_TRUE(options.Set(TRITONSERVER_ServerOptionsSetModelNamespacing, true).ok());
  ASSERT_TRUE(Start(options).ok());
  const std::string first = (root_ / "repo/m").string(), second = (root_ / "other/m").string();
  ASSERT_TRUE(Infer(first, {1}).ok());
  ASSERT_TRUE(Infer(first, {2}).ok());
  ASSERT_TRUE(Infer(second, {3}).ok());
  const Status ambiguous = Infer("m", {1}).status();
  EXPECT_EQ(ambiguous.code(), StatusCode::kInvalidArg);
  EXPECT_NE(ambiguous.message().find(StrCat("'", second, "', '", first, "'")), std::string::npos)
      << ambiguous.message();
  EXPECT_EQ(Text(server_->ModelStatistics("m")), ambiguous.message());
  const auto count = [&](const std::string& name) {
    return Json::parse(
        Text(server_->ModelStatistics(name.c_str())))["model_stats"][0]["inference_count"];
  };
  EXPECT_EQ(count(first), 2);
  EXPECT_EQ(count(second), 1);
  EXPECT_EQ(Json::parse(Text(server_->ModelStatistics("")))["model_stats"].size(), 2u);
  const Json index = Json::parse(Text(server_->ModelIndex(true)));
  ASSERT_EQ(index.size(), 2u);
  for (const Json& entry : index) EXPECT_EQ(entry["name"], "m");
}

TEST_F(ServerTest, LoadsAndUnloadsOnRequestInExplicitMode) {
  AddModel("m");
  AddModel("other");
  ASSERT_TRUE(Start(Explicit()).ok());
  EXPECT_EQ(Json::parse(Text(server_->ModelIndex(false))),
            Json::parse(R"([{"name": "m"}, {"name": "other"}])"));
  EXPECT_EQ(Infer("m", {1}).status().message(), "Request for unknown model: 'm' is not found");
  ASSERT_TRUE(server_->LoadModel("m").ok());
  EXPECT_TRUE(Infer("m", {1}).ok());
  EXPECT_EQ(Json::parse(Text(server_->ModelIndex(true))),
            Json::parse(R"([{"name": "m", "version": "1", "state": "READY"}])"));
  ASSERT_TRUE(server_->UnloadModel("m").ok());
  EXPECT_EQ(Infer("m", {1}).status().message(),
            "Request for unknown model: 'm' has no available versions");
  const Status of_version = server_->NewRequest("m", 1).status();
  EXPECT_EQ(of_version.code(), StatusCode::kUnavailable);
  EXPECT_EQ(of_version.message(), "Request for unknown model: 'm' version 1 is not at ready state");
  EXPECT_EQ(server_->NewRequest("m", 2).status().code(), StatusCode::kNotFound);
}

TEST_F(ServerTest, LoadsStartupModelsInExplicitMode) {
  AddModel("m");
  AddModel("other");
  ServerOptions options = Explicit();
  ASSERT_TRUE(options.AddStartupModel("m").ok());
  ASSERT_TRUE(Start(options).ok());
  EXPECT_TRUE(*server_->IsModelReady("m"));
  EXPECT_FALSE(*server_->IsModelReady("other"));
}

TEST_F(ServerTest, RefusesLoadAndUnloadInTheOtherModes) {
  AddModel("m");
  ASSERT_TRUE(Start(Options()).ok());
  const Status status = server_->LoadModel("m");
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "explicit model load / unload is not allowed if polling is enabled");
  EXPECT_EQ(server_->UnloadModel("m").code(), StatusCode::kUnavailable);
  EXPECT_EQ(server_->RegisterModelRepository("/").code(), StatusCode::kUnsupported);
}

TEST_F(ServerTest, PollsOnRequest) {
  ServerOptions polling = Options();
  ASSERT_TRUE(polling.SetModelControlMode(TRITONSERVER_MODEL_CONTROL_POLL).ok());
  int number = 0;
  for (ServerOptions& options :
       std::array{std::move(polling), Options()}) {  // poll is also the default mode
    ASSERT_TRUE(Start(options).ok());
    const std::string name = "fresh" + std::to_string(++number);
    AddModel(name);
    ASSERT_TRUE(server_->PollModelRepository().ok());
    EXPECT_TRUE(Infer(name, {1}).ok());
  }
}

TEST_F(ServerTest, RefusesToPollInModeNone) {
  ServerOptions options = Options();
  ASSERT_TRUE(options.SetModelControlMode(TRITONSERVER_MODEL_CONTROL_NONE).ok());
  ASSERT_TRUE(Start(options).ok());
  EXPECT_EQ(server_->PollModelRepository().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace nereid::core
