// Tests of the file of API keys and of the rights that it gives.
#include "host/frontend/api_keys.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "host/frontend/access_control.h"

namespace nereid {
namespace {

constexpr char kSalt[] = "0123456789abcdef";
// printf '%s' 0123456789abcdefapp.secret | b2sum -l 256
constexpr char kDigest[] = "ab6d485f5b43004d4d84e4de34cf530d5e7513eb85731837214a192daaa5b4d2";

std::string Entry(const std::string& name, const std::string& permissions,
                  const std::string& more = "") {
  return StrCat("{\"name\":\"", name, "\",\"hash\":\"blake2b-256:", kSalt, ":",
                ApiKeyDigest(kSalt, name + ".secret"), "\",\"permissions\":", permissions, more,
                "}");
}

std::string File(const std::string& entries) {
  return StrCat("{\"keys\":[", entries, "]}");
}

ApiKeys KeysOf(const std::string& entries) {
  Result<ApiKeys> keys = ApiKeys::Parse(File(entries));
  EXPECT_TRUE(keys.ok()) << keys.status().message();
  return keys.ok() ? std::move(keys).value() : ApiKeys();
}

TEST(ApiKeysTest, TheDigestIsThatOfOtherPrograms) {
  EXPECT_EQ(ApiKeyDigest(kSalt, "app.secret"), kDigest);
}

TEST(ApiKeysTest, AKeyIsFoundByItsWholeText) {
  const ApiKeys keys = KeysOf(Entry("app", "[]") + "," + Entry("other", "[]"));
  ASSERT_NE(keys.Find("app.secret", 0), nullptr);
  EXPECT_EQ(keys.Find("app.secret", 0)->name, "app");
  EXPECT_EQ(keys.Find("other.secret", 0)->name, "other");
  for (const char* wrong : {"", "app", "app.", "app.secre", "app.secret ", "app.secrets",
                            "App.secret", "app.Secret", ".secret", "secret", "nobody.secret"}) {
    EXPECT_EQ(keys.Find(wrong, 0), nullptr) << wrong;
  }
}

TEST(ApiKeysTest, AKeyExpires) {
  const ApiKeys keys = KeysOf(Entry("app", "[]", ",\"expires\":\"2001-09-09T01:46:40Z\""));
  EXPECT_NE(keys.Find("app.secret", 999'999'999), nullptr);
  EXPECT_EQ(keys.Find("app.secret", 1'000'000'000), nullptr);
}

TEST(ApiKeysTest, RightsHoldForTheModelsThatThePatternsMatch) {
  const ApiKeys keys = KeysOf(Entry(
      "app",
      R"([{"models":["llama-*","b?t","*x*y*"],"rights":["infer"]},{"rights":["statistics","metrics"]}])"));
  const ApiKey& key = *keys.Find("app.secret", 0);
  for (const char* model : {"llama-", "llama-7b", "bat", "xy", "axbyc", "xxyy"}) {
    EXPECT_TRUE(key.Permits(ApiRight::kInfer, ApiScope::kModel, model)) << model;
  }
  for (const char* model : {"", "llama", "a-llama-7b", "bt", "baat", "yx", "*"}) {
    EXPECT_FALSE(key.Permits(ApiRight::kInfer, ApiScope::kModel, model)) << model;
  }
  EXPECT_TRUE(key.Permits(ApiRight::kInfer, ApiScope::kServer, ""));
  EXPECT_FALSE(key.Permits(ApiRight::kInfer, ApiScope::kAllModels, ""));
  EXPECT_TRUE(key.Permits(ApiRight::kStatistics, ApiScope::kAllModels, ""));
  EXPECT_TRUE(key.Permits(ApiRight::kStatistics, ApiScope::kModel, "any"));
  EXPECT_FALSE(key.Permits(ApiRight::kMetadata, ApiScope::kServer, ""));
}

TEST(ApiKeysTest, AdminMeansTheRightsToChangeTheServer) {
  const ApiKeys keys = KeysOf(Entry("app", R"([{"rights":["admin"]}])"));
  const ApiKey& key = *keys.Find("app.secret", 0);
  for (size_t i = 0; i < kApiRightNames.size(); ++i) {
    const auto right = static_cast<ApiRight>(i);
    const bool is_admin = right == ApiRight::kModelControl || right == ApiRight::kLog ||
                          right == ApiRight::kTrace || right == ApiRight::kSharedMemory;
    EXPECT_EQ(key.Permits(right, ApiScope::kServer, ""), is_admin) << kApiRightNames[i];
  }
}

TEST(ApiKeysTest, AWrongFileIsRefusedWithTheReason) {
  const std::string hash = StrCat("\"hash\":\"blake2b-256:", kSalt, ":", kDigest, "\"");
  const std::pair<std::string, const char*> cases[] = {
      {"", "expected an object"},
      {"[]", "expected an object"},
      {"{}", "'keys' is missing"},
      {"{\"keys\":[]}x", "invalid JSON"},
      {"{\"key\":[]}", "unknown member 'key'"},
      {File("{}"), "key 1: 'name' is missing"},
      {File("{\"name\":\"a\"}"), "key 1 ('a'): 'hash' is missing"},
      {File("{\"name\":\"a b\"}"), "letters, digits"},
      {File("{\"name\":\"a\",\"hash\":\"sha1:x:y\"}"), "expected blake2b-256:<salt"},
      {File("{\"name\":\"a\",\"hash\":\"blake2b-256:short:00\"}"), "expected blake2b-256:<salt"},
      {File("{\"name\":\"a\",\"secret\":\"x\"}"), "unknown member 'secret'"},
      {File(StrCat("{\"name\":\"a\",", hash, ",\"expires\":\"tomorrow\"}")), "expected a time"},
      {File(Entry("a", R"([{"rights":["fly"]}])")), "key 1 ('a'): unknown right 'fly'"},
      {File(Entry("a", R"([{"right":["infer"]}])")), "unknown member 'right'"},
      {File(Entry("a", "[]") + "," + Entry("a", "[]")), "key 2 ('a'): the name is used twice"},
      {File(std::string(100'000, '[')), "expected an object"},
  };
  for (const auto& [json, reason] : cases) {
    const Result<ApiKeys> keys = ApiKeys::Parse(json);
    ASSERT_FALSE(keys.ok()) << json;
    EXPECT_NE(keys.status().message().find(reason), std::string::npos) << keys.status().message();
  }
}

class ApiKeyFileTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = (std::filesystem::path(testing::TempDir()) /
             testing::UnitTest::GetInstance()->current_test_info()->name())
                .string();
    std::filesystem::remove_all(path_);
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  void Write(const std::string& text) const { std::ofstream(path_) << text; }
  std::string path_;
};

TEST_F(ApiKeyFileTest, ABadFileLeavesTheKeysAsTheyAre) {
  Write(File(Entry("old", "[]")));
  const Result<std::shared_ptr<ApiKeyFile>> file = ApiKeyFile::Open(path_);
  ASSERT_TRUE(file.ok()) << file.status().message();
  Write("{");
  const Status status = (*file)->Reload();
  EXPECT_NE(status.message().find(StrCat("--api-key-file '", path_, "'")), std::string::npos);
  EXPECT_NE((*file)->keys()->Find("old.secret", 0), nullptr);
  Write(File(Entry("new", "[]")));
  EXPECT_TRUE((*file)->Reload().ok());
  EXPECT_EQ((*file)->keys()->Find("old.secret", 0), nullptr);
  EXPECT_NE((*file)->keys()->Find("new.secret", 0), nullptr);
}

TEST_F(ApiKeyFileTest, OnlyARegularFileOfLimitedSizeIsRead) {
  EXPECT_FALSE(ApiKeyFile::Open(path_).ok());
  EXPECT_FALSE(ApiKeyFile::Open("/dev/zero").ok());
  EXPECT_FALSE(ApiKeyFile::Open(testing::TempDir()).ok());
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_FALSE(ApiKeyFile::Open(path_).ok());  // and does not wait for a writer
  std::filesystem::remove(path_);
  Write(File("") + std::string(2 << 20, ' '));
  EXPECT_NE(ApiKeyFile::Open(path_).status().message().find("at most"), std::string::npos);
}

class BearerCaller final : public ApiCaller {
 public:
  explicit BearerCaller(const char* authorization) : authorization_(authorization) {}
  std::string_view FindHeader(std::string_view name) const override {
    if (name != "authorization" || authorization_ == nullptr) return {};
    return authorization_;
  }
  bool IsPeerLocal() const override { return true; }

 private:
  const char* const authorization_;
};

TEST_F(ApiKeyFileTest, KeysDecideWhatAClientMayDo) {
  Write(File(Entry("reader", R"([{"models":["a*"],"rights":["infer","metadata"]}])") + "," +
             Entry("admin", R"([{"rights":["admin"]}])")));
  AccessPolicy policy{.allows_inline_models = true, .allows_client_shm = true};
  policy.keys = *ApiKeyFile::Open(path_);
  const AccessControl access(policy, RestrictedApis());
  // The reason why `authorization` may not do `operation`; empty if it may.
  const auto why = [&](const char* authorization, ApiOperation operation,
                       std::string_view model = {}) -> std::string {
    const auto denial = access.Check(BearerCaller(authorization), operation, model);
    const bool is_known = !access.Authenticate(BearerCaller(authorization), operation);
    EXPECT_EQ(is_known, !denial || denial->reason != Denial::Reason::kNoKey);
    if (!denial) return "";
    return (denial->reason == Denial::Reason::kNoKey ? "401 " : "403 ") + denial->message;
  };
  const char* const reader = "Bearer reader.secret";
  const char* const admin = "bearer  admin.secret";
  for (const char* nobody :
       {static_cast<const char*>(nullptr), "", "Bearer", "Bearer ", "Basic reader.secret",
        "reader.secret", "Bearer reader.secret x", "Bearer reader.Secret"}) {
    EXPECT_EQ(why(nobody, ApiOperation::kInfer, "a").substr(0, 4), "401 ");
    EXPECT_EQ(why(nobody, ApiOperation::kReadMetrics).substr(0, 4), "401 ");
    EXPECT_EQ(why(nobody, ApiOperation::kLoadModel, "a").substr(0, 4), "401 ");
    EXPECT_EQ(why(nobody, ApiOperation::kServerHealth), "");
  }
  EXPECT_EQ(why(reader, ApiOperation::kInfer, "a"), "");
  EXPECT_EQ(why(reader, ApiOperation::kModelConfig, "a1"), "");
  EXPECT_EQ(why(reader, ApiOperation::kServerMetadata), "");
  EXPECT_EQ(why(reader, ApiOperation::kInfer, "b"),
            "403 the API key 'reader' has no right 'infer' for model 'b'");
  EXPECT_EQ(why(reader, ApiOperation::kRepositoryIndex),
            "403 the API key 'reader' has no right 'metadata' for all models ('*')");
  EXPECT_EQ(why(reader, ApiOperation::kReadMetrics),
            "403 the API key 'reader' has no right 'metrics'");
  EXPECT_EQ(why(reader, ApiOperation::kLoadModel, "a"),
            "403 the API key 'reader' has no right 'model-control' for model 'a'");
  for (const ApiOperation operation :
       {ApiOperation::kLoadModel, ApiOperation::kLoadInlineModel, ApiOperation::kUnloadModel,
        ApiOperation::kChangeLogSettings, ApiOperation::kChangeTraceSettings,
        ApiOperation::kChangeSharedMemory, ApiOperation::kReadSharedMemory}) {
    EXPECT_EQ(why(admin, operation, "b"), "");
  }
  EXPECT_EQ(why(admin, ApiOperation::kInfer, "a"),
            "403 the API key 'admin' has no right 'infer' for model 'a'");
  EXPECT_TRUE(access.IsSecretHeader("AUTHORIZATION"));
  EXPECT_FALSE(AccessControl({}, RestrictedApis()).IsSecretHeader("authorization"));
}

}  // namespace
}  // namespace nereid
