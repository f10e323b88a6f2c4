// What clients say when they load and unload models and ask for the index.
#include "host/frontend/http/bodies/repository_body.h"

#include <gtest/gtest.h>

namespace nereid::http {
namespace {

template <typename T>
std::string ErrorOf(const Result<T>& result) {
  return result.ok() ? "no error" : result.status().message();
}

TEST(RepositoryBodyTest, AnEmptyBodyAsksForNothing) {
  const Result<LoadBody> load = ReadLoadBody("", 64);
  ASSERT_TRUE(load.ok());
  EXPECT_FALSE(load->config.has_value());
  EXPECT_TRUE(load->files.empty());
  EXPECT_FALSE(*ReadUnloadBody("", 64));
  EXPECT_FALSE(*ReadIndexBody("", 64));
}

TEST(RepositoryBodyTest, ALoadBringsAConfigurationAndFiles) {
  const Result<LoadBody> load = ReadLoadBody(
      R"({"x":[],"parameters":{"file:1/m":"aGk=","config":"{\"a\":1}","file:n":""}})", 64);
  ASSERT_TRUE(load.ok()) << load.status().message();
  EXPECT_EQ(load->config, "{\"a\":1}");
  ASSERT_EQ(load->files.size(), 2u);
  EXPECT_EQ(load->files[0].name, "file:1/m");
  EXPECT_EQ(load->files[0].bytes, "hi");
  EXPECT_EQ(load->files[1].bytes, "");
}

TEST(RepositoryBodyTest, AZeroByteWouldCutANameShort) {
  EXPECT_EQ(ErrorOf(ReadLoadBody(R"({"parameters":{"config":"{}\u0000x"}})", 64)),
            "'config' holds a zero byte");
  EXPECT_EQ(ErrorOf(ReadLoadBody(R"({"parameters":{"file:1\u0000x":""}})", 64)),
            "'file:<path>' holds a zero byte");
}

TEST(RepositoryBodyTest, RefusesWhatIsWrong) {
  for (const char* body :
       {"[]", "{", R"({"parameters":[]})", R"({"parameters":{"config":1}})",
        R"({"parameters":{"colour":"red"}})", R"({"parameters":{"file:x":"%"}})",
        R"({"parameters":{"config":"","config":""}})", R"({"parameters":{}} x)"}) {
    EXPECT_FALSE(ReadLoadBody(body, 64).ok()) << body;
  }
  EXPECT_FALSE(ReadUnloadBody(R"({"parameters":{"unload_dependents":1}})", 64).ok());
  EXPECT_FALSE(ReadIndexBody(R"({"ready":"true"})", 64).ok());
}

TEST(RepositoryBodyTest, SwitchesAreRead) {
  EXPECT_TRUE(*ReadUnloadBody(R"({"parameters":{"unload_dependents":true,"x":1}})", 64));
  EXPECT_FALSE(*ReadUnloadBody(R"({"unload_dependents":true})", 64));
  EXPECT_TRUE(*ReadIndexBody(R"({"x":{},"ready":true})", 64));
}

}  // namespace
}  // namespace nereid::http
