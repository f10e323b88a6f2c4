// Tests of OriginPolicy: which web pages may use the server.
#include "host/frontend/openai/origin_policy.h"

#include <gtest/gtest.h>

namespace nereid::openai {
namespace {

constexpr std::string_view kAbsent;

TEST(OriginPolicyTest, AProgramThatIsNoBrowserMayUseTheServer) {
  const OriginPolicy local({}, true);
  EXPECT_TRUE(local.Check(kAbsent, "127.0.0.1:8000").ok());
  EXPECT_TRUE(local.Check(kAbsent, "LOCALHOST").ok());
  EXPECT_TRUE(local.Check(kAbsent, "[::1]:8000").ok());
  EXPECT_TRUE(local.Check(kAbsent, "x.localhost:1").ok());
  EXPECT_TRUE(local.Check(kAbsent, kAbsent).ok());
  EXPECT_TRUE(OriginPolicy({}, false).Check(kAbsent, "api.example.com").ok());
}

TEST(OriginPolicyTest, AForeignPageMayNotUseTheServer) {
  for (const bool is_local : {false, true}) {
    const OriginPolicy policy({}, is_local);
    EXPECT_FALSE(policy.Check("https://evil.example", "127.0.0.1:8000").ok());
    EXPECT_FALSE(policy.Check("null", "127.0.0.1:8000").ok());
    EXPECT_FALSE(policy.Check("http://localhost:9000", "localhost:8000").ok());
    EXPECT_FALSE(policy.Check("", "localhost:8000").ok());
    EXPECT_TRUE(policy.Check("http://localhost:8000", "localhost:8000").ok());
  }
}

TEST(OriginPolicyTest, APageWhoseHostLeadsToThisMachineMayNotUseIt) {
  const OriginPolicy local({}, true);
  EXPECT_FALSE(local.Check("http://evil.example:8000", "evil.example:8000").ok());
  EXPECT_FALSE(local.Check(kAbsent, "evil.example:8000").ok());
  EXPECT_FALSE(local.Check(kAbsent, "127.0.0.1.evil.example").ok());
  EXPECT_FALSE(local.Check(kAbsent, "").ok());
  EXPECT_FALSE(OriginPolicy({}, false).Check("http://evil.example", "evil.example").ok());
}

TEST(OriginPolicyTest, AListedPageMayUseTheServer) {
  const OriginPolicy policy({"https://Chat.example:444"}, true);
  EXPECT_TRUE(policy.IsListed("https://chat.example:444"));
  EXPECT_FALSE(policy.IsListed("https://chat.example"));
  EXPECT_FALSE(policy.IsListed(""));
  EXPECT_TRUE(policy.Check("https://chat.example:444", "127.0.0.1").ok());
  EXPECT_TRUE(policy.Check(kAbsent, "chat.example").ok());
  EXPECT_TRUE(OriginPolicy({"*"}, true).Check("null", "evil.example").ok());
}

TEST(OriginPolicyTest, OriginsAndAddressesHaveTheirForm) {
  EXPECT_TRUE(CheckOrigin("*").ok() && CheckOrigin("http://a:1").ok());
  EXPECT_FALSE(CheckOrigin("a.example").ok());
  EXPECT_FALSE(CheckOrigin("http://a/").ok());
  EXPECT_FALSE(CheckOrigin("http://a,http://b").ok());
  EXPECT_TRUE(IsLocalAddress("127.0.0.1") && IsLocalAddress("::1") && IsLocalAddress("localhost"));
  EXPECT_FALSE(IsLocalAddress("0.0.0.0"));
}

}  // namespace
}  // namespace nereid::openai
