// Several models together: start-up, ensembles and their steps, the index, polling.
#include "host/core/repository/model_repository.h"

#include <algorithm>
#include <future>

#include "tests/host/core/repository/fake_models.h"

namespace nereid::core {
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

TEST_F(ModelRepositoryTest, LoadsIndependentModelsInParallel) {
  for (const char* name : {"a", "b", "c"}) {
    AddModel(name);
    loader_.BlockLoad(name);
  }
  auto load = std::async(std::launch::async, [&] { return repository_.LoadAll(); });
  loader_.WaitForLoads(3);
  for (const char* name : {"a", "b", "c"}) loader_.UnblockLoad(name);
  EXPECT_TRUE(load.get().ok());
  EXPECT_EQ(loader_.max_running, 3);
}

TEST_F(ModelRepositoryTest, FailedModelDoesNotAffectOthers) {
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

TEST_F(ModelRepositoryTest, IndexShowsConfigurationErrors) {
  AddModel("typo", {1}, "backend: 'b' max_batch_sizes: 1");
  EXPECT_FALSE(repository_.Load("typo", {}).ok());
  EXPECT_NE(Index().find("typo:1 UNAVAILABLE (failed to load 'typo', failed to poll from model "
                         "repository: "),
            std::string::npos)
      << Index();
}

TEST_F(ModelRepositoryTest, ErrorNamesAMissingStep) {
  AddEnsemble("ens", {"nosuch"});
  const Status status = repository_.Load("ens", {});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArg);
  EXPECT_EQ(status.message().substr(0, 116),
            "load failed for model 'ens': ensemble ens contains models that are not available or "
            "ambiguous: nosuch; failed to loa");
}

TEST_F(ModelRepositoryTest, RefusesCycles) {
  AddEnsemble("a", {"b"});
  AddEnsemble("b", {"a"});
  const std::string message = repository_.LoadAll().message();
  EXPECT_NE(message.find("'a': circular dependency between ensembles: a -> ... -> b -> a"),
            std::string::npos)
      << message;
}

TEST_F(ModelRepositoryTest, RefusesANameThatIsInTwoRepositories) {
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

TEST_F(ModelRepositoryTest, MappedNameReplacesTheConfiguredName) {
  AddModel("folder", {1}, "name: 'folder' backend: 'b'", "other");
  ASSERT_TRUE(repository_.Register({repo("other"), {{"folder", "served"}}}).ok());
  const Status status = repository_.Load("served", {});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(Find("served")->config.name, "served");
  AddModel("wrong", {1}, "name: 'folder' backend: 'b'");
  EXPECT_FALSE(repository_.Load("wrong", {}).ok());
}

TEST_F(ModelRepositoryTest, LoadingAnEnsembleLoadsItsSteps) {
  AddModel("x");
  AddModel("unused");
  AddEnsemble("ens", {"x"});
  ASSERT_TRUE(repository_.Load("ens", {}).ok());
  EXPECT_EQ(Index(), "ens:1 READY; unused; x:1 READY");
}

TEST_F(ModelRepositoryTest, LoadingAnEnsembleReloadsChangedSteps) {
  AddModel("x");
  AddModel("y");
  AddEnsemble("inner", {"x", "y"});
  AddEnsemble("outer", {"inner"});
  ASSERT_TRUE(repository_.Load("outer", {}).ok());
  loader_.order.clear();
  Write("repo/x/1/model.bin", "changed");
  Write("repo/y/config.pbtxt", "broken {{{");
  ASSERT_TRUE(repository_.Load("outer", {}).ok());
  EXPECT_EQ(loader_.order, (std::vector<std::string>{"x:1", "inner:1", "outer:1"}));
  EXPECT_EQ(Index(true), "inner:1 READY; outer:1 READY; x:1 READY; y:1 READY");
}

TEST_F(ModelRepositoryTest, LoadFailsIfAnEnsembleDoesNotFitItsNewStep) {
  AddModel("x");
  AddEnsemble("ens", {"x"});
  ASSERT_TRUE(repository_.Load("ens", {}).ok());
  AddModel("x", {1, 2});
  loader_.Fail("ens:1", InvalidArgError("does not fit"));
  EXPECT_EQ(repository_.Load("ens", {}).message(),
            "load failed for model 'ens': version 1 is at UNAVAILABLE state: Invalid argument: "
            "does not fit;");
}

TEST_F(ModelRepositoryTest, UnloadingAStepUnloadsTheEnsemblesThatCallIt) {
  AddModel("x");
  AddEnsemble("ens", {"x"});
  ASSERT_TRUE(repository_.LoadAll().ok());
  ASSERT_TRUE(repository_.Unload("x", false).ok());
  EXPECT_EQ(Index(), "ens:1 UNAVAILABLE (unloaded); x:1 UNAVAILABLE (unloaded)");
}

// As in Triton, an ensemble that a client unloaded stays unloaded. An ensemble that was unloaded or
// failed with a step is loaded again with the step.
TEST_F(ModelRepositoryTest, LoadingAStepReloadsWaitingEnsembles) {
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

TEST_F(ModelRepositoryTest, LoadsAnEnsembleWhenItsMissingStepIsLoaded) {
  AddEnsemble("ens", {"late"});
  EXPECT_FALSE(repository_.Load("ens", {}).ok());
  AddModel("late");
  ASSERT_TRUE(repository_.Load("late", {}).ok());
  EXPECT_EQ(Index(), "ens:1 READY; late:1 READY");
}

TEST_F(ModelRepositoryTest, UnloadsAnEnsembleThatDoesNotFitItsNewStep) {
  AddModel("x");
  AddEnsemble("ens", {"x"});
  ASSERT_TRUE(repository_.LoadAll().ok());
  const int serial = Find("ens")->serial;
  AddModel("x", {1, 2});
  loader_.Fail("ens:1", InvalidArgError("does not fit"));
  ASSERT_TRUE(repository_.Load("x", {}).ok());
  EXPECT_EQ(Index(true), "x:2 READY");
  loader_.ClearFailures();
  AddModel("x", {1, 2, 3});
  ASSERT_TRUE(repository_.Load("x", {}).ok());
  EXPECT_EQ(Index(true), "ens:1 READY; x:3 READY");
  EXPECT_GT(Find("ens")->serial, serial);
}

TEST_F(ModelRepositoryTest, RefusesAReloadThatCreatesACycle) {
  AddModel("b");
  AddEnsemble("a", {"b"});
  ASSERT_TRUE(repository_.LoadAll().ok());
  const auto old = Find("b");
  const Parameter config = EnsembleOver("a");
  EXPECT_EQ(repository_.Load("b", {&config}).message(),
            "load failed for model 'b': circular dependency between ensembles: b -> ... -> a -> b");
  EXPECT_EQ(Index(), "a:1 READY; b:1 READY");
  EXPECT_EQ(Find("b"), old);
  EXPECT_TRUE(repository_.AllServing());
  const int serial = Find("a")->serial;
  AddModel("b", {1, 2});
  ASSERT_TRUE(repository_.Load("b", {}).ok());
  EXPECT_GT(Find("a")->serial, serial) << "it is reloaded with its step as before";
  EXPECT_EQ(Index(true), "a:1 READY; b:2 READY");
}

TEST_F(ModelRepositoryTest, PollRefusesAChangeThatCreatesACycle) {
  AddModel("c");
  AddEnsemble("b", {"c"});
  AddEnsemble("a", {"b"});
  ASSERT_TRUE(repository_.LoadAll().ok());
  AddEnsemble("c", {"a"});
  for (int poll = 0; poll < 2; ++poll) {
    const std::string message = repository_.Poll().message();
    EXPECT_NE(message.find("'c': circular dependency between ensembles"), std::string::npos)
        << message;
    EXPECT_EQ(Index(true), "a:1 READY; b:1 READY; c:1 READY");
  }
}

TEST_F(ModelRepositoryTest, ReloadsTheServingPlanAfterAFailedReload) {
  AddModel("s");
  AddEnsemble("e", {"s"});
  Write("repo/e/1/model.bin", "x");  // for the plain model that replaces it below
  ASSERT_TRUE(repository_.LoadAll().ok());
  const Parameter bad = EnsembleOver("nosuch");
  EXPECT_FALSE(repository_.Load("e", {&bad}).ok());
  AddModel("s", {1, 2});
  int serial = Find("e")->serial;
  ASSERT_TRUE(repository_.Load("s", {}).ok());
  EXPECT_EQ(Index(true), "e:1 READY; s:2 READY");
  ASSERT_NE(Find("e"), nullptr);
  EXPECT_GT(Find("e")->serial, serial);

  const Parameter plain("config", R"({"backend": "b"})");
  loader_.Fail("e:1", InternalError("no memory"));
  EXPECT_FALSE(repository_.Load("e", {&plain}).ok());
  loader_.ClearFailures();
  AddModel("s", {1, 2, 3});
  serial = Find("e")->serial;
  ASSERT_TRUE(repository_.Load("s", {}).ok());
  EXPECT_GT(Find("e")->serial, serial);

  ASSERT_TRUE(repository_.Load("e", {&plain}).ok());
  AddModel("s", {1, 2, 3, 4});
  serial = Find("e")->serial;
  ASSERT_TRUE(repository_.Load("s", {}).ok());
  EXPECT_EQ(Find("e")->serial, serial) << "it is no longer an ensemble";
}

TEST_F(ModelRepositoryTest, DoesNotReloadARemovedEnsemble) {
  AddModel("s");
  AddEnsemble("e", {"s"});
  ASSERT_TRUE(repository_.LoadAll().ok());
  std::filesystem::create_directories(root_ / "other");
  std::filesystem::rename(root_ / "repo/e", root_ / "other/e");
  const int serial = Find("e")->serial;
  AddModel("s", {1, 2});
  ASSERT_TRUE(repository_.Load("s", {}).ok());
  ASSERT_NE(Find("e"), nullptr);
  EXPECT_GT(Find("e")->serial, serial) << "a serving ensemble is reloaded with the new step";
  ASSERT_TRUE(repository_.Unload("s", false).ok());
  ASSERT_TRUE(repository_.Load("s", {}).ok());
  EXPECT_EQ(Index(true), "s:2 READY");
  ASSERT_TRUE(repository_.Register({repo("other"), {}}).ok());
  AddModel("s", {1, 2, 3});
  ASSERT_TRUE(repository_.Load("s", {}).ok());
  EXPECT_EQ(Index(true), "s:3 READY") << "its request was erased";
  ASSERT_TRUE(repository_.Load("e", {}).ok());
  ASSERT_TRUE(repository_.Unload("s", false).ok());
  ASSERT_TRUE(repository_.Unregister(repo("other")).ok());
  ASSERT_TRUE(repository_.Load("s", {}).ok());
  EXPECT_EQ(Index(true), "s:3 READY");
}

TEST_F(ModelRepositoryTest, ReloadsAnEnsembleFromTheFilesOfALoadCall) {
  AddModel("s");
  ASSERT_TRUE(repository_.LoadAll().ok());
  const Parameter config = EnsembleOver("s");
  const Parameter file("file:1/x", Parameter::Bytes{"x", 1});
  ASSERT_TRUE(repository_.Load("e", {&config, &file}).ok());
  ASSERT_TRUE(repository_.Unload("s", false).ok());
  EXPECT_EQ(Index(true), "");
  ASSERT_TRUE(repository_.Load("s", {}).ok());
  EXPECT_EQ(Index(true), "e:1 READY; s:1 READY");
}

TEST_F(ModelRepositoryTest, ReportsWhyAnEnsembleCannotBeReloaded) {
  AddModel("x");
  AddEnsemble("ens", {"x"});
  ASSERT_TRUE(repository_.LoadAll().ok());
  AddModel("x", {1, 2});
  loader_.Fail("ens:1", InvalidArgError("does not fit"));
  const std::string reason =
      "load failed for model 'ens': version 1 is at UNAVAILABLE state: Invalid argument: does not "
      "fit;";
  EXPECT_EQ(repository_.Poll().message(), "failed to load all models; " + reason);
  EXPECT_NE(Index().find("ens:1 UNAVAILABLE (" + reason + ")"), std::string::npos) << Index();
  EXPECT_TRUE(repository_.AllServing()) << "ensembles do not affect readiness";
}

TEST_F(ModelRepositoryTest, ServerStaysReadyAfterALoadThatFailsInPlanning) {
  AddModel("m");
  AddEnsemble("over_m", {"m"});
  ASSERT_TRUE(repository_.LoadAll().ok());
  AddEnsemble("over_nothing", {"nosuch"});
  AddModel("typo", {1}, "backend: 'b' max_batch_sizes: 1");
  AddEnsemble("over_typo", {"typo"});
  AddModel("agent", {1}, "backend: 'b' model_repository_agents { agents { name: 'nosuch' } }");
  AddEnsemble("itself", {"itself"});
  for (const char* name : {"over_nothing", "over_typo", "agent", "itself"}) {
    EXPECT_FALSE(repository_.Load(name, {}).ok());
    EXPECT_TRUE(repository_.AllServing()) << name;
  }
  EXPECT_EQ(loader_.order.size(), 2U);
  const auto request = Find("m");
  ASSERT_TRUE(repository_.Unload("m", false).ok());
  AddModel("m", {}, "backend: 'b' max_batch_sizes: 1");
  EXPECT_FALSE(repository_.Load("m", {}).ok());
  EXPECT_TRUE(repository_.AllServing()) << "it was unloading";
  EXPECT_FALSE(repository_.Poll().ok());
  EXPECT_TRUE(repository_.AllServing()) << "invalid configurations do not affect readiness";
  loader_.Fail("late:1", InternalError("broken"));
  AddModel("late");
  EXPECT_FALSE(repository_.Poll().ok());
  EXPECT_FALSE(repository_.AllServing());
}

TEST_F(ModelRepositoryTest, ServerIsReadyWithoutEnsemblesThatLackSteps) {
  AddModel("m");
  AddModel("typo", {1}, "backend: 'b' max_batch_sizes: 1");
  AddEnsemble("over_typo", {"typo"});
  AddEnsemble("itself", {"itself"});
  EXPECT_FALSE(repository_.LoadAll().ok());
  EXPECT_EQ(Index(true), "m:1 READY");
  EXPECT_TRUE(repository_.AllServing());
}

// Blocks the load of the ensemble `late`, while the ensemble `early`, which calls the same step,
// fails to reload.
class FailedReloadOfCallerTest : public RepositoryTest {
 protected:
  void SetUp() override {
    AddModel("x");
    AddEnsemble("early", {"x"});
    AddEnsemble("late", {"x"});
    ASSERT_TRUE(repository_.LoadAll().ok());
    AddModel("x", {1, 2});
    loader_.Fail("early:1", InternalError("broken"));
    loader_.BlockLoad("late");
    load_ = std::async(std::launch::async, [&] { return repository_.Load("x", {}); });
    loader_.WaitForLoads(6);
    ASSERT_TRUE(lifecycle_.WaitUntilIdle("early").ok());
    loader_.ClearFailures();
  }
  void Finish() {
    loader_.UnblockLoad("late");
    EXPECT_TRUE(load_.get().ok());
  }
  void TearDown() override { loader_.UnblockLoad("late"); }
  std::future<Status> load_;
};

TEST_F(FailedReloadOfCallerTest, KeepsAConcurrentLoadServing) {
  Write("repo/early/1/model.bin", "x");
  const Parameter config("config", std::string(R"({"backend": "b"})"));
  ASSERT_TRUE(repository_.Load("early", {&config}).ok());
  Finish();
  EXPECT_EQ(Index(true), "early:1 READY; late:1 READY; x:2 READY");
}

TEST_F(FailedReloadOfCallerTest, ConcurrentUnloadDoesNotAffectReadiness) {
  ASSERT_TRUE(repository_.Unload("early", false).ok());
  Finish();
  EXPECT_EQ(Index(true), "late:1 READY; x:2 READY");
  EXPECT_TRUE(repository_.AllServing());
}

TEST_F(FailedReloadOfCallerTest, UnloadsTheCaller) {
  Finish();
  EXPECT_EQ(Index(true), "late:1 READY; x:2 READY");
}

TEST_F(ModelRepositoryTest, UnloadDuringALoadUnloadsTheSteps) {
  AddModel("x");
  AddEnsemble("e", {"x"});
  loader_.BlockLoad("e");
  auto load = std::async(std::launch::async, [&] { return repository_.Load("e", {}); });
  loader_.WaitForLoads(2);
  auto unload = std::async(std::launch::async, [&] { return repository_.Unload("e", true); });
  EXPECT_EQ(unload.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout)
      << "it waits for the load";
  loader_.UnblockLoad("e");
  EXPECT_TRUE(load.get().ok());
  EXPECT_TRUE(unload.get().ok());
  EXPECT_EQ(Index(true), "");
}

TEST_F(ModelRepositoryTest, RefusesAConflictingNameMapping) {
  AddModel("folder", {1}, "backend: 'b'", "second");
  AddModel("folder", {1}, "backend: 'b'", "third");
  ASSERT_TRUE(repository_.Register({repo("second"), {{"folder", "n"}}}).ok());
  const Status status = repository_.Register({repo("third"), {{"folder", "n"}}});
  EXPECT_EQ(status.code(), StatusCode::kAlreadyExists);
  EXPECT_NE(status.message().find("there is a conflicting mapping for 'n'"), std::string::npos)
      << status.message();
  EXPECT_TRUE(repository_.Load("n", {}).ok());
}

TEST_F(ModelRepositoryTest, EnsembleUnloadedDuringReloadsStaysUnloaded) {
  AddModel("x");
  AddEnsemble("inner", {"x"});
  AddEnsemble("outer", {"x", "inner"});
  ASSERT_TRUE(repository_.LoadAll().ok());
  AddModel("x", {1, 2});
  loader_.BlockLoad("inner");
  auto load = std::async(std::launch::async, [&] { return repository_.Load("x", {}); });
  loader_.WaitForLoads(5);
  ASSERT_TRUE(repository_.Unload("outer", false).ok());
  loader_.UnblockLoad("inner");
  EXPECT_TRUE(load.get().ok());
  EXPECT_EQ(Index(true), "inner:1 READY; x:2 READY");
  AddModel("x", {1, 2, 3});
  ASSERT_TRUE(repository_.Load("x", {}).ok());
  EXPECT_EQ(Index(true), "inner:1 READY; x:3 READY");
  EXPECT_TRUE(repository_.AllServing());
}

TEST_F(ModelRepositoryTest, ErrorNamesTheVersionPolicy) {
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

TEST_F(ModelRepositoryTest, ServerIsReadyWithoutModelsWithInvalidConfiguration) {
  AddModel("good");
  AddModel("typo", {1}, "backend: 'b' max_batch_sizes: 1");
  EXPECT_FALSE(repository_.LoadAll().ok());
  EXPECT_TRUE(repository_.AllServing());
  AddModel("none", {});
  EXPECT_FALSE(repository_.Poll().ok());
  EXPECT_FALSE(repository_.AllServing());
}

TEST_F(ModelRepositoryTest, ModelWithoutVersionsIsKnown) {
  AddModel("m", {});
  AddModel("typo", {1}, "backend: 'b' max_batch_sizes: 1");
  EXPECT_FALSE(repository_.LoadAll().ok());
  EXPECT_EQ(table_.Find("m", ModelTable::kLatest).status().message(),
            "Request for unknown model: 'm' has no available versions");
  EXPECT_EQ(table_.Find("typo", ModelTable::kLatest).status().message(),
            "Request for unknown model: 'typo' is not found");
}

TEST_F(ModelRepositoryTest, RefusesADirectoryWithoutARequiredConfiguration) {
  Write("repo/m/1/model.bin", "x");
  ModelRepository strict({{repo(), {}}}, {.config_name = "", .needs_config = true}, &lifecycle_);
  const Status status = strict.Load("m", {});
  EXPECT_NE(status.message().find(StrCat("failed to open text file for read ", repo(),
                                         "/m/config.pbtxt: No such file or directory")),
            std::string::npos)
      << status.message();
  EXPECT_EQ(Find("m"), nullptr);
  AddModel("m");
  EXPECT_TRUE(strict.Load("m", {}).ok());
}

TEST_F(ModelRepositoryTest, PollUnloadsAnAmbiguousName) {
  AddModel("m");
  AddModel("other", {1}, "backend: 'b'", "second");
  ASSERT_TRUE(repository_.Register({repo("second"), {}}).ok());
  ASSERT_TRUE(repository_.LoadAll().ok());
  AddModel("m", {1, 2}, "backend: 'b'", "second");
  EXPECT_FALSE(repository_.Poll().ok());
  EXPECT_EQ(Index(true), "other:1 READY");
  EXPECT_TRUE(repository_.AllServing());
  std::filesystem::remove_all(root_ / "repo/m");
  ASSERT_TRUE(repository_.Poll().ok());
  EXPECT_EQ(Index(true), "m:2 READY; other:1 READY");
}

TEST_F(ModelRepositoryTest, UnloadingAnUnknownModelIsNotFound) {
  EXPECT_EQ(repository_.Load("nosuch", {}).code(), StatusCode::kNotFound);
  const Status status = repository_.Unload("nosuch", false);
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "failed to unload 'nosuch': no model of this name is known");
  EXPECT_EQ(Index(), "");
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

// The cause of a failure may be outside of the model's directory, such as a missing backend or
// memory.
TEST_F(ModelRepositoryTest, EachPollRetriesFailedLoads) {
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
  loader_.ClearFailures();
  EXPECT_TRUE(repository_.Poll().ok());
  EXPECT_EQ(Index(true), "new:1 READY; served:1 READY");
  EXPECT_TRUE(repository_.Poll().ok());
  EXPECT_EQ(loader_.order.size(), 8U);
}

TEST_F(ModelRepositoryTest, UnloadAllUnloadsEveryModel) {
  AddModel("x");
  AddEnsemble("ens", {"x"});
  ASSERT_TRUE(repository_.LoadAll().ok());
  repository_.UnloadAll();
  EXPECT_TRUE(
      lifecycle_.WaitUntilDestroyed(std::chrono::steady_clock::now() + std::chrono::seconds(10)));
  EXPECT_EQ(Index(true), "");
}

}  // namespace
}  // namespace nereid::core
