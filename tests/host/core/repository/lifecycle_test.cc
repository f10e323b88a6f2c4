// States, reloads and failures of single models.
#include <future>

#include "tests/host/core/repository/fake_models.h"

namespace nereid::core {
namespace {

using LifecycleTest = RepositoryTest;
using std::chrono::steady_clock;

TEST_F(LifecycleTest, NoVersionServesIfOneFails) {
  AddModel("m", {1, 2}, "backend: 'b' version_policy { all { } }");
  loader_.Fail("m:2", UnavailableError("no room"));
  const Status status = repository_.Load("m", {});
  EXPECT_EQ(status.message(),
            "load failed for model 'm': version 2 is at UNAVAILABLE state: Unavailable: no room;");
  EXPECT_EQ(table_.Find("m", 1).status().message(),
            "Request for unknown model: 'm' version 1 is not at ready state");
  EXPECT_EQ(Index(),
            "m:1 UNAVAILABLE (another version failed to load); "
            "m:2 UNAVAILABLE (Unavailable: no room)");
  EXPECT_EQ(lifecycle_.num_alive(), 0u);
  loader_.ClearFailures();
  ASSERT_TRUE(repository_.Load("m", {}).ok());
  EXPECT_EQ(Index(), "m:1 READY; m:2 READY");
}

TEST_F(LifecycleTest, FailedReloadKeepsThePreviousModel) {
  AddModel("m");
  ASSERT_TRUE(repository_.Load("m", {}).ok());
  const auto old = Find("m");
  Write("repo/m/1/model.bin", "changed");
  loader_.Fail("m:1", InternalError("broken"));
  EXPECT_FALSE(repository_.Load("m", {}).ok());
  EXPECT_EQ(Find("m"), old);
  EXPECT_EQ(Index(), "m:1 READY");
  loader_.ClearFailures();
  EXPECT_TRUE(repository_.Load("m", {}).ok());
  EXPECT_NE(Find("m"), old);
}

TEST_F(LifecycleTest, ReloadReplacesTheModelWithoutAGap) {
  AddModel("m");
  ASSERT_TRUE(repository_.Load("m", {}).ok());
  Write("repo/m/1/model.bin", "changed");
  loader_.BlockLoad("m");
  auto reload = std::async(std::launch::async, [&] { return repository_.Load("m", {}); });
  loader_.WaitForLoads(2);
  EXPECT_EQ(Find("m")->serial, 1);
  EXPECT_EQ(Index(), "m:1 READY");
  loader_.UnblockLoad("m");
  EXPECT_TRUE(reload.get().ok());
  EXPECT_EQ(Find("m")->serial, 2);
  EXPECT_EQ(lifecycle_.num_alive(), 1u);
}

TEST_F(LifecycleTest, LatestPolicyReplacesTheVersion) {
  AddModel("m");
  ASSERT_TRUE(repository_.Load("m", {}).ok());
  const auto user = Find("m");  // as a request in flight would
  AddModel("m", {1, 2});
  ASSERT_TRUE(repository_.Load("m", {}).ok());
  EXPECT_EQ(Index(), "m:1 UNLOADING; m:2 READY");
}

TEST_F(LifecycleTest, DoesNotReloadAnUnchangedModel) {
  AddModel("m");
  ASSERT_TRUE(repository_.Load("m", {}).ok());
  ASSERT_TRUE(repository_.Load("m", {}).ok());
  EXPECT_EQ(loader_.order.size(), 1u);
}

TEST_F(LifecycleTest, ChangesInstanceGroupsInPlace) {
  const auto config = [](int count, const char* more = "") {
    return StrCat("backend: 'b' instance_group [ { count: ", count, " } ] ", more);
  };
  AddModel("m", {1, 2}, config(1, "version_policy { all { } }"));
  ASSERT_TRUE(repository_.Load("m", {}).ok());
  const auto first = Find("m");
  AddModel("m", {}, config(2, "version_policy { all { } }"));
  ASSERT_TRUE(repository_.Load("m", {}).ok());
  std::sort(loader_.updates.begin(), loader_.updates.end());  // versions are loaded at once
  EXPECT_EQ(loader_.updates, (std::vector<std::string>{"m:1", "m:2"}));
  EXPECT_EQ(loader_.order.size(), 2u);
  EXPECT_EQ(Find("m"), first);
  EXPECT_EQ(first->config.instance_groups[0].count, 2);
  EXPECT_EQ(Index(), "m:1 READY; m:2 READY");

  const std::string override_text =
      R"({"backend": "b", "version_policy": {"all": {}}, "instance_group": [{"count": 3}]})";
  const Parameter override_config("config", override_text);
  ASSERT_TRUE(repository_.Load("m", {&override_config}).ok());
  EXPECT_EQ(loader_.updates.size(), 4u);

  loader_.update_error = UnavailableError("no room");
  AddModel("m", {}, config(4, "version_policy { all { } }"));
  EXPECT_EQ(repository_.Load("m", {}).message(),
            "load failed for model 'm': version 1 is at READY state: Unavailable: no room;"
            "version 2 is at READY state: Unavailable: no room;");
  EXPECT_EQ(Index(), "m:1 READY; m:2 READY");
  loader_.update_error = Status::Ok();
  ASSERT_TRUE(repository_.Load("m", {}).ok());
  EXPECT_EQ(loader_.updates.size(), 8u) << "the update is retried";
  EXPECT_EQ(loader_.order.size(), 2u);
}

TEST_F(LifecycleTest, ReloadsWhenMoreThanInstanceGroupsChange) {
  AddModel("m", {1}, "backend: 'b' instance_group [ { count: 1 } ]");
  ASSERT_TRUE(repository_.Load("m", {}).ok());
  AddModel("m", {}, "backend: 'b' max_batch_size: 2 instance_group [ { count: 2 } ]");
  ASSERT_TRUE(repository_.Load("m", {}).ok());
  AddModel("m", {}, "backend: 'b' max_batch_size: 2 instance_group [ { count: 3 } ]");
  Write("repo/m/1/model.bin", "changed too");
  ASSERT_TRUE(repository_.Load("m", {}).ok());
  EXPECT_TRUE(loader_.updates.empty());
  EXPECT_EQ(loader_.order, (std::vector<std::string>{"m:1", "m:1", "m:1"}));
}

class PartialReloadTest : public LifecycleTest {
 protected:
  PartialReloadTest() {
    AddModel("m", {1, 2}, kConfig);
    EXPECT_TRUE(repository_.Load("m", {}).ok());
    first_ = Find("m", 1);
    loader_.order.clear();
  }

  static constexpr char kConfig[] = "backend: 'b' version_policy { all { } }";
  std::shared_ptr<Model> first_;
};

TEST_F(PartialReloadTest, LoadsOnlyTheAddedVersion) {
  Write("repo/m/3/model.bin", "x");
  ASSERT_TRUE(repository_.Load("m", {}).ok());
  EXPECT_EQ(loader_.order, std::vector<std::string>{"m:3"});
  EXPECT_EQ(Find("m", 1), first_);
  EXPECT_EQ(Index(), "m:1 READY; m:2 READY; m:3 READY");
}

TEST_F(PartialReloadTest, LoadsOnlyTheChangedVersion) {
  Write("repo/m/2/model.bin", "changed");
  ASSERT_TRUE(repository_.Load("m", {}).ok());
  EXPECT_EQ(loader_.order, std::vector<std::string>{"m:2"});
  EXPECT_EQ(Find("m", 1), first_);
}

TEST_F(PartialReloadTest, UnloadsOnlyTheRemovedVersion) {
  std::filesystem::remove_all(root_ / "repo/m/2");
  ASSERT_TRUE(repository_.Load("m", {}).ok());
  EXPECT_TRUE(loader_.order.empty());
  EXPECT_EQ(Find("m", 1), first_);
  EXPECT_EQ(Index(), "m:1 READY; m:2 UNAVAILABLE (unloaded)");
}

TEST_F(PartialReloadTest, PolicyChangeDoesNotReloadServingVersions) {
  AddModel("m", {}, "backend: 'b' version_policy { specific { versions: [ 1 ] } }");
  ASSERT_TRUE(repository_.Load("m", {}).ok());
  EXPECT_EQ(Index(), "m:1 READY; m:2 UNAVAILABLE (unloaded)");
  AddModel("m", {}, kConfig);
  ASSERT_TRUE(repository_.Load("m", {}).ok());
  EXPECT_EQ(loader_.order, std::vector<std::string>{"m:2"});
  EXPECT_EQ(Find("m", 1), first_);
}

TEST_F(PartialReloadTest, SharedFileReloadsAllVersions) {
  Write("repo/m/labels.txt", "cat");
  ASSERT_TRUE(repository_.Load("m", {}).ok());
  EXPECT_EQ(loader_.order.size(), 2u);
  EXPECT_NE(Find("m", 1), first_);
}

TEST_F(PartialReloadTest, ChangesInstancesInPlaceWhenAVersionIsAdded) {
  AddModel("m", {3}, StrCat(kConfig, " instance_group [ { count: 3 } ]"));
  ASSERT_TRUE(repository_.Load("m", {}).ok());
  std::sort(loader_.updates.begin(), loader_.updates.end());
  EXPECT_EQ(loader_.updates, (std::vector<std::string>{"m:1", "m:2"}));
  EXPECT_EQ(loader_.order, std::vector<std::string>{"m:3"});
}

TEST_F(PartialReloadTest, FailedVersionDoesNotAffectOthersAndIsRetried) {
  Write("repo/m/3/model.bin", "x");
  loader_.Fail("m:3", InternalError("broken"));
  EXPECT_EQ(repository_.Load("m", {}).message(),
            "load failed for model 'm': version 3 is at UNAVAILABLE state: Internal: broken;");
  EXPECT_EQ(Index(), "m:1 READY; m:2 READY; m:3 UNAVAILABLE (Internal: broken)");
  EXPECT_EQ(Find("m", 1), first_);
  loader_.ClearFailures();
  ASSERT_TRUE(repository_.Poll().ok());
  EXPECT_EQ(loader_.order, (std::vector<std::string>{"m:3", "m:3"}));
  EXPECT_EQ(Find("m", 1), first_);
}

TEST_F(PartialReloadTest, ReloadsAnEnsembleWhenVersionsOfItsStepChange) {
  AddEnsemble("e", {"m"});
  ASSERT_TRUE(repository_.Load("e", {}).ok());
  Write("repo/m/3/model.bin", "x");
  ASSERT_TRUE(repository_.Load("m", {}).ok());
  EXPECT_EQ(loader_.order, (std::vector<std::string>{"e:1", "m:3", "e:1"}));
  std::filesystem::remove_all(root_ / "repo/m/3");
  ASSERT_TRUE(repository_.Load("m", {}).ok());
  EXPECT_EQ(loader_.order, (std::vector<std::string>{"e:1", "m:3", "e:1", "e:1"}));
}

TEST_F(LifecycleTest, StaysUnloadingUntilTheLastUserReleasesTheModel) {
  AddModel("m");
  ASSERT_TRUE(repository_.Load("m", {}).ok());
  auto user = Find("m");
  ASSERT_TRUE(repository_.Unload("m", false).ok());
  EXPECT_EQ(Find("m"), nullptr);
  EXPECT_EQ(Index(), "m:1 UNLOADING");
  EXPECT_FALSE(lifecycle_.WaitUntilDestroyed(steady_clock::now()));
  user.reset();
  EXPECT_TRUE(lifecycle_.WaitUntilDestroyed(steady_clock::now() + std::chrono::seconds(10)));
  EXPECT_EQ(Index(), "m:1 UNAVAILABLE (unloaded)");
}

TEST_F(LifecycleTest, OldModelObjectDoesNotMarkAReloadedModelUnloaded) {
  AddModel("m");
  ASSERT_TRUE(repository_.Load("m", {}).ok());
  auto user = Find("m");
  ASSERT_TRUE(repository_.Unload("m", false).ok());
  ASSERT_TRUE(repository_.Load("m", {}).ok());
  user.reset();
  EXPECT_EQ(Index(), "m:1 READY");
}

TEST_F(LifecycleTest, ReportsLoadingWhileItLoads) {
  AddModel("m");
  loader_.BlockLoad("m");
  auto load = std::async(std::launch::async, [&] { return repository_.LoadNamed({"m"}); });
  loader_.WaitForLoads(1);
  EXPECT_EQ(Index(), "m:1 LOADING");
  EXPECT_FALSE(repository_.AllServing());
  loader_.UnblockLoad("m");
  EXPECT_TRUE(load.get().ok());
  EXPECT_TRUE(repository_.AllServing());
}

TEST_F(LifecycleTest, SerializesLoadsOfOneModel) {
  AddModel("m");
  loader_.BlockLoad("m");
  auto first = std::async(std::launch::async, [&] { return repository_.Load("m", {}); });
  loader_.WaitForLoads(1);
  auto second = std::async(std::launch::async, [&] { return repository_.Load("m", {}); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(loader_.max_running, 1);
  loader_.UnblockLoad("m");
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(second.get().ok());
  EXPECT_EQ(loader_.max_running, 1);
}

TEST_F(LifecycleTest, RetriesAsConfigured) {
  ModelTable table;
  ModelLifecycle lifecycle(&table, &loader_, 1, 2);
  loader_.Fail("m:1", UnavailableError("later"));
  std::promise<Status> done;
  LoadPlan plan;
  plan.name = "m";
  plan.versions = {1};
  lifecycle.Load(plan, [&](ModelLifecycle::Outcome outcome) { done.set_value(outcome.status); });
  EXPECT_FALSE(done.get_future().get().ok());
  EXPECT_EQ(loader_.order.size(), 3u);
}

}  // namespace
}  // namespace nereid::core
