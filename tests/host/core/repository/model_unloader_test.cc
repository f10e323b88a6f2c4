// Unloads of ensembles with their steps.
#include "tests/host/core/repository/fake_models.h"

namespace nereid::core {
namespace {

using ModelUnloaderTest = RepositoryTest;

TEST_F(ModelUnloaderTest, KeepsTheStepsOfAnUnloadedEnsembleByDefault) {
  AddModel("x");
  AddModel("shared");
  AddEnsemble("one", {"x", "shared"});
  AddEnsemble("two", {"shared"});
  ASSERT_TRUE(repository_.LoadNamed({"one", "two"}).ok());
  ASSERT_TRUE(repository_.Unload("one", true).ok());
  EXPECT_EQ(Index(true), "shared:1 READY; two:1 READY");
  ASSERT_TRUE(repository_.Unload("two", false).ok());
  EXPECT_EQ(Index(true), "shared:1 READY");
}

TEST_F(ModelUnloaderTest, KeepsAStepThatWasRequestedByName) {
  AddModel("x");
  AddModel("y");
  AddEnsemble("ens", {"x", "y"});
  ASSERT_TRUE(repository_.Load("x", {}).ok());
  ASSERT_TRUE(repository_.Load("ens", {}).ok());
  Write("repo/x/1/model.bin", "changed");
  ASSERT_TRUE(repository_.Load("ens", {}).ok());
  ASSERT_TRUE(repository_.Unload("ens", true).ok());
  EXPECT_EQ(Index(true), "x:1 READY");
  ASSERT_TRUE(repository_.Unload("x", false).ok());
  ASSERT_TRUE(repository_.Load("ens", {}).ok());
  ASSERT_TRUE(repository_.Unload("ens", true).ok());
  EXPECT_EQ(Index(true), "") << "the unload by name ended the request";
}

TEST_F(ModelUnloaderTest, StepsServeUntilTheLastRequestOfTheEnsemble) {
  AddModel("x");
  AddEnsemble("inner", {"x"});
  AddEnsemble("ens", {"inner"});
  ASSERT_TRUE(repository_.Load("ens", {}).ok());
  auto request = Find("ens");
  ASSERT_TRUE(repository_.Unload("ens", true).ok());
  EXPECT_EQ(Index(), "ens:1 UNLOADING; inner:1 READY; x:1 READY");
  auto inner_request = Find("inner");
  request.reset();
  EXPECT_EQ(Index(), "ens:1 UNAVAILABLE (unloaded); inner:1 UNLOADING; x:1 READY");
  inner_request.reset();
  EXPECT_EQ(Index(true), "");
}

TEST_F(ModelUnloaderTest, LoadCancelsTheUnloadOfSteps) {
  AddModel("x");
  AddEnsemble("ens", {"x"});
  ASSERT_TRUE(repository_.Load("ens", {}).ok());
  auto request = Find("ens");
  ASSERT_TRUE(repository_.Unload("ens", true).ok());
  ASSERT_TRUE(repository_.Load("ens", {}).ok());
  request.reset();
  EXPECT_EQ(Index(), "ens:1 READY; x:1 READY");
}

TEST_F(ModelUnloaderTest, AStepThatIsInUseAgainServesOn) {
  for (const char* name : {"loaded_again", "called_again", "unused"}) AddModel(name);
  AddEnsemble("ens", {"loaded_again", "called_again", "unused"});
  AddEnsemble("other", {"called_again"});
  ASSERT_TRUE(repository_.Load("ens", {}).ok());
  auto request = Find("ens");
  ASSERT_TRUE(repository_.Unload("ens", true).ok());
  ASSERT_TRUE(repository_.Load("loaded_again", {}).ok());
  ASSERT_TRUE(repository_.Load("other", {}).ok());
  request.reset();
  EXPECT_EQ(Index(true), "called_again:1 READY; loaded_again:1 READY; other:1 READY");
}

}  // namespace
}  // namespace nereid::core
