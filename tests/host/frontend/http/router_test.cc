// Tests of paths and methods.
#include "host/frontend/http/router.h"

#include <gtest/gtest.h>

namespace nereid::http {
namespace {

TEST(RouterTest, FindsEveryEndpoint) {
  const struct {
    const char* path;
    Endpoint endpoint;
  } cases[] = {
      {"/v2", Endpoint::kServerMetadata},
      {"/v2/health/live", Endpoint::kServerLive},
      {"/v2/health/ready", Endpoint::kServerReady},
      {"/v2/models/stats", Endpoint::kAllStatistics},
      {"/v2/models/m", Endpoint::kModelMetadata},
      {"/v2/models/m/ready", Endpoint::kModelReady},
      {"/v2/models/m/config", Endpoint::kModelConfig},
      {"/v2/models/m/stats", Endpoint::kModelStatistics},
      {"/v2/models/m/infer", Endpoint::kInfer},
      {"/v2/models/m/generate", Endpoint::kGenerate},
      {"/v2/models/m/generate_stream", Endpoint::kGenerateStream},
      {"/v2/repository/index", Endpoint::kRepositoryIndex},
      {"/v2/repository/models/m/load", Endpoint::kModelLoad},
      {"/v2/repository/models/m/unload", Endpoint::kModelUnload},
      {"/v2/logging", Endpoint::kLogSettings},
  };
  for (const auto& example : cases) {
    EXPECT_EQ(FindRoute(example.path).endpoint, example.endpoint) << example.path;
  }
}

TEST(RouterTest, ReadsModelAndVersionFromThePath) {
  const Route route = FindRoute("/v2/models/my.model-1/versions/12/infer");
  EXPECT_EQ(route.endpoint, Endpoint::kInfer);
  EXPECT_EQ(route.model.name, "my.model-1");
  EXPECT_EQ(route.model.version, 12);
  EXPECT_EQ(FindRoute("/v2/models/m/versions/3").endpoint, Endpoint::kModelMetadata);
  EXPECT_EQ(FindRoute("/v2/models/m").model.version, -1);
}

TEST(RouterTest, RejectsUnknownPaths) {
  for (const char* path :
       {"", "/", "/v1", "/v2/", "/v2/models", "/v2/models/", "/v2/models//infer", "/v2/models/m/",
        "/v2/models/m/nope", "/v2/models/m/versions/abc", "/v2/models/m/versions/-1/infer",
        "/v2/models/m/versions/1/trace/setting", "/v2/models/m/versions//infer", "/v2/health",
        "//v2//health/ready", "/v2/repository", "/v2/repository/models/m",
        "/v2/repository/models//load", "*"}) {
    EXPECT_EQ(FindRoute(path).endpoint, Endpoint::kUnknown) << path;
  }
}

TEST(RouterTest, ReportsAVersionThatExceedsInt64) {
  const Route route = FindRoute("/v2/models/m/versions/99999999999999999999/infer");
  EXPECT_EQ(route.endpoint, Endpoint::kInfer);
  EXPECT_EQ(route.oversized_version, "99999999999999999999");
  EXPECT_EQ(FindRoute("/v2/models/m/versions/9223372036854775807/infer").oversized_version, "");
}

TEST(RouterTest, EachEndpointAcceptsItsMethods) {
  EXPECT_TRUE(AcceptsMethod(Endpoint::kInfer, Method::kPost));
  EXPECT_FALSE(AcceptsMethod(Endpoint::kInfer, Method::kGet));
  EXPECT_TRUE(AcceptsMethod(Endpoint::kServerReady, Method::kGet));
  EXPECT_FALSE(AcceptsMethod(Endpoint::kServerReady, Method::kHead));
  EXPECT_TRUE(AcceptsMethod(Endpoint::kLogSettings, Method::kPost));
}

TEST(RouterTest, ReadsTheRepositoryFromThePath) {
  EXPECT_EQ(FindRoute("/v2/repository/r/index").endpoint, Endpoint::kRepositoryIndex);
  const Route load = FindRoute("/v2/repository/r/models/m/load");
  EXPECT_EQ(load.endpoint, Endpoint::kModelLoad);
  EXPECT_EQ(load.repository, "r");
  EXPECT_EQ(load.model.name, "m");
  EXPECT_EQ(FindRoute("/v2/repository/models/m/load").repository, "");
  for (const char* path : {"/v2/repository//index", "/v2/repository/r", "/v2/repository/r/m/load",
                           "/v2/repository/models//load"}) {
    EXPECT_EQ(FindRoute(path).endpoint, Endpoint::kUnknown) << path;
  }
}

TEST(RouterTest, ReadsTheRegionFromThePath) {
  EXPECT_EQ(FindRoute("/v2/systemsharedmemory/register").endpoint, Endpoint::kSystemMemoryRegister);
  EXPECT_EQ(FindRoute("/v2/cudasharedmemory/region/r/register").region, "r");
}

}  // namespace
}  // namespace nereid::http
