#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "host/cli/hub_cache.h"
#include "host/cli/hub_download.h"
#include "host/cli/hub_file.h"
#include "host/cli/hub_id.h"
#include "tests/repo_templates/small_checkpoint.h"
#include "tests/support/test_folder.h"

namespace nereid::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kCommit[] = "0123456789abcdef0123456789abcdef01234567";

// ---- ids

TEST(HubIdTest, HasAnOrganizationAModelAndARevision) {
  const Result<HubId> id = ParseHubId("Qwen/Qwen3-8B");
  ASSERT_TRUE(id.ok());
  EXPECT_EQ(id->organization, "Qwen");
  EXPECT_EQ(id->model, "Qwen3-8B");
  EXPECT_EQ(id->revision, "main");
  EXPECT_EQ(ParseHubId("a/b.c_d@refs/pr/1")->revision, "refs/pr/1");
}

TEST(HubIdTest, RefusesWhatIsNoIdOrWouldLeaveTheCache) {
  for (const char* text : {"", "model", "a/", "/b", "a/b/c", "../b", "a/..", "./b", "-a/b", "a/b-",
                           "a b/c", "a/b@", "a/b@../x", "a/b@/x", "a/b@x/", "a/b@x..y", "a/b\n"}) {
    EXPECT_EQ(ParseHubId(text).status().code(), StatusCode::kInvalidArg) << text;
  }
  EXPECT_FALSE(ParseHubId(std::string(97, 'a') + "/b").ok());
}

TEST(HubIdTest, KnowsCommits) {
  EXPECT_TRUE(IsCommit(kCommit));
  EXPECT_FALSE(IsCommit("main"));
  EXPECT_FALSE(IsCommit(std::string(39, 'a')));
  EXPECT_FALSE(IsCommit(std::string(40, 'A')));
}

// ---- the cache

class HubCacheTest : public testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(path).parent_path());
    std::ofstream(path) << text;
  }
  TestFolder folder_;
  HubCache cache_{folder_ / "hub"};
  HubId id_ = ParseHubId("org/model").value();
};

TEST_F(HubCacheTest, FindsTheSnapshotOfABranchAndOfACommit) {
  const std::string root = folder_ / "hub/models--org--model";
  Write(root + "/refs/main", kCommit);
  Write(root + "/snapshots/" + kCommit + "/config.json", "{}");
  EXPECT_EQ(cache_.FindSnapshot(id_).value(), root + "/snapshots/" + kCommit);
  id_.revision = kCommit;
  EXPECT_EQ(cache_.FindSnapshot(id_).value(), root + "/snapshots/" + kCommit);
}

TEST_F(HubCacheTest, SaysWhatIsMissing) {
  const Status status = cache_.FindSnapshot(id_).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find("'org/model' (revision main) is not in the cache"),
            std::string::npos)
      << status.message();
}

TEST_F(HubCacheTest, RefusesAReferenceThatIsNoCommit) {
  Write(folder_ / "hub/models--org--model/refs/main", "../../../../etc");
  EXPECT_EQ(cache_.FindSnapshot(id_).status().code(), StatusCode::kInvalidArg);
}

TEST_F(HubCacheTest, LinksBlobsIntoSnapshotsAsHuggingFaceDoes) {
  ASSERT_TRUE(cache_.MakeFolders(id_, kCommit).ok());
  Write(cache_.BlobPath(id_, "abc"), "text");
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(cache_.LinkFile(id_, kCommit, "config.json", "abc").ok());
  }
  ASSERT_TRUE(cache_.WriteRef(id_, kCommit).ok());
  const fs::path link = fs::path(cache_.FindSnapshot(id_).value()) / "config.json";
  EXPECT_EQ(fs::read_symlink(link), "../../blobs/abc");
  EXPECT_EQ(repo::ReadFile(link), "text");
}

TEST(HubCacheFolderTest, FollowsTheVariables) {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"}) {
    unsetenv(name);
  }
  setenv("HOME", "/home/user", 1);
  EXPECT_EQ(HubCache::FromEnvironment().root(), "/home/user/.cache/huggingface/hub");
  setenv("XDG_CACHE_HOME", "/cache", 1);
  EXPECT_EQ(HubCache::FromEnvironment().root(), "/cache/huggingface/hub");
  setenv("HF_HOME", "~/hf", 1);
  EXPECT_EQ(HubCache::FromEnvironment().root(), "/home/user/hf/hub");
  setenv("HF_HUB_CACHE", "/data/hub", 1);
  EXPECT_EQ(HubCache::FromEnvironment().root(), "/data/hub");
}

// ---- the connection

TEST(HubConnectionTest, ReadsEndpointTokenAndOffline) {
  setenv("HF_ENDPOINT", "http://127.0.0.1:1/", 1);
  setenv("HF_TOKEN", "hf_secret\n", 1);
  setenv("HF_HUB_OFFLINE", "1", 1);
  const Result<HubConnection> hub = HubConnection::FromEnvironment();
  ASSERT_TRUE(hub.ok());
  EXPECT_EQ(hub->endpoint, "http://127.0.0.1:1");
  EXPECT_EQ(hub->token, "hf_secret");
  EXPECT_TRUE(hub->is_offline);
  setenv("HF_TOKEN", "a\r\nHost: b", 1);
  EXPECT_EQ(HubConnection::FromEnvironment().status().code(), StatusCode::kInvalidArg);
  setenv("HF_TOKEN", "x", 1);
  setenv("HF_ENDPOINT", "ftp://hub", 1);
  EXPECT_EQ(HubConnection::FromEnvironment().status().message(),
            "HF_ENDPOINT: expected a URL with http or https, got 'ftp://hub'");
}

TEST(HubConnectionTest, FollowsRedirectsOnlyToTheWebAndNotOutOfTls) {
  EXPECT_EQ(RedirectTarget("https://hub/a/b?x", "/c").value(), "https://hub/c");
  EXPECT_EQ(RedirectTarget("https://hub/a", "//cdn/c").value(), "https://cdn/c");
  EXPECT_EQ(RedirectTarget("http://hub/a", "https://cdn/c").value(), "https://cdn/c");
  EXPECT_FALSE(RedirectTarget("https://hub/a", "http://cdn/c").ok());
  EXPECT_FALSE(RedirectTarget("https://hub/a", "file:///etc/passwd").ok());
  EXPECT_FALSE(RedirectTarget("https://hub/a", "").ok());
}

TEST(HubConnectionTest, KnowsOriginsAndETags) {
  EXPECT_EQ(OriginOf("HTTPS://Hub:8443/a"), "https://hub:8443");
  EXPECT_EQ(OriginOf("http://user@hub?x"), "http://user@hub");
  EXPECT_EQ(OriginOf("hub/a"), "");
  EXPECT_EQ(OriginOf("https://"), "");
  EXPECT_EQ(PlainETag("W/\"abc\""), "abc");
  EXPECT_EQ(PlainETag("\"abc\""), "abc");
  EXPECT_EQ(PlainETag("abc"), "abc");
}

// ---- which files are downloaded

using Files = std::vector<std::string>;

TEST(HubFilesTest, ChoosesWhatServingNeeds) {
  EXPECT_EQ(SideFiles({".gitattributes", "README.md", "config.json", "tokenizer.model",
                       "chat_template.jinja", "qwen.tiktoken", "model.bin", "original/params.json",
                       "model.safetensors"})
                .value(),
            (Files{"config.json", "tokenizer.model", "chat_template.jinja", "qwen.tiktoken"}));
}

TEST(HubFilesTest, RefusesNamesThatLeaveTheFolder) {
  for (const char* name : {"../x.json", "/etc/x.json", "a/../x.json", "..", "a//b", "", "a\\b.json",
                           "a/./b", "x\n.json", "a/"}) {
    EXPECT_EQ(SideFiles({"config.json", name}).status().code(), StatusCode::kInvalidArg) << name;
  }
}

TEST(HubFilesTest, DownloadsTheShardsOfTheIndexAlone) {
  const Files files = {"consolidated.safetensors", "model-1.safetensors", "model-2.safetensors"};
  EXPECT_EQ(
      WeightFilesToDownload(
          files, R"({"weight_map": {"a": "model-2.safetensors", "b": "model-1.safetensors"}})")
          .value(),
      (Files{"model-1.safetensors", "model-2.safetensors"}));
  for (const char* shard : {"../model-1.safetensors", "absent.safetensors", "config.json"}) {
    EXPECT_FALSE(
        WeightFilesToDownload(files, StrCat("{\"weight_map\": {\"a\": \"", shard, "\"}}")).ok())
        << shard;
  }
}

TEST(HubFilesTest, SaysWhatARepositoryWithoutWeightsHas) {
  EXPECT_EQ(WeightFilesToDownload({"model.safetensors", "x.gguf"}, "").value(),
            Files{"model.safetensors"});
  const Status status = WeightFilesToDownload({"model.gguf", "README.md"}, "").status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find("found: model.gguf, README.md"), std::string::npos)
      << status.message();
}

TEST(HubErrorTest, SaysWhatToDo) {
  const HubConnection hub{"https://hub", "", false};
  const HubId id = ParseHubId("org/model").value();
  const auto text = [&](int status, const char* code) {
    net::HttpHead head{status, {}};
    if (*code != '\0') head.headers["x-error-code"] = code;
    return HubError(hub, id, "config.json", head).message();
  };
  EXPECT_NE(text(401, "GatedRepo").find("accept its conditions at https://hub/org/model"),
            std::string::npos);
  EXPECT_NE(text(401, "").find("set HF_TOKEN"), std::string::npos);
  EXPECT_NE(text(403, "").find("may not read"), std::string::npos);
  EXPECT_NE(text(404, "").find("no such model, revision or file"), std::string::npos);
}

}  // namespace
}  // namespace nereid::cli
