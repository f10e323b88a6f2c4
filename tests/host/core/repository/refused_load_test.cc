// Why a load is refused, in the words that scripts look for.
#include "host/core/repository/model_repository.h"
#include "tests/host/core/repository/fake_models.h"

namespace nereid {
namespace {

using RefusedLoadTest = RepositoryTest;

TEST_F(RefusedLoadTest, AnEnsembleNamesTheStepThatCouldNotBeLoadedAndWhy) {
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

TEST_F(RefusedLoadTest, AModelThatNoRepositoryHasIsSaidToBeInNone) {
  EXPECT_EQ(repository_.Load("nosuch", {}).message(),
            StrCat("failed to load 'nosuch', failed to poll from model repository: model not found "
                   "in any model repository: no folder 'nosuch' in '",
                   repo(), "'"));
  ModelRepository none({}, {}, &lifecycle_);
  EXPECT_EQ(none.Load("nosuch", {}).message(),
            "failed to load 'nosuch', failed to poll from model repository: model not found in any "
            "model repository");
}

TEST_F(RefusedLoadTest, TensorsAreJudgedBeforeVersionsWhereNoBackendCompletesThem) {
  AddModel("m", {}, "backend: 'b' input { name: 'A' dims: [ 1 ] }");
  ModelRepository strict({{repo(), {}}}, {.config_name = "", .needs_config = true}, &lifecycle_);
  EXPECT_NE(strict.Load("m", {}).message().find("model input 'A' must specify 'data_type' for m"),
            std::string::npos);
  EXPECT_NE(repository_.Load("m", {}).message().find("at least one version must be available"),
            std::string::npos);
}

}  // namespace
}  // namespace nereid
