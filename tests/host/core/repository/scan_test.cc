#include "host/core/repository/folders.h"

#include "tests/host/core/repository/fake_models.h"

namespace nereid::core {
namespace {

using ScanTest = RepositoryTest;
using Versions = std::vector<int64_t>;

TEST_F(ScanTest, VersionsAreDecimalNamesWithoutLeadingZeros) {
  for (const char* folder : {"1", "10", "2", "007", "00", "0", "-1", "1a", "v1", "configs"}) {
    Write(StrCat("repo/m/", folder, "/f"), "");
  }
  Write("repo/m/5", "a file");
  EXPECT_EQ(ScanVersions(repo() + "/m")->versions, (Versions{0, 1, 2, 10}));
  EXPECT_EQ(ScanModelFolder(repo() + "/m", "")->folders.versions, (Versions{0, 1, 2, 10}));
}

TEST_F(ScanTest, NotesWhyADirectoryIsNoVersion) {
  for (const char* folder : {"1", "007", "abc", "configs", "warmup", "initial_state", ".git"}) {
    Write(StrCat("repo/m/", folder, "/f"), "");
  }
  const std::vector<std::string> notes = {
      "ignore version directory '007' which contains leading zeros in its directory name",
      "ignore version directory 'abc' which fails to convert to integral number"};
  EXPECT_EQ(ScanVersions(repo() + "/m")->notes, notes);
  EXPECT_EQ(ScanModelFolder(repo() + "/m", "")->folders.notes, notes);
}

TEST_F(ScanTest, SkipsFilesAndHiddenFolders) {
  AddModel("m");
  Write("repo/README.md", "");
  Write("repo/.git/config", "");
  const auto models = ScanRepositories({{repo(), {}}});
  ASSERT_TRUE(models.ok());
  ASSERT_EQ(models->size(), 1u);
  EXPECT_EQ(models->begin()->first, "m");
}

TEST_F(ScanTest, ErrorNamesAMissingRepository) {
  const auto models = ScanRepositories({{repo("absent"), {}}});
  ASSERT_FALSE(models.ok());
  EXPECT_NE(models.status().message().find(repo("absent")), std::string::npos);
}

TEST_F(ScanTest, RefusesCloudStorage) {
  for (const char* path : {"s3://bucket/models", "gs://bucket", "as://account/container"}) {
    const Status status = CheckIsLocal(path);
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_NE(status.message().find(path), std::string::npos);
  }
  EXPECT_TRUE(CheckIsLocal("/models/s3://").ok());
  EXPECT_TRUE(CheckIsLocal("s3").ok());
}

TEST_F(ScanTest, RefusesNamesThatLeaveTheRepository) {
  AddModel("m");
  for (const char* name : {"", ".", "..", "../repo/m", "m/1", "/etc"}) {
    EXPECT_TRUE(FindModel({{repo(), {}}}, name).empty()) << name;
  }
  EXPECT_EQ(FindModel({{repo(), {}}}, "m").size(), 1u);
}

TEST_F(ScanTest, ServesADirectoryUnderItsMappedName) {
  AddModel("folder");
  const std::vector<Repository> repositories = {{repo(), {{"folder", "served"}}}};
  EXPECT_EQ(FindModel(repositories, "served").size(), 1u);
  EXPECT_TRUE(FindModel(repositories, "folder").empty());
  EXPECT_EQ(ScanRepositories(repositories)->count("served"), 1u);
}

TEST_F(ScanTest, MappedNamesTakePrecedence) {
  AddModel("a");
  AddModel("b");
  const std::vector<Repository> repositories = {{repo(), {{"a", "b"}, {"a", "c"}}}};
  for (const char* name : {"b", "c"}) {
    const std::vector<ScannedModel> found = FindModel(repositories, name);
    ASSERT_EQ(found.size(), 1u) << name;
    EXPECT_EQ(found.front().path, repo() + "/a");
  }
  EXPECT_TRUE(FindModel(repositories, "a").empty());
  EXPECT_EQ(ScanRepositories(repositories)->count("c"), 1u);
  AddModel("c", {1}, "backend: 'b'", "other");
  const std::vector<ScannedModel> found = FindModel({{repo("other"), {}}, repositories[0]}, "c");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found.front().path, repo() + "/a");
}

TEST_F(ScanTest, FingerprintChangesOnlyWithFiles) {
  AddModel("m");
  const auto scan = [this] { return ScanModelFolder(repo() + "/m", "")->fingerprints.all; };
  const uint64_t before = scan();
  EXPECT_EQ(scan(), before);
  Write("repo/m/1/__pycache__/model.pyc", "left behind");
  EXPECT_EQ(scan(), before);
  Write("repo/m/1/model.bin", "longer");
  EXPECT_NE(scan(), before);
}

TEST_F(ScanTest, FileChangesTheFingerprintOfItsVersionOrTheSharedOne) {
  AddModel("m", {1, 2});
  const std::string config = repo() + "/m/config.pbtxt";
  const auto scan = [&] { return ScanModelFolder(repo() + "/m", config)->fingerprints; };
  Write("repo/m/config.pbtxt", "one");
  const Fingerprints before = scan();
  Write("repo/m/config.pbtxt", "another one");
  EXPECT_NE(scan().all, before.all);
  EXPECT_EQ(scan().shared, before.shared);
  EXPECT_EQ(scan().versions, before.versions);
  Write("repo/m/1/model.bin", "longer");
  EXPECT_EQ(scan().shared, before.shared);
  EXPECT_NE(scan().versions.at(1), before.versions.at(1));
  EXPECT_EQ(scan().versions.at(2), before.versions.at(2));
  Write("repo/m/labels.txt", "cat");
  EXPECT_NE(scan().shared, before.shared);
}

TEST_F(ScanTest, SharedFingerprintIgnoresTheConfigsDirectory) {
  AddModel("m");
  Write("repo/m/configs/own.pbtxt", "one");
  const auto scan = [&] {
    return ScanModelFolder(repo() + "/m", repo() + "/m/configs/own.pbtxt")->fingerprints;
  };
  const Fingerprints before = scan();
  Write("repo/m/configs/other.pbtxt", "two");
  EXPECT_NE(scan().all, before.all);
  EXPECT_EQ(scan().shared, before.shared);
}

TEST_F(ScanTest, FingerprintOfALinkedVersionChangesWithTheLink) {
  AddModel("m");
  for (const char* store : {"store/v7/1", "store/v8/1"}) Write(StrCat(store, "/model.bin"), "x");
  const std::filesystem::path link = root_ / "repo/m/2";
  const auto scan = [&](const char* store) {
    std::filesystem::remove(link);
    std::filesystem::create_directory_symlink(root_ / "store" / store, link);
    return ScanModelFolder(repo() + "/m", "")->fingerprints;
  };
  const Fingerprints before = scan("v7"), after = scan("v8");
  EXPECT_NE(before.versions.at(2), after.versions.at(2));
  EXPECT_EQ(before.versions.at(1), after.versions.at(1));
}

TEST(VersionPolicyTest, SelectsByPolicy) {
  const Versions available = {1, 2, 3};
  VersionPolicy policy;
  std::vector<std::string> notes;
  EXPECT_EQ(SelectVersions(policy, available, "/m", &notes).value(), (Versions{3}));
  policy.num_latest = 2;
  EXPECT_EQ(SelectVersions(policy, available, "/m", &notes).value(), (Versions{2, 3}));
  policy.num_latest = 9;
  EXPECT_EQ(SelectVersions(policy, available, "/m", &notes).value(), available);
  policy.kind = VersionPolicy::Kind::kAll;
  EXPECT_EQ(SelectVersions(policy, available, "/m", &notes).value(), available);
  policy.kind = VersionPolicy::Kind::kSpecific;
  policy.specific = {3, 1, 3};
  EXPECT_EQ(SelectVersions(policy, available, "/m", &notes).value(), (Versions{1, 3}));
}

TEST(VersionPolicyTest, NotesMissingVersions) {
  VersionPolicy policy;
  std::vector<std::string> notes;
  policy.kind = VersionPolicy::Kind::kSpecific;
  policy.specific = {7};
  EXPECT_EQ(SelectVersions(policy, {1}, "/m", &notes).status().message(),
            "version_policy: version 7 has no folder '/m/7'");
  policy.specific = {7, 1};
  EXPECT_EQ(SelectVersions(policy, {1, 2}, "/m", &notes).value(),
            (Versions{1}));  // only the existing version
  EXPECT_EQ(notes, std::vector<std::string>{"version_policy: version 7 has no folder '/m/7'"});
  EXPECT_EQ(SelectVersions({}, {}, "/m", &notes).status().message(),
            "no version folder such as '/m/1'");
}

}  // namespace
}  // namespace nereid::core
