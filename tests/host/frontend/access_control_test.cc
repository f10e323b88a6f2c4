// Tests of the rules that decide what a client may do.
#include "host/frontend/access_control.h"

#include <gtest/gtest.h>

#include <map>

namespace nereid {
namespace {

class FakeCaller final : public ApiCaller {
 public:
  explicit FakeCaller(bool is_local, std::map<std::string, std::string, std::less<>> headers = {})
      : is_local_(is_local), headers_(std::move(headers)) {}
  std::string_view FindHeader(std::string_view name) const override {
    const auto found = headers_.find(name);
    return found == headers_.end() ? std::string_view() : found->second;
  }
  bool IsPeerLocal() const override { return is_local_; }

 private:
  const bool is_local_;
  const std::map<std::string, std::string, std::less<>> headers_;
};

constexpr ApiOperation kChanges[] = {
    ApiOperation::kLoadModel, ApiOperation::kUnloadModel, ApiOperation::kChangeLogSettings,
    ApiOperation::kChangeTraceSettings, ApiOperation::kChangeSharedMemory};

AccessControl With(AccessPolicy policy) {
  policy.allows_client_shm = true;
  return AccessControl(policy, RestrictedApis());
}

Denial::Reason ReasonOf(const std::optional<Denial>& denial) {
  EXPECT_TRUE(denial.has_value());
  return denial ? denial->reason : Denial::Reason::kRestricted;
}

TEST(AccessControlTest, OnlyLocalClientsChangeTheServer) {
  const AccessControl access = With({});
  for (const ApiOperation operation : kChanges) {
    EXPECT_FALSE(access.Check(FakeCaller(/*is_local=*/true), operation, "m"));
    const auto denial = access.Check(FakeCaller(/*is_local=*/false), operation, "m");
    EXPECT_EQ(ReasonOf(denial), Denial::Reason::kNotPermitted);
    EXPECT_NE(denial->message.find("--remote-admin"), std::string::npos) << denial->message;
    EXPECT_FALSE(With({.allows_remote_admin = true}).Check(FakeCaller(false), operation, "m"));
  }
}

TEST(AccessControlTest, EveryClientReadsAndInfers) {
  const AccessControl access = With({});
  for (const ApiOperation operation :
       {ApiOperation::kInfer, ApiOperation::kServerHealth, ApiOperation::kModelConfig,
        ApiOperation::kAllStatistics, ApiOperation::kRepositoryIndex,
        ApiOperation::kReadLogSettings, ApiOperation::kReadTraceSettings,
        ApiOperation::kReadSharedMemory, ApiOperation::kReadMetrics, ApiOperation::kDescribeApi}) {
    EXPECT_FALSE(access.Check(FakeCaller(/*is_local=*/false), operation, "m"));
  }
}

TEST(AccessControlTest, ARequestThroughALocalProxyOrBrowserIsNotLocal) {
  for (const char* header : {"forwarded", "x-forwarded-for", "x-real-ip", "via", "origin"}) {
    const FakeCaller caller(/*is_local=*/true, {{header, "x"}});
    EXPECT_TRUE(With({}).Check(caller, ApiOperation::kUnloadModel, "m")) << header;
    EXPECT_FALSE(With({}).Check(caller, ApiOperation::kInfer, "m")) << header;
  }
}

TEST(AccessControlTest, APageOfAServerWithAConsoleIsAsLocalAsItsUser) {
  const AccessControl access = With({.trusts_own_pages = true});
  const auto is_permitted = [](const AccessControl& rules, bool is_local, std::string origin,
                               std::string host) {
    const FakeCaller caller(is_local, {{"origin", std::move(origin)}, {"host", std::move(host)}});
    return !rules.Check(caller, ApiOperation::kUnloadModel, "m").has_value();
  };
  for (const char* host : {"localhost:8000", "127.0.0.1:8000", "[::1]:8000", "127.0.0.2"}) {
    const std::string origin = StrCat("http://", host);
    EXPECT_TRUE(is_permitted(access, true, origin, host)) << host;
    EXPECT_FALSE(is_permitted(access, false, origin, host)) << host;
    EXPECT_FALSE(is_permitted(With({}), true, origin, host)) << host;
    EXPECT_FALSE(is_permitted(access, true, "http://evil.example", host)) << host;
  }
  // A page may have let its own host's name lead to this machine.
  for (const char* host : {"evil.example", "127.evil.example", "10.0.0.1", "localhost.evil.example",
                           "[::1].evil.example", "", "127.0.0.1:9"}) {
    const std::string other = host == std::string("127.0.0.1:9") ? "127.0.0.1:8" : host;
    EXPECT_FALSE(is_permitted(access, true, StrCat("http://", other), host)) << host;
  }
  const FakeCaller proxied(
      true, {{"origin", "http://localhost"}, {"host", "localhost"}, {"via", "1.1 proxy"}});
  EXPECT_TRUE(access.Check(proxied, ApiOperation::kUnloadModel, "m"));
}

TEST(AccessControlTest, InlineModelsNeedTheirOwnFlagAndTheRightToLoad) {
  constexpr ApiOperation kInline = ApiOperation::kLoadInlineModel;
  const auto denial = With({}).Check(FakeCaller(/*is_local=*/true), kInline, "m");
  EXPECT_EQ(ReasonOf(denial), Denial::Reason::kNotPermitted);
  EXPECT_NE(denial->message.find("--allow-inline-models"), std::string::npos) << denial->message;
  const AccessControl access = With({.allows_inline_models = true});
  EXPECT_FALSE(access.Check(FakeCaller(/*is_local=*/true), kInline, "m"));
  EXPECT_TRUE(access.Check(FakeCaller(/*is_local=*/false), kInline, "m"));
}

TEST(AccessControlTest, SharedMemoryIsDisabledByDefault) {
  const AccessControl access({.allows_remote_admin = true}, RestrictedApis());
  const FakeCaller caller(/*is_local=*/true);
  const auto denial = access.Check(caller, ApiOperation::kChangeSharedMemory);
  EXPECT_EQ(ReasonOf(denial), Denial::Reason::kDisabled);
  EXPECT_EQ(denial->message,
            "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to "
            "enable.");
  EXPECT_FALSE(access.Check(caller, ApiOperation::kReadSharedMemory));
}

TEST(AccessControlTest, ARestrictedGroupNeedsItsSecretWhateverTheSpellingOfTheFlag) {
  RestrictedApis restricted("triton-grpc-protocol-");
  ASSERT_TRUE(restricted.Add("inference,logging:Admin-Key=Secret").ok());
  const AccessControl access({}, restricted);
  const FakeCaller stranger(/*is_local=*/true);
  const FakeCaller known(/*is_local=*/true, {{"triton-grpc-protocol-admin-key", "Secret"}});
  const FakeCaller guess(/*is_local=*/true, {{"triton-grpc-protocol-admin-key", "secret"}});
  for (const ApiOperation operation :
       {ApiOperation::kInfer, ApiOperation::kReadLogSettings, ApiOperation::kChangeLogSettings}) {
    EXPECT_EQ(ReasonOf(access.Check(stranger, operation)), Denial::Reason::kRestricted);
    EXPECT_EQ(ReasonOf(access.Check(guess, operation)), Denial::Reason::kRestricted);
    EXPECT_FALSE(access.Check(known, operation));
  }
  EXPECT_FALSE(access.Check(stranger, ApiOperation::kModelConfig, "m"));
  EXPECT_TRUE(access.IsSecretHeader("Triton-Grpc-Protocol-ADMIN-key"));
  EXPECT_FALSE(access.IsSecretHeader("triton-grpc-protocol-admin"));
}

}  // namespace
}  // namespace nereid
