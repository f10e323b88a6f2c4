// Error messages of failed loads, in Triton's words, which scripts parse.
#include <future>

#include "host/core/repository/model_repository.h"
#include "tests/host/core/repository/fake_models.h"

namespace nereid::core {
namespace {

using RefusedLoadTest = RepositoryTest;

TEST_F(RefusedLoadTest, ErrorNamesTheFailedStepAndItsReason) {
  AddModel("step");
  AddEnsemble("ens", {"step"});
  loader_.Fail("step:1", UnavailableError("no room"));
  const std::string message = repository_.LoadAll().message();
  EXPECT_NE(message.find("load failed for model 'ens': ensemble 'ens' depends on 'step' which has "
                         "no loaded version. Model 'step' loading failed with error: load failed "
                         "for model 'step': version 1 is at UNAVAILABLE state: "),
            std::string::npos)
      << message;
}

TEST_F(RefusedLoadTest, ErrorListsTheSearchedRepositories) {
  EXPECT_EQ(repository_.Load("nosuch", {}).message(),
            StrCat("failed to load 'nosuch', failed to poll from model repository: model not found "
                   "in any model repository: no folder 'nosuch' in '",
                   repo(), "'"));
  ModelRepository none({}, {}, &lifecycle_);
  EXPECT_EQ(none.Load("nosuch", {}).message(),
            "failed to load 'nosuch', failed to poll from model repository: model not found in any "
            "model repository");
}

TEST_F(RefusedLoadTest, ChecksTensorsBeforeVersionsInStrictMode) {
  AddModel("m", {}, "backend: 'b' input { name: 'A' dims: [ 1 ] }");
  ModelRepository strict({{repo(), {}}}, {.config_name = "", .needs_config = true}, &lifecycle_);
  EXPECT_NE(strict.Load("m", {}).message().find("model input 'A' must specify 'data_type' for m"),
            std::string::npos);
  EXPECT_NE(repository_.Load("m", {}).message().find("at least one version must be available"),
            std::string::npos);
}

// ---- which model versions affect the readiness of the server ----

using ReadinessTest = RepositoryTest;

TEST_F(ReadinessTest, ServingModelIsReadyDespiteMissingPolicyVersions) {
  AddModel("m", {2}, "backend: 'b' version_policy { specific { versions: [ 1 ] } }");
  EXPECT_FALSE(repository_.LoadNamed({"m"}).ok());
  EXPECT_FALSE(repository_.AllServing());
  AddModel("m", {1}, "backend: 'b' version_policy { specific { versions: [ 1 ] } }");
  ASSERT_TRUE(repository_.Load("m", {}).ok());
  EXPECT_TRUE(repository_.AllServing()) << "version 2 was never requested";
  AddModel("m", {3}, "backend: 'b' version_policy { specific { versions: [ 7 ] } }");
  EXPECT_FALSE(repository_.Load("m", {}).ok());
  EXPECT_EQ(Index(true), "m:1 READY");
  EXPECT_TRUE(repository_.AllServing());
  ASSERT_TRUE(repository_.Unload("m", false).ok());
  EXPECT_FALSE(repository_.Load("m", {}).ok());
  EXPECT_TRUE(repository_.AllServing()) << "it was unloaded before";
}

TEST_F(ReadinessTest, ModelWithoutVersionsAffectsReadiness) {
  AddModel("none", {});
  EXPECT_FALSE(repository_.LoadNamed({"none"}).ok());
  EXPECT_FALSE(repository_.AllServing()) << "its configuration is valid";
}

TEST_F(ReadinessTest, ANewNameThatAClientFailsToLoadDoesNotAffectReadiness) {
  AddModel("fails");
  AddModel("none", {});
  AddModel("hangs");
  AddEnsemble("ens", {"fails"});
  loader_.Fail("fails:1", InternalError("broken"));
  for (const char* name : {"fails", "none", "ens"}) {
    EXPECT_FALSE(repository_.Load(name, {}).ok());
    EXPECT_TRUE(repository_.AllServing()) << name;
  }
  loader_.BlockLoad("hangs");
  auto load = std::async(std::launch::async, [&] { return repository_.Load("hangs", {}); });
  loader_.WaitForLoads(3);
  EXPECT_TRUE(repository_.AllServing()) << "it is loading";
  loader_.UnblockLoad("hangs");
  EXPECT_TRUE(load.get().ok());
}

TEST_F(ReadinessTest, ARequiredModelAffectsReadinessUntilItServes) {
  AddModel("m");
  loader_.Fail("m:1", InternalError("broken"));
  EXPECT_FALSE(repository_.LoadNamed({"m"}).ok());
  EXPECT_FALSE(repository_.AllServing());
  EXPECT_FALSE(repository_.Load("m", {}).ok());
  EXPECT_FALSE(repository_.AllServing()) << "a client's attempt changes nothing";
  loader_.ClearFailures();
  EXPECT_TRUE(repository_.Load("m", {}).ok());
  EXPECT_TRUE(repository_.AllServing());
}

}  // namespace
}  // namespace nereid::core
