#include "host/core/handle/error.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace nereid::core {
namespace {

TEST(ErrorTest, KeepsCodeAndMessageThroughTheCApi) {
  TRITONSERVER_Error* error = ToError(NotFoundError("model '", 7, "'"));
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(CopyError(error).message(), "model '7'");
  const Status status = TakeError(error);
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "model '7'");
  EXPECT_EQ(ToError(Status::Ok()), nullptr);
  EXPECT_TRUE(TakeError(nullptr).ok());
}

TEST(ErrorTest, ConvertsExceptionsToErrors) {
  const Status status =
      TakeError(AtCBoundary([]() -> Status { throw std::runtime_error("boom"); }));
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_EQ(status.message(), "unexpected exception: boom");
  EXPECT_EQ(TakeError(AtCBoundary([]() -> Status { throw 1; })).code(), StatusCode::kInternal);
}

TEST(ErrorTest, NamesTheNullParameter) {
  const auto function = [](const int* value) -> TRITONSERVER_Error* {
    NEREID_RETURN_IF_NULL(value);
    return nullptr;
  };
  EXPECT_NE(TakeError(function(nullptr)).message().find("parameter 'value' must not be null"),
            std::string::npos);
}

}  // namespace
}  // namespace nereid::core
