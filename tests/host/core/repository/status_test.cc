// The record of one model, the index and the readiness, without a lifecycle.
#include "host/core/repository/status.h"

#include <gtest/gtest.h>

#include "tests/host/core/repository/fake_models.h"

namespace nereid::core {
namespace {

class ModelRecordTest : public testing::Test {
 protected:
  // A load of `versions` of which those in `failing` fail. Returns whether versions changed.
  bool Load(std::vector<int64_t> versions, const std::set<int64_t>& failing = {}) {
    LoadPlan plan;
    plan.name = "m";
    plan.versions = std::move(versions);
    for (const int64_t version : plan.versions) plan.fingerprints[version] = fingerprint_;
    std::vector<VersionLoad> loads;
    for (const int64_t version : plan.versions) {
      record_.Begin(plan, ++generation_, &loads.emplace_back(VersionLoad{version}));
    }
    for (VersionLoad& load : loads) {
      if (failing.count(load.version) > 0) {
        load.failure = InternalError("broken");
      } else if (load.kept == nullptr) {
        load.loaded = std::make_shared<Model>();
      }
    }
    bool is_new = false;
    record_.Finish(plan, loads, &is_new);
    return is_new;
  }
  // For example "1 READY; 2 UNAVAILABLE (Internal: broken)".
  std::string States() const {
    std::string text;
    for (const auto& [number, version] : record_.versions) {
      text += StrCat(text.empty() ? "" : "; ", number, " ", ModelStateName(version.status.state));
      if (!version.status.reason.empty()) text += StrCat(" (", version.status.reason, ")");
    }
    return text;
  }

  ModelRecord record_;
  uint64_t generation_ = 0, fingerprint_ = 1;
};

TEST_F(ModelRecordTest, KeepsWhatServesIfOneVersionFails) {
  EXPECT_TRUE(Load({1}));
  fingerprint_ = 2;
  EXPECT_FALSE(Load({1, 2}, {2}));
  EXPECT_EQ(States(), "1 READY; 2 UNAVAILABLE (Internal: broken)");
  EXPECT_EQ(record_.versions.at(1).generation, 1u) << "it is the first model object";
  EXPECT_EQ(record_.NotServing(), std::set<int64_t>{2});
}

TEST_F(ModelRecordTest, ReplacesAllVersionsAtOnce) {
  EXPECT_TRUE(Load({1, 2}));
  const auto kept = record_.serving.at(2);
  EXPECT_TRUE(Load({2, 3}));
  EXPECT_EQ(States(), "1 UNLOADING; 2 READY; 3 READY");
  EXPECT_EQ(record_.serving.at(2), kept);
  EXPECT_TRUE(record_.OnDestroyed(1, 1));
  EXPECT_EQ(States(), "1 UNAVAILABLE (unloaded); 2 READY; 3 READY");
}

TEST_F(ModelRecordTest, AnOldModelObjectDoesNotEndANewOne) {
  EXPECT_TRUE(Load({1}));
  record_.Unload();
  EXPECT_EQ(States(), "1 UNLOADING");
  EXPECT_FALSE(record_.loaded.has_value());
  EXPECT_TRUE(Load({1}));
  EXPECT_TRUE(record_.OnDestroyed(1, 1));
  EXPECT_EQ(States(), "1 READY");
  EXPECT_TRUE(record_.loaded.has_value());
}

TEST_F(ModelRecordTest, AFailureBeforeTheLoadLeavesServingVersionsAlone) {
  EXPECT_TRUE(Load({1}));
  record_.RecordFailure(1, "typo", /*affects_readiness=*/true);
  record_.RecordFailure(2, "typo", /*affects_readiness=*/true);
  EXPECT_EQ(States(), "1 READY; 2 UNAVAILABLE (typo)");
}

TEST(IndexTest, ListsWhatIsKnownAndWhatIsOnDisk) {
  const ScannedModels scanned = {{"/r/new", {{"/r/new", "/r/new"}}},
                                 {"/s/two", {{"/s/two", "/s/two"}, {"/s/two", "/s/2"}}}};
  const ModelStatuses statuses = {
      {"/s/m", {{1, {ModelState::kReady, ""}}, {2, {ModelState::kUnavailable, "broken"}}}}};
  const std::vector<IndexEntry> index =
      ListModels(statuses, scanned, /*has_namespaces=*/true, /*ready_only=*/false);
  ASSERT_EQ(index.size(), 4u);
  EXPECT_EQ(index[0].name, "m");
  EXPECT_EQ(index[2].name, "new");
  EXPECT_EQ(index[2].version, IndexEntry::kNoVersion);
  EXPECT_EQ(index[3].status.reason, "model appears in two or more repositories");
  EXPECT_EQ(ListModels(statuses, scanned, true, /*ready_only=*/true).size(), 1u);
}

TEST(IndexTest, UnloadedAndUnrequiredModelsDoNotAffectReadiness) {
  const auto all_serving = [](VersionStatus status) {
    return AllServing({{"m", {{1, std::move(status)}}}});
  };
  EXPECT_FALSE(all_serving({ModelState::kUnavailable, "broken"}));
  EXPECT_FALSE(all_serving({ModelState::kLoading, ""}));
  EXPECT_TRUE(all_serving({ModelState::kUnavailable, "unloaded"}));
  EXPECT_TRUE(all_serving({ModelState::kUnavailable, "broken", /*affects_readiness=*/false}));
  EXPECT_TRUE(all_serving({ModelState::kUnloading, ""}));
}

}  // namespace
}  // namespace nereid::core
