// Concurrent loads, unloads, polls, changes of directories and look-ups.
#include <random>
#include <thread>

#include "tests/host/core/repository/fake_models.h"

namespace nereid::core {
namespace {

class StormTest : public RepositoryTest {
 protected:
  StormTest() {
    AddModel("a", {1, 2}, kAllVersions);
    AddModel("b");
    for (const auto& [name, steps] : kEnsembles) AddEnsemble(name, steps);
  }

  const std::string& Any(std::mt19937& random) const { return kNames[random() % kNames.size()]; }

  void ActOnce(std::mt19937& random) {
    switch (random() % 8) {
      case 0:
      case 1:
      case 2:
        (void)repository_.Load(Any(random), {});
        return;
      case 3:
      case 4:
        (void)repository_.Unload(Any(random), random() % 2 == 0);
        return;
      case 5:
        (void)repository_.Poll();
        return;
      case 6:
        Write(StrCat("repo/a/", random() % 3 + 1, "/model.bin"), std::to_string(random()));
        return;
      default:
        AddModel("b", {1}, StrCat("backend: 'b' max_batch_size: ", random() % 4));
    }
  }

  // Describes ensembles that serve although one of their steps does not.
  std::string EnsemblesWithoutSteps() const {
    std::string text;
    for (const auto& [name, steps] : kEnsembles) {
      if (!lifecycle_.IsServing(name)) continue;
      for (const std::string& step : steps) {
        if (!lifecycle_.IsServing(step)) text += StrCat(name, " lacks ", step, "; ");
      }
    }
    return text;
  }

  static constexpr char kAllVersions[] = "backend: 'b' version_policy { all { } }";
  const std::map<std::string, std::vector<std::string>> kEnsembles = {
      {"inner", {"a"}}, {"outer", {"b", "inner"}}, {"other", {"a", "b"}}};
  const std::vector<std::string> kNames = {"a", "b", "inner", "outer", "other"};
};

TEST_F(StormTest, NoEnsembleIsLeftServingWithoutItsSteps) {
  constexpr int kNumRounds = 40, kNumThreads = 4, kNumActions = 12;
  std::atomic<bool> is_over{false};
  std::thread reader([&] {
    while (!is_over) {
      for (const std::string& name : kNames) Find(name);
      Index(true);
    }
  });
  for (int round = 0; round < kNumRounds; ++round) {
    std::vector<std::thread> threads;
    for (int i = 0; i < kNumThreads; ++i) {
      threads.emplace_back([&, seed = round * kNumThreads + i] {
        std::mt19937 random(static_cast<unsigned>(seed));
        for (int action = 0; action < kNumActions; ++action) ActOnce(random);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(EnsemblesWithoutSteps(), "") << "after round " << round;
  }
  is_over = true;
  reader.join();
  repository_.UnloadAll();
  EXPECT_TRUE(
      lifecycle_.WaitUntilDestroyed(std::chrono::steady_clock::now() + std::chrono::minutes(1)));
}

}  // namespace
}  // namespace nereid::core
