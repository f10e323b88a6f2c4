// Several models together: start-up, ensembles and their steps, the index, polling.
#include "repository/model_repository.h"

#include <algorithm>
#include <future>

#include "fake_models.h"

namespace nereid {
namespace {

using ModelRepositoryTest = RepositoryTest;

size_t Position(const std::vector<std::string>& order, const std::string& key) {
  return static_cast<size_t>(std::find(order.begin(), order.end(), key) - order.begin());
}

TEST_F(ModelRepositoryTest, LoadsEnsemblesAfterTheirSteps) {
  AddEnsemble("a_outer", {"b_inner", "z"});
  AddEnsemble("b_inner", {"y"});
  AddModel("y");
  AddModel("z");
  ASSERT_TRUE(repository_.LoadAll().ok());
  const auto& order = loader_.order;
  EXPECT_LT(Position(order, "y:1"), Position(order, "b_inner:1"));
  EXPECT_LT(Position(order, "b_inner:1"), Position(order, "a_outer:1"));
  EXPECT_LT(Position(order, "z:1"), Position(order, "a_outer:1"));
  EXPECT_EQ(Index(true), "a_outer:1 READY; b_inner:1 READY; y:1 READY; z:1 READY");
}

TEST_F(ModelRepositoryTest, LoadsIndependentModelsAtOnce) {
  for (const char* name : {"a", "b", "c"}) {
    AddModel(name);
    loader_.Hold(name);
  }
  auto load = std::async(std::launch::async, [&] { return repository_.LoadAll(); });
  loader_.WaitForLoads(3);
  for (const char* name : {"a", "b", "c"}) loader_.Release(name);
  EXPECT_TRUE(load.get().ok());
  EXPECT_EQ(loader_.max_running, 3);
}

TEST_F(ModelRepositoryTest, AFailedModelLeavesTheOthersServing) {
  AddModel("bad");
  AddModel("typo", {1}, "backend: 'b' max_batch_sizes: 1");
  AddModel("good");
  loader_.Fail("bad:1", InvalidArgError("no weights"));
  const Status status = repository_.LoadAll();
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_NE(status.message().find("failed to load all models; "), std::string::npos);
  EXPECT_NE(status.message().find("Invalid argument: no weights"), std::string::npos);
  EXPECT_NE(status.message().find("typo/config.pbtxt:1:14: max_batch_sizes: unknown field"),
            std::string::npos)
      << status.message();
  EXPECT_NE(Find("good"), nullptr);
  EXPECT_FALSE(repository_.AllServing());
}

TEST_F(ModelRepositoryTest, ShowsTheFaultOfAConfigInTheIndex) {
  AddModel("typo", {1}, "backend: 'b' max_batch_sizes: 1");
  EXPECT_FALSE(repository_.Load("typo", {}).ok());
  EXPECT_NE(Index().find("typo:1 UNAVAILABLE (failed to load 'typo', failed to poll from model "
                         "repository: "),
            std::string::npos)
      << Index();
}

TEST_F(ModelRepositoryTest, AnEnsembleNamesTheStepThatIsMissing) {
  AddEnsemble("ens", {"nosuch"});
  const Status status = repository_.Load("ens", {});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArg);
  EXPECT_EQ(status.message().substr(0, 116),
            "load failed for model 'ens': ensemble ens contains models that are not available or "
            "ambiguous: nosuch; failed to loa");
}

TEST_F(ModelRepositoryTest, RefusesEnsemblesThatCallEachOther) {
  AddEnsemble("a", {"b"});
  AddEnsemble("b", {"a"});
  const std::string message = repository_.LoadAll().message();
  EXPECT_NE(message.find("'a': circular dependency between ensembles"), std::string::npos)
      << message;
}

TEST_F(ModelRepositoryTest, RefusesANameThatTwoRepositoriesHave) {
  AddModel("m");
  AddModel("m", {1}, "backend: 'b'", "other");
  ASSERT_TRUE(repository_.Register({repo("other"), {}}).ok());
  const Status status = repository_.Load("m", {});
  EXPECT_NE(status.message().find("model 'm' appears in two or more repositories: "),
            std::string::npos);
  EXPECT_NE(status.message().find(repo("other") + "/m"), std::string::npos);
  const std::vector<IndexEntry> index = repository_.Index(false);
  ASSERT_EQ(index.size(), 1u);
  EXPECT_EQ(index[0].version, IndexEntry::kNoVersion);
  EXPECT_EQ(index[0].status.reason, "model appears in two or more repositories");
}

TEST_F(ModelRepositoryTest, LoadingAnEnsembleLoadsItsSteps) {
  AddModel("x");
  AddModel("unused");
  AddEnsemble("ens", {"x"});
  ASSERT_TRUE(repository_.Load("ens", {}).ok());
  EXPECT_EQ(Index(), "ens:1 READY; unused; x:1 READY");
}

TEST_F(ModelRepositoryTest, UnloadingAnEnsembleKeepsItsStepsUnlessToldOtherwise) {
  AddModel("x");
  AddModel("shared");
  AddEnsemble("one", {"x", "shared"});
  AddEnsemble("two", {"shared"});
  ASSERT_TRUE(repository_.LoadAll().ok());
  ASSERT_TRUE(repository_.Unload("one", true).ok());
  EXPECT_EQ(Index(true), "shared:1 READY; two:1 READY");
  ASSERT_TRUE(repository_.Unload("two", false).ok());
  EXPECT_EQ(Index(true), "shared:1 READY");
}

TEST_F(ModelRepositoryTest, StepsServeUntilTheLastRequestOfTheirEnsembleIsAnswered) {
  AddModel("x");
  AddEnsemble("inner", {"x"});
  AddEnsemble("ens", {"inner"});
  ASSERT_TRUE(repository_.LoadAll().ok());
  auto request = Find("ens");
  ASSERT_TRUE(repository_.Unload("ens", true).ok());
  EXPECT_EQ(Index(), "ens:1 UNLOADING; inner:1 READY; x:1 READY");
  auto inner_request = Find("inner");
  request.reset();
  EXPECT_EQ(Index(), "ens:1 UNAVAILABLE (unloaded); inner:1 UNLOADING; x:1 READY");
  inner_request.reset();
  EXPECT_EQ(Index(true), "");
}

TEST_F(ModelRepositoryTest, AnEnsembleThatIsLoadedAgainKeepsItsSteps) {
  AddModel("x");
  AddEnsemble("ens", {"x"});
  ASSERT_TRUE(repository_.LoadAll().ok());
  auto request = Find("ens");
  ASSERT_TRUE(repository_.Unload("ens", true).ok());
  ASSERT_TRUE(repository_.Load("ens", {}).ok());
  request.reset();
  EXPECT_EQ(Index(), "ens:1 READY; x:1 READY");
}

TEST_F(ModelRepositoryTest, UnloadingAStepUnloadsTheEnsemblesThatCallIt) {
  AddModel("x");
  AddEnsemble("ens", {"x"});
  ASSERT_TRUE(repository_.LoadAll().ok());
  ASSERT_TRUE(repository_.Unload("x", false).ok());
  EXPECT_EQ(Index(), "ens:1 UNAVAILABLE (unloaded); x:1 UNAVAILABLE (unloaded)");
}

// As Triton does: what a client unloaded itself stays unloaded, what went or failed with a step
// comes back with it.
TEST_F(ModelRepositoryTest, LoadingAStepBringsBackTheEnsemblesThatWaitForIt) {
  AddModel("x");
  AddModel("y");
  AddEnsemble("ens", {"x"});
  AddEnsemble("outer", {"ens"});
  AddEnsemble("both", {"x", "y"});
  AddEnsemble("ended", {"x"});
  ASSERT_TRUE(repository_.LoadAll().ok());
  ASSERT_TRUE(repository_.Unload("ended", false).ok());
  ASSERT_TRUE(repository_.Unload("y", false).ok());
  ASSERT_TRUE(repository_.Unload("x", false).ok());
  EXPECT_EQ(Index(true), "");
  ASSERT_TRUE(repository_.Load("x", {}).ok());
  EXPECT_EQ(Index(true), "ens:1 READY; outer:1 READY; x:1 READY");
  ASSERT_TRUE(repository_.Load("y", {}).ok());
  EXPECT_EQ(Index(true), "both:1 READY; ens:1 READY; outer:1 READY; x:1 READY; y:1 READY");
}

TEST_F(ModelRepositoryTest, AnEnsembleWhoseStepComesLaterFollowsIt) {
  AddEnsemble("ens", {"late"});
  EXPECT_FALSE(repository_.Load("ens", {}).ok());
  AddModel("late");
  ASSERT_TRUE(repository_.Load("late", {}).ok());
  EXPECT_EQ(Index(), "ens:1 READY; late:1 READY");
}

TEST_F(ModelRepositoryTest, AnEnsembleEndsWhenItDoesNotFitItsNewStep) {
  AddModel("x");
  AddEnsemble("ens", {"x"});
  ASSERT_TRUE(repository_.LoadAll().ok());
  const int serial = Find("ens")->serial;
  AddModel("x", {1, 2});
  loader_.Fail("ens:1", InvalidArgError("does not fit"));
  ASSERT_TRUE(repository_.Load("x", {}).ok());
  EXPECT_EQ(Index(true), "x:2 READY");
  loader_.Heal();
  AddModel("x", {1, 2, 3});
  ASSERT_TRUE(repository_.Load("x", {}).ok());
  EXPECT_EQ(Index(true), "ens:1 READY; x:3 READY");
  EXPECT_GT(Find("ens")->serial, serial);
}

TEST_F(ModelRepositoryTest, SaysThatThePolicyLeavesNoVersion) {
  AddModel("m", {});
  AddModel("n", {1}, "backend: 'b' version_policy { specific { versions: [ -1, 7 ] } }");
  for (const std::string name : {"m", "n"}) {
    const Status status = repository_.Load(name, {});
    EXPECT_EQ(status.code(), StatusCode::kInvalidArg);
    EXPECT_EQ(status.message().find("load failed for model '" + name +
                                    "': at least one version must be available under the version "
                                    "policy of model '" +
                                    name + "': "),
              0u)
        << status.message();
  }
  AddModel("o", {1}, "backend: 'b' version_policy { specific { versions: [ -1, 1 ] } }");
  EXPECT_TRUE(repository_.Load("o", {}).ok());
}

TEST_F(ModelRepositoryTest, UnknownNamesAreNotFound) {
  EXPECT_EQ(repository_.Load("nosuch", {}).code(), StatusCode::kNotFound);
  EXPECT_EQ(repository_.Unload("nosuch", false).code(), StatusCode::kNotFound);
  AddModel("known");
  EXPECT_TRUE(repository_.Unload("known", false).ok());
}

TEST_F(ModelRepositoryTest, PollFollowsTheDisk) {
  AddModel("old");
  AddModel("kept");
  ASSERT_TRUE(repository_.LoadAll().ok());
  std::filesystem::remove_all(root_ / "repo/old");
  AddModel("fresh");
  Write("repo/kept/1/model.bin", "changed");
  ASSERT_TRUE(repository_.Poll().ok());
  EXPECT_EQ(Index(true), "fresh:1 READY; kept:1 READY");
  EXPECT_GE(Find("kept")->serial, 3);
  const size_t num_loads = loader_.order.size();
  ASSERT_TRUE(repository_.Poll().ok());
  EXPECT_EQ(loader_.order.size(), num_loads);
}

// What was missing may lie outside of the model's folder: a backend, memory.
TEST_F(ModelRepositoryTest, EachPollTriesAgainWhatDoesNotServeAsItLies) {
  AddModel("new");
  AddModel("served");
  loader_.Fail("new:1", InternalError("no backend"));
  EXPECT_FALSE(repository_.LoadAll().ok());
  Write("repo/served/1/model.bin", "changed");
  loader_.Fail("served:1", InternalError("no memory"));
  EXPECT_FALSE(repository_.Poll().ok());
  EXPECT_FALSE(repository_.Poll().ok());
  EXPECT_EQ(Index(true), "served:1 READY");
  EXPECT_EQ(loader_.order.size(), 6U);
  loader_.Heal();
  EXPECT_TRUE(repository_.Poll().ok());
  EXPECT_EQ(Index(true), "new:1 READY; served:1 READY");
  EXPECT_TRUE(repository_.Poll().ok());
  EXPECT_EQ(loader_.order.size(), 8U);
}

TEST_F(ModelRepositoryTest, UnloadAllEndsEverything) {
  AddModel("x");
  AddEnsemble("ens", {"x"});
  ASSERT_TRUE(repository_.LoadAll().ok());
  repository_.UnloadAll();
  EXPECT_TRUE(
      lifecycle_.WaitUntilGone(std::chrono::steady_clock::now() + std::chrono::seconds(10)));
  EXPECT_EQ(Index(true), "");
}

}  // namespace
}  // namespace nereid
