// Plans without disk, threads and models.
#include "host/core/repository/plan.h"

#include <gtest/gtest.h>

namespace nereid::core {
namespace {

using Names = std::vector<std::string>;

LoadPlan PlanOf(const std::string& name, const Names& steps = {}) {
  LoadPlan plan;
  plan.name = name;
  plan.steps = steps;
  return plan;
}

std::map<std::string, LoadPlan> PlansOf(const std::map<std::string, Names>& steps) {
  std::map<std::string, LoadPlan> plans;
  for (const auto& [name, calls] : steps) plans.emplace(name, PlanOf(name, calls));
  return plans;
}

EnsemblePlans Requested(const std::map<std::string, Names>& steps) {
  EnsemblePlans plans;
  for (const auto& [name, calls] : steps) {
    plans.emplace(name, std::make_shared<const LoadPlan>(PlanOf(name, calls)));
  }
  return plans;
}

Serves Only(const std::set<std::string>& serving) {
  return [serving](const std::string& name) { return serving.count(name) > 0; };
}

LoadedModel Loaded(const Names& steps = {}, bool is_requested = false) {
  return {.fingerprint = 1, .is_overridden = false, .is_requested = is_requested, .steps = steps};
}

TEST(NextLoadsTest, StartsWhatCallsNothingThatIsUnsettled) {
  const auto waiting = PlansOf({{"outer", {"inner"}}, {"inner", {"x", "y"}}, {"x", {}}});
  const NextLoads next = FindNextLoads(waiting, PlansOf({{"y", {}}}), {}, Only({}));
  EXPECT_EQ(next.start, Names{"x"});
  EXPECT_TRUE(next.failures.empty());
  EXPECT_EQ(FindNextLoads(PlansOf({{"inner", {"x", "y"}}}), {}, {}, Only({"x", "y"})).start,
            Names{"inner"});
}

TEST(NextLoadsTest, AStepThatServesMayBeReloadedFirst) {
  const auto waiting = PlansOf({{"ens", {"x"}}, {"x", {}}});
  EXPECT_EQ(FindNextLoads(waiting, {}, {}, Only({"x"})).start, Names{"x"});
}

TEST(NextLoadsTest, FailsWithTheReasonOfTheFailedStep) {
  const auto waiting = PlansOf({{"ens", {"x"}}});
  const NextLoads failed = FindNextLoads(waiting, {}, {{"x", InternalError("no room")}}, Only({}));
  EXPECT_EQ(failed.failures.at("ens").message(),
            "load failed for model 'ens': ensemble 'ens' depends on 'x' which has no loaded "
            "version. Model 'x' loading failed with error: no room");
  EXPECT_TRUE(failed.start.empty());
  EXPECT_EQ(FindNextLoads(waiting, {}, {}, Only({})).failures.at("ens").message(),
            "load failed for model 'ens': ensemble ens contains models that are not available or "
            "ambiguous: x");
}

TEST(NextLoadsTest, FailsPlansThatWaitForEachOther) {
  const auto waiting = PlansOf({{"a", {"b"}}, {"b", {"a"}}});
  EXPECT_TRUE(FindNextLoads(waiting, PlansOf({{"c", {}}}), {}, Only({})).failures.empty());
  const NextLoads next = FindNextLoads(waiting, {}, {}, Only({}));
  EXPECT_EQ(next.failures.size(), 2u);
  EXPECT_EQ(next.failures.at("a").message(),
            "load failed for model 'a': circular dependency between ensembles");
}

TEST(RefusedPlansTest, NamesTheCallerThatClosesACycle) {
  const std::map<std::string, Names> steps = {{"a", {"b"}}, {"b", {"c"}}, {"c", {"a", "x"}}};
  const auto refused = FindRefused(PlansOf(steps), Requested(steps));
  ASSERT_EQ(refused.size(), 1u) << "the others may serve without it";
  EXPECT_EQ(refused.at("a").message(),
            "load failed for model 'a': circular dependency between ensembles: a -> ... -> c -> a");
  EXPECT_TRUE(FindRefused(PlansOf({{"x", {}}}), Requested(steps)).empty());
}

TEST(RefusedPlansTest, CountsTheLongestWay) {
  std::map<std::string, Names> steps = {{"e1", {"x"}}};
  for (size_t i = 2; i <= kMaxEnsembleDepth + 1; ++i) {
    steps[StrCat("e", i)] = {"e1", StrCat("e", i - 1)};
  }
  const auto refused = FindRefused(PlansOf(steps), Requested(steps));
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused.begin()->first, StrCat("e", kMaxEnsembleDepth + 1));
}

TEST(CallersTest, LeavesOutThoseInACycle) {
  const EnsemblePlans requested =
      Requested({{"a", {"x"}}, {"b", {"y"}}, {"c", {"d", "x"}}, {"d", {"c"}}});
  const EnsemblePlans callers = CallersOf({"x"}, requested);
  ASSERT_EQ(callers.size(), 1u);
  EXPECT_EQ(callers.begin()->first, "a");
}

TEST(UnusedStepsTest, AreUnloadedAfterTheLastEnsembleThatCallsThem) {
  const LoadedModels loaded = {{"ens", Loaded({"inner", "x"})},
                               {"inner", Loaded({"x", "y"})},
                               {"other", Loaded({"y"})},
                               {"x", Loaded()},
                               {"y", Loaded()}};
  const std::map<std::string, Names> unused = {{"ens", {"inner"}}, {"inner", {"x"}}};
  EXPECT_EQ(FindUnusedSteps("ens", loaded), unused);
  EXPECT_TRUE(FindUnusedSteps("x", loaded).empty());
  EXPECT_TRUE(FindUnusedSteps("unknown", loaded).empty());
}

TEST(UnusedStepsTest, StayIfTheyWereRequestedByName) {
  const LoadedModels loaded = {
      {"ens", Loaded({"x", "y"})}, {"x", Loaded({}, /*is_requested=*/true)}, {"y", Loaded()}};
  const std::map<std::string, Names> unused = {{"ens", {"y"}}};
  EXPECT_EQ(FindUnusedSteps("ens", loaded), unused);
}

TEST(UnchangedTest, ComparesFilesAndSteps) {
  LoadPlan plan = PlanOf("m", {"x"});
  plan.fingerprint = 1;
  EXPECT_TRUE(IsUnchanged(plan, Loaded({"x"})));
  EXPECT_FALSE(IsUnchanged(plan, Loaded({"y"}))) << "its step is in another repository now";
  LoadedModel overridden = Loaded({"y"});
  overridden.is_overridden = true;
  EXPECT_TRUE(IsUnchanged(plan, overridden)) << "the configuration of the load call stays";
  plan.config_override = "{}";
  EXPECT_FALSE(IsUnchanged(plan, overridden));
  plan.config_override.reset();
  plan.fingerprint = 2;
  EXPECT_FALSE(IsUnchanged(plan, overridden));
}

TEST(PlanVersionTest, ReplacesAVersionWhoseFilesAreNotKnownToBeTheSame) {
  LoadPlan plan = PlanOf("m");
  EXPECT_EQ(PlanVersion(plan, 1, 7, {}), VersionAction::kReplace);
  plan.fingerprints = {{1, 7}};
  EXPECT_EQ(PlanVersion(plan, 1, std::nullopt, {}), VersionAction::kReplace);
  EXPECT_EQ(PlanVersion(plan, 1, 8, {}), VersionAction::kReplace);
}

TEST(RemovedModelsTest, AreThoseWithoutAUniqueDirectory) {
  const ScannedModels scanned = {{"kept", {{"kept", "/r/kept"}}},
                                 {"twice", {{"twice", "/r/twice"}, {"twice", "/s/twice"}}},
                                 {"new", {{"new", "/r/new"}}}};
  const LoadedModels loaded = {{"gone", {}}, {"kept", {}}, {"twice", {}}};
  EXPECT_EQ(FindRemoved(scanned, loaded), (Names{"gone", "twice"}));
}

TEST(ResolveStepsTest, PrefersTheEnsemblesRepository) {
  EnsembleStep step;
  step.model_name = "m";
  const Names repositories = {"/a", "/b", "/c"};
  const auto resolve = [&](const std::set<std::string>& models) {
    return ResolveSteps("/a/ens", {step}, repositories, Only(models));
  };
  EXPECT_EQ(resolve({"/a/m", "/b/m"}).value(), Names{"/a/m"});
  EXPECT_EQ(resolve({"/c/m"}).value(), Names{"/c/m"});
  EXPECT_EQ(resolve({}).value(), Names{"/a/m"}) << "its load fails with the name of the step";
  EXPECT_EQ(resolve({"/b/m", "/c/m"}).status().message(),
            "ensemble 'ens': step 'm' is ambiguous: its own repository does not have it, others "
            "do: '/b/m', '/c/m'");
}

}  // namespace
}  // namespace nereid::core
