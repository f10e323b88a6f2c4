#include "backends/python_like_scripted/settings.h"

#include <gtest/gtest.h>

namespace nereid::python {
namespace {

Result<Settings> Parsed(const std::string& cmdline) {
  return Settings::Parse(*Json::Parse("{\"cmdline\":" + cmdline + "}"));
}

TEST(ScriptedSettingsTest, HasTritonsDefaults) {
  const Settings settings = *Parsed("{}");
  EXPECT_EQ(settings.region_bytes, 1u << 20);
  EXPECT_EQ(settings.region_growth_bytes, 1u << 20);
  EXPECT_EQ(settings.region_max_bytes, 0u);
  EXPECT_EQ(settings.start_timeout, std::chrono::seconds(30));
  EXPECT_EQ(settings.load_timeout, std::chrono::seconds(0));
  EXPECT_EQ(settings.execute_timeout, std::chrono::seconds(0));
}

TEST(ScriptedSettingsTest, ReadsEveryKey) {
  const Settings settings = *Parsed(
      R"({"shm-default-byte-size":"4096","shm-growth-byte-size":"8192","shm-region-prefix-name":"p",)"
      R"("shm-max-byte-size":"65536",)"
      R"("stub-timeout-seconds":"3","execute-timeout-seconds":"7","thread-pool-size":"2",)"
      R"("shm_message_queue_size":"9","interpreter":"/opt/python"})");
  EXPECT_EQ(settings.region_bytes, 4096u);
  EXPECT_EQ(settings.region_growth_bytes, 8192u);
  EXPECT_EQ(settings.region_max_bytes, 65536u);
  EXPECT_EQ(settings.region_prefix, "p");
  EXPECT_EQ(settings.start_timeout, std::chrono::seconds(3));
  EXPECT_EQ(settings.load_timeout, std::chrono::seconds(3));
  EXPECT_EQ(settings.execute_timeout, std::chrono::seconds(7));
  EXPECT_EQ(settings.interpreter, "/opt/python");
  EXPECT_TRUE(settings.is_interpreter_configured);
}

TEST(ScriptedSettingsTest, NamesTheKeyThatIsWrong) {
  for (const char* key : {"shm-default-byte-size", "shm-growth-byte-size", "shm-max-byte-size",
                          "stub-timeout-seconds", "execute-timeout-seconds", "thread-pool-size",
                          "shm_message_queue_size"}) {
    const auto settings = Parsed(StrCat("{\"", key, "\":\"-1\"}"));
    ASSERT_FALSE(settings.ok()) << key;
    EXPECT_NE(settings.status().message().find(key), std::string::npos);
    EXPECT_NE(settings.status().message().find("got '-1'"), std::string::npos);
  }
}

TEST(ScriptedSettingsTest, NamesALimitBelowTheInitialSize) {
  const auto settings = Parsed(R"({"shm-default-byte-size":"8192","shm-max-byte-size":"4096"})");
  ASSERT_FALSE(settings.ok());
  EXPECT_NE(settings.status().message().find("expected at least the 8192 of shm-default-byte-size, "
                                             "got 4096"),
            std::string::npos);
}

TEST(ScriptedSettingsTest, NamesUnknownKeys) {
  const auto settings = Parsed(R"({"stub-timeout-second":"3","thread-pool-size":"2"})");
  ASSERT_TRUE(settings.ok());
  EXPECT_EQ(settings->unknown_keys, std::vector<std::string>{"stub-timeout-second"});
  EXPECT_NE(Settings::KnownKeys().find("stub-timeout-seconds, "), std::string::npos);
}

TEST(ScriptedSettingsTest, AcceptsKeysThatTheHostPassesToEveryBackend) {
  const auto settings = Parsed(R"({"auto-complete-config":"true","backend-directory":"/b",)"
                               R"("min-compute-capability":"6.0","default-max-batch-size":"4"})");
  ASSERT_TRUE(settings.ok());
  EXPECT_TRUE(settings->unknown_keys.empty());
}

}  // namespace
}  // namespace nereid::python
