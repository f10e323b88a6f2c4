// Requests of the SageMaker platform, and the HTTP status of errors.
#include "host/frontend/cloud/sagemaker_request.h"

#include <gtest/gtest.h>

namespace nereid::http {
namespace {

TEST(SageMakerRequestTest, SplitsAPathIntoModelAndAction) {
  const auto parts = [](std::string_view path) {
    const ModelsPath read = ReadModelsPath(path);
    return std::string(read.name) + "|" + std::string(read.action);
  };
  EXPECT_EQ(parts("/models"), "|");
  EXPECT_EQ(parts("/models/"), "|");
  EXPECT_EQ(parts("/models/m"), "m|");
  EXPECT_EQ(parts("/models/m/"), "m|");
  EXPECT_EQ(parts("/models/m/invoke"), "m|invoke");
  EXPECT_EQ(parts("/models//invoke"), "|invoke");
  EXPECT_EQ(parts("/models/m/a/b"), "m|a/b");
}

TEST(SageMakerRequestTest, ALoadNamesAModelAndItsFolder) {
  const Result<SageMakerLoad> load =
      ReadSageMakerLoad(R"({"model_name":"m","url":"\/opt\/m","other":[{}]})", 64);
  ASSERT_TRUE(load.ok()) << load.status().message();
  EXPECT_EQ(load->name, "m");
  EXPECT_EQ(load->url, "/opt/m");
  for (const char* wrong :
       {"", "[]", R"({"model_name":"m"})", R"({"url":"/m"})", R"({"model_name":"","url":"/m"})",
        R"({"model_name":1,"url":"/m"})", R"({"model_name":"m","url":"/m"} x)",
        R"({"model_name":"m\u0000n","url":"/m"})", R"({"model_name":"m","url":"/m\u0000n"})"}) {
    EXPECT_FALSE(ReadSageMakerLoad(wrong, 64).ok()) << wrong;
  }
}

TEST(SageMakerRequestTest, MapsErrorsToThePlatformsStatusCodes) {
  EXPECT_EQ(SageMakerStatusOf(AlreadyExistsError("m")), 409);
  EXPECT_EQ(SageMakerStatusOf(InternalError("CUDA error: Out of memory")), 507);
  EXPECT_EQ(SageMakerStatusOf(InvalidArgError("[Errno 28] No space left on device")), 507);
  EXPECT_EQ(SageMakerStatusOf(NotFoundError("m")), 404);
  EXPECT_EQ(SageMakerStatusOf(InvalidArgError("m")), 400);
}

}  // namespace
}  // namespace nereid::http
