// Models and servers that fail to load. Each error names its reason, and other models serve.
#include "tests/host/core/capi/server_fixture.h"

namespace nereid::core {
namespace {

constexpr char kTensors[] =
    "input [ { name: 'INPUT0' data_type: TYPE_FP32 dims: [ -1 ] } ]"
    "output [ { name: 'OUTPUT0' data_type: TYPE_FP32 dims: [ -1 ] } ]";

struct Case {
  const char* name;
  std::string config;
  std::vector<const char*> reasons;  // substrings of the error
};

class FailureTest : public ServerTest, public testing::WithParamInterface<Case> {};

TEST_P(FailureTest, ErrorNamesTheReasonAndOtherModelsServe) {
  AddModel("good");
  AddModel("bad", GetParam().config);
  ASSERT_TRUE(Start(Explicit()).ok());
  ASSERT_TRUE(server_->LoadModel("good").ok());
  const Status status = server_->LoadModel("bad");
  ASSERT_FALSE(status.ok());
  const std::string index = Text(server_->ModelIndex(false));
  for (const char* reason : GetParam().reasons) {
    EXPECT_NE(status.message().find(reason), std::string::npos) << status.message();
    EXPECT_NE(index.find(reason), std::string::npos) << index;
  }
  EXPECT_TRUE(Infer("good", {1}).ok());
  // A failed model can be repaired and loaded.
  Write("bad/config.pbtxt", kIdentity);
  EXPECT_TRUE(server_->LoadModel("bad").ok());
  EXPECT_TRUE(Infer("bad", {1}).ok());
}

std::string Hostile(const std::string& fault) {
  return StrCat("backend: 'hostile' ", kTensors,
                "parameters { key: 'fault' value { string_value: '", fault, "' } }");
}

INSTANTIATE_TEST_SUITE_P(
    Reasons, FailureTest,
    testing::Values(
        Case{"NoSuchBackend", "backend: 'nosuch'", {"nosuch"}},
        Case{"NoEntryPoints",
             "backend: 'no_entry_points'",
             {"libtriton_no_entry_points.so", "TRITONBACKEND_ModelInstanceExecute"}},
        Case{"MissingSymbol",
             "backend: 'missing_symbol'",
             {"libtriton_missing_symbol.so", "undefined symbol"}},
        Case{"Typo",
             "backend: 'identity_c'\nmax_batch_sizes: 1",
             {"config.pbtxt:2:1: max_batch_sizes: unknown field"}},
        Case{"ModelInitializeFails",
             Hostile("model_initialize"),
             {"Unavailable: hostile: model_initialize fails as told"}},
        Case{"InstanceInitializeFails",
             Hostile("instance_initialize"),
             {"Unavailable: hostile: instance_initialize fails as told"}},
        Case{"BadDims",
             "backend: 'identity_c' input [ { name: 'A' data_type: TYPE_INT32 dims: [ 0 ] } ]",
             {"input[0].dims: model input 'A' dimension must be integer >= 1"}},
        Case{"SequenceBatching",
             "backend: 'identity_c' sequence_batching { direct { minimum_slot_utilization: 2 } }",
             {"minimum slot utilization must be in range (0.0, 1.0] for bad, got 2"}}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_F(ServerTest, ModelWithAnUnreadyInstanceIsNotReadyButServes) {
  AddModel("shy", Hostile("instance_ready"));
  ASSERT_TRUE(Start(Options()).ok());
  EXPECT_FALSE(*server_->IsModelReady("shy"));
  EXPECT_TRUE(Infer("shy", {1}).ok());
}

TEST_F(ServerTest, IgnoresAttributesAfterAnError) {
  AddModel("m", Hostile("none"));
  for (const auto& [fault, count] : {std::pair{"none", 3}, {"attributes", 1}}) {
    ServerOptions options = Options();
    ASSERT_TRUE(
        options.Set(TRITONSERVER_ServerOptionsSetBackendConfig, "hostile", "fault", fault).ok());
    const Status status = Start(options);
    ASSERT_TRUE(status.ok()) << status.message();
    const std::string config = Text(server_->ModelConfig("m"));
    EXPECT_NE(config.find(StrCat("\"count\":", count)), std::string::npos) << config;
    server_.reset();
  }
}

TEST_F(ServerTest, FailedModelFailsTheStart) {
  AddModel("good");
  AddModel("bad", "backend: 'nosuch'");
  const Status status = Start(Options());
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_EQ(status.message().rfind("failed to load all models; ", 0), 0u) << status.message();
  EXPECT_NE(status.message().find("nosuch"), std::string::npos);
}

TEST_F(ServerTest, MissingRepositoryFailsTheStart) {
  ServerOptions options = Options();
  ASSERT_TRUE(options.AddModelRepository("/nonexistent/repository").ok());
  const Status status = Start(options);
  EXPECT_NE(status.message().find("/nonexistent/repository"), std::string::npos);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
}

TEST_F(ServerTest, WithoutExitOnErrorAMissingRepositoryMakesTheServerNotLive) {
  AddModel("good");
  ServerOptions options = Options();
  ASSERT_TRUE(options.AddModelRepository("/nonexistent/repository").ok());
  ASSERT_TRUE(options.Set(TRITONSERVER_ServerOptionsSetExitOnError, false).ok());
  ASSERT_TRUE(options.Set(TRITONSERVER_ServerOptionsSetStrictReadiness, false).ok());
  ASSERT_TRUE(Start(options).ok());
  EXPECT_FALSE(*server_->IsLive());
  EXPECT_FALSE(*server_->IsReady());
  const Result<bool> is_ready = server_->IsModelReady("good");
  EXPECT_TRUE(!is_ready.ok() || !*is_ready);
  EXPECT_NE(Text(server_->Metadata()).find("2.73.0"), std::string::npos);
}

TEST_F(ServerTest, ServerThatIsNotLiveLoadsNoLaterModels) {
  ServerOptions options = Options();
  const std::string late = (root_ / "late").string();
  ASSERT_TRUE(options.AddModelRepository(late).ok());
  ASSERT_TRUE(options.Set(TRITONSERVER_ServerOptionsSetExitOnError, false).ok());
  ASSERT_TRUE(
      options.Set(TRITONSERVER_ServerOptionsSetModelControlMode, TRITONSERVER_MODEL_CONTROL_POLL)
          .ok());
  ASSERT_TRUE(Start(options).ok());
  std::filesystem::create_directories(late);
  AddModel("good");
  EXPECT_EQ(server_->PollModelRepository().message(), "Server not ready");
  const Result<bool> is_ready = server_->IsModelReady("good");
  EXPECT_TRUE(!is_ready.ok() || !*is_ready);
}

TEST_F(ServerTest, RepositoryThatIsGivenTwiceIsLoadedOnce) {
  AddModel("good");
  ServerOptions options = Options();
  ASSERT_TRUE(options.AddModelRepository((root_ / "repo").string()).ok());
  const Status status = Start(options);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(*server_->IsModelReady("good"));
}

TEST_F(ServerTest, RefusesAWildcardWithOtherStartupModels) {
  ServerOptions options = Explicit();
  ASSERT_TRUE(options.AddStartupModel("*").ok());
  ASSERT_TRUE(options.AddStartupModel("m").ok());
  EXPECT_EQ(Start(options).code(), StatusCode::kInvalidArg);
}

}  // namespace
}  // namespace nereid::core
