// Tests of the request bodies that load and unload models and change log and trace settings, and of
// DecodeBase64 against known results.
#include "host/frontend/http/bodies/control_bodies.h"

#include <gtest/gtest.h>

#include "host/frontend/http/bodies/base64.h"

namespace nereid::http {
namespace {

TEST(Base64Test, DecodesWithAndWithoutPadding) {
  EXPECT_EQ(DecodeBase64(""), "");
  EXPECT_EQ(DecodeBase64("Zg=="), "f");
  EXPECT_EQ(DecodeBase64("Zg"), "f");
  EXPECT_EQ(DecodeBase64("Zm9vYmFy"), "foobar");
  EXPECT_EQ(DecodeBase64("Zm9v\r\nYg==\n"), "foob");
  EXPECT_EQ(DecodeBase64("/+8="), "\xff\xef");
}

TEST(Base64Test, RejectsInvalidBase64) {
  EXPECT_FALSE(DecodeBase64("Z"));
  EXPECT_FALSE(DecodeBase64("Zm9vZ"));
  EXPECT_FALSE(DecodeBase64("Zm=v"));
}

template <typename T>
std::string ErrorOf(const Result<T>& result) {
  return result.ok() ? "no error" : result.status().message();
}

TEST(RepositoryBodyTest, AnEmptyBodyMeansDefaults) {
  const Result<LoadBody> load = ReadLoadBody("", 64);
  ASSERT_TRUE(load.ok());
  EXPECT_FALSE(load->config.has_value());
  EXPECT_TRUE(load->files.empty());
  EXPECT_FALSE(*ReadUnloadBody("", 64));
  EXPECT_FALSE(*ReadIndexBody("", 64));
}

TEST(RepositoryBodyTest, ReadsTheConfigurationAndFilesOfALoad) {
  const Result<LoadBody> load = ReadLoadBody(
      R"({"x":[],"parameters":{"file:1/m":"aGk=","config":"{\"a\":1}","file:n":""}})", 64);
  ASSERT_TRUE(load.ok()) << load.status().message();
  EXPECT_EQ(load->config, "{\"a\":1}");
  ASSERT_EQ(load->files.size(), 2u);
  EXPECT_EQ(load->files[0].name, "file:1/m");
  EXPECT_EQ(load->files[0].bytes, "hi");
  EXPECT_EQ(load->files[1].bytes, "");
}

TEST(RepositoryBodyTest, RejectsZeroBytes) {
  EXPECT_EQ(ErrorOf(ReadLoadBody(R"({"parameters":{"config":"{}\u0000x"}})", 64)),
            "'config' holds a zero byte");
  EXPECT_EQ(ErrorOf(ReadLoadBody(R"({"parameters":{"file:1\u0000x":""}})", 64)),
            "'file:<path>' holds a zero byte");
}

TEST(RepositoryBodyTest, RejectsInvalidBodies) {
  for (const char* body :
       {"[]", "{", R"({"parameters":[]})", R"({"parameters":{"config":1}})",
        R"({"parameters":{"colour":"red"}})", R"({"parameters":{"file:x":"%"}})",
        R"({"parameters":{"config":"","config":""}})", R"({"parameters":{}} x)"}) {
    EXPECT_FALSE(ReadLoadBody(body, 64).ok()) << body;
  }
  EXPECT_FALSE(ReadUnloadBody(R"({"parameters":{"unload_dependents":1}})", 64).ok());
  EXPECT_FALSE(ReadIndexBody(R"({"ready":"true"})", 64).ok());
}

TEST(RepositoryBodyTest, ReadsBooleanParameters) {
  EXPECT_TRUE(*ReadUnloadBody(R"({"parameters":{"unload_dependents":true,"x":1}})", 64));
  EXPECT_FALSE(*ReadUnloadBody(R"({"unload_dependents":true})", 64));
  EXPECT_TRUE(*ReadIndexBody(R"({"x":{},"ready":true})", 64));
}

TEST(SettingsBodyTest, ReadsTheMembersOfALogChange) {
  const Result<LogChange> change = ReadLogChange(
      R"({"log_info":false,"log_error":null,"log_verbose_level":3,"log_format":"ISO8601"})", 64);
  ASSERT_TRUE(change.ok()) << change.status().message();
  EXPECT_EQ(change->info, false);
  EXPECT_FALSE(change->warning.has_value());
  EXPECT_FALSE(change->error.has_value());
  EXPECT_EQ(change->verbose_level, 3u);
  EXPECT_EQ(change->format, "ISO8601");
}

TEST(SettingsBodyTest, RejectsALogChangeAndNamesTheMember) {
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

TEST(SettingsBodyTest, RejectsATraceChangeAndNamesTheMember) {
  for (const char* body : {R"({"trace_level":"OFF"})", R"({"trace_level":[1]})"}) {
    const Result<TraceChange> change = ReadTraceChange(body, 64);
    ASSERT_FALSE(change.ok()) << body;
    EXPECT_TRUE(change.status().message().starts_with("'trace_level': ")) << body;
  }
  EXPECT_FALSE(ReadTraceChange(R"({"trace_rate":5})", 64).ok());
}

}  // namespace

}  // namespace nereid::http
