// Loads that do not end: they must not keep other models from being loaded and unloaded.
#include <future>

#include "tests/host/core/repository/fake_models.h"

namespace nereid::core {
namespace {

// One load at a time, and two more that are stalled. Each load is stalled as soon as it begins.
class StalledLoadsTest : public RepositoryTest {
 protected:
  StalledLoadsTest() {
    for (const char* name : {"a", "b", "c"}) {
      AddModel(name);
      loader_.BlockLoad(name);
    }
    AddModel("good");
  }
  ~StalledLoadsTest() override {
    for (const char* name : {"a", "b", "c"}) loader_.UnblockLoad(name);
    for (std::future<Status>& load : loads_) EXPECT_TRUE(load.get().ok());
  }

  // Returns once the load has begun.
  void BeginLoad(const std::string& name) {
    loads_.push_back(
        std::async(std::launch::async, [this, name] { return repository_.Load(name, {}); }));
    loader_.WaitForLoads(loads_.size());
  }

  static constexpr LoadLimits kLimits = {std::chrono::milliseconds(0), 2};
  ModelLifecycle lifecycle_{&table_, &loader_, 1, 0, kLimits};
  ModelRepository repository_{{{repo(), {}}}, {}, &lifecycle_};
  std::vector<std::future<Status>> loads_;
};

TEST_F(StalledLoadsTest, OtherModelsAreLoadedAndUnloaded) {
  BeginLoad("a");
  BeginLoad("b");
  EXPECT_TRUE(repository_.Load("good", {}).ok());
  EXPECT_NE(Find("good"), nullptr);
  EXPECT_TRUE(repository_.Unload("good", false).ok());
  EXPECT_EQ(Find("good"), nullptr);
}

TEST_F(StalledLoadsTest, LoadsBeyondTheLimitAreRefusedWithTheNamesOfThoseThatHang) {
  for (const char* name : {"a", "b", "c"}) BeginLoad(name);
  const Status status = repository_.Load("good", {});
  EXPECT_NE(status.message().find(
                "no thread is left to load models: 3 loads have not ended: 'a' version 1 for 0 s, "
                "'b' version 1 for 0 s, 'c' version 1 for 0 s"),
            std::string::npos)
      << status.message();
  loader_.UnblockLoad("a");
  EXPECT_TRUE(loads_[0].get().ok());
  loads_.erase(loads_.begin());
  EXPECT_TRUE(repository_.Load("good", {}).ok());
}

TEST_F(StalledLoadsTest, LoadAndUnloadOfTheSameModelSayThatItIsBeingLoaded) {
  BeginLoad("a");
  const std::string reason = "model 'a' is being loaded: its load began 0 s ago and has not ended";
  const Status load = repository_.Load("a", {});
  EXPECT_EQ(load.code(), StatusCode::kUnavailable);
  EXPECT_EQ(load.message(), reason);
  const Status unload = repository_.Unload("a", false);
  EXPECT_EQ(unload.code(), StatusCode::kUnavailable);
  EXPECT_EQ(unload.message(), "failed to unload 'a': " + reason);
}

TEST_F(StalledLoadsTest, PollLoadsTheOtherModels) {
  AddEnsemble("over_a", {"a"});
  BeginLoad("a");
  for (const char* name : {"b", "c"}) std::filesystem::remove_all(root_ / "repo" / name);
  EXPECT_TRUE(repository_.Poll().ok());
  EXPECT_NE(Find("good"), nullptr);
  EXPECT_EQ(Find("over_a"), nullptr);
}

TEST_F(StalledLoadsTest, UnloadOfAllModelsLeavesThemAlone) {
  ASSERT_TRUE(repository_.Load("good", {}).ok());
  loads_.push_back(std::async(std::launch::async, [this] { return repository_.Load("a", {}); }));
  loader_.WaitForLoads(2);
  repository_.UnloadAll();
  EXPECT_EQ(Find("good"), nullptr);
  EXPECT_TRUE(lifecycle_.OnlyLoadsAreLeft());
  EXPECT_TRUE(lifecycle_.HasLoads());
  EXPECT_EQ(lifecycle_.LiveModels(),
            std::vector<std::string>{"'a' (its load, begun 0 s ago, was abandoned)"});
}

// Without stalled loads, a load beyond the number of threads waits until another one has ended.
TEST_F(RepositoryTest, AQueuedLoadStartsWhenAThreadIsFree) {
  ModelLifecycle lifecycle(&table_, &loader_, 1, 0);
  ModelRepository repository({{repo(), {}}}, {}, &lifecycle);
  for (const char* name : {"a", "b", "c"}) AddModel(name);
  loader_.BlockLoad("a");
  auto first = std::async(std::launch::async, [&] { return repository.Load("a", {}); });
  loader_.WaitForLoads(1);
  auto others = std::async(std::launch::async, [&] { return repository.LoadNamed({"b", "c"}); });
  loader_.UnblockLoad("a");
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(others.get().ok());
  EXPECT_EQ(loader_.max_running, 1);
}

}  // namespace
}  // namespace nereid::core
