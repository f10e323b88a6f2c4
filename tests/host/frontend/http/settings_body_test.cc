// What clients say when they change what is logged and traced.
#include "host/frontend/http/bodies/settings_body.h"

#include <gtest/gtest.h>

namespace nereid::http {
namespace {

TEST(SettingsBodyTest, ALogChangeNamesWhatChanges) {
  const Result<LogChange> change = ReadLogChange(
      R"({"log_info":false,"log_error":null,"log_verbose_level":3,"log_format":"ISO8601"})", 64);
  ASSERT_TRUE(change.ok()) << change.status().message();
  EXPECT_EQ(change->info, false);
  EXPECT_FALSE(change->warning.has_value());
  EXPECT_FALSE(change->error.has_value());
  EXPECT_EQ(change->verbose_level, 3u);
  EXPECT_EQ(change->format, "ISO8601");
}

TEST(SettingsBodyTest, ALogChangeOfAnotherKindIsRefusedByName) {
  for (const auto& [body, name] : std::vector<std::pair<const char*, const char*>>{
           {R"({"log_info":1})", "log_info"},
           {R"({"log_verbose_level":-1})", "log_verbose_level"},
           {R"({"log_infos":true})", "log_infos"},
           {R"({"log_file":"/tmp/x"})", "log file"}}) {
    const Result<LogChange> change = ReadLogChange(body, 64);
    ASSERT_FALSE(change.ok()) << body;
    EXPECT_NE(change.status().message().find(name), std::string::npos) << change.status().message();
  }
  EXPECT_FALSE(ReadLogChange("", 64).ok());
}

TEST(SettingsBodyTest, ATraceChangeSetsAndClears) {
  const Result<TraceChange> change = ReadTraceChange(
      R"({"trace_level":["TIMESTAMPS","TENSORS"],"trace_rate":"5","trace_count":null})", 64);
  ASSERT_TRUE(change.ok()) << change.status().message();
  const TraceChange expected{{"trace_level", std::vector<std::string>{"TIMESTAMPS", "TENSORS"}},
                             {"trace_rate", std::vector<std::string>{"5"}},
                             {"trace_count", std::nullopt}};
  EXPECT_EQ(*change, expected);
}

TEST(SettingsBodyTest, AListWithoutLevelsChangesNothing) {
  const Result<TraceChange> change = ReadTraceChange(R"({"trace_level":[]})", 64);
  ASSERT_TRUE(change.ok()) << change.status().message();
  EXPECT_TRUE(change->empty());
}

TEST(SettingsBodyTest, ATraceChangeOfAnotherKindIsRefusedByName) {
  for (const char* body : {R"({"trace_level":"OFF"})", R"({"trace_level":[1]})"}) {
    const Result<TraceChange> change = ReadTraceChange(body, 64);
    ASSERT_FALSE(change.ok()) << body;
    EXPECT_TRUE(change.status().message().starts_with("'trace_level': ")) << body;
  }
  EXPECT_FALSE(ReadTraceChange(R"({"trace_rate":5})", 64).ok());
}

}  // namespace
}  // namespace nereid::http
