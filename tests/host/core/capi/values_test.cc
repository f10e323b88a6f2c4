// Errors, messages, parameters, enumerator names and API versions in the C API.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "nereid/error.h"
#include "nereid/server.h"
#include "triton/core/tritoncache.h"
#include "triton/core/tritonrepoagent.h"
#include "triton/core/tritonserver.h"

namespace nereid::core {
namespace {

TEST(ValuesTest, VersionsAreThoseOfTheHeaders) {
  uint32_t major = 9, minor = 9;
  EXPECT_EQ(TRITONSERVER_ApiVersion(&major, &minor), nullptr);
  EXPECT_EQ(major, 1u);
  EXPECT_GE(minor, 34u);
  EXPECT_EQ(TRITONREPOAGENT_ApiVersion(&major, &minor), nullptr);
  EXPECT_EQ(TRITONCACHE_ApiVersion(&major, &minor), nullptr);
  EXPECT_EQ(major, 0u);
  EXPECT_EQ(minor, 1u);
}

TEST(ValuesTest, ErrorsHaveCodeAndMessage) {
  TRITONSERVER_Error* error = TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_NOT_FOUND, "gone");
  EXPECT_EQ(TRITONSERVER_ErrorCode(error), TRITONSERVER_ERROR_NOT_FOUND);
  EXPECT_STREQ(TRITONSERVER_ErrorCodeString(error), "Not found");
  EXPECT_STREQ(TRITONSERVER_ErrorMessage(error), "gone");
  TRITONSERVER_ErrorDelete(error);
  TRITONSERVER_ErrorDelete(nullptr);
}

TEST(ValuesTest, AMessageMustBeJson) {
  TRITONSERVER_Message* message = nullptr;
  const Status status = ToStatus(TRITONSERVER_MessageNewFromSerializedJson(&message, "{bad", 4));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArg);
  ASSERT_EQ(TRITONSERVER_MessageNewFromSerializedJson(&message, "{\"a\":1}x", 7), nullptr);
  const char* base = nullptr;
  size_t size_bytes = 0;
  ASSERT_EQ(TRITONSERVER_MessageSerializeToJson(message, &base, &size_bytes), nullptr);
  EXPECT_EQ(std::string(base, size_bytes), "{\"a\":1}");
  EXPECT_EQ(TRITONSERVER_MessageDelete(message), nullptr);
}

TEST(ValuesTest, ParametersRefuseNullsAndTypesWithoutSize) {
  const int64_t value = 3;
  TRITONSERVER_Parameter* parameter =
      TRITONSERVER_ParameterNew("p", TRITONSERVER_PARAMETER_INT, &value);
  EXPECT_NE(parameter, nullptr);
  TRITONSERVER_ParameterDelete(parameter);
  EXPECT_EQ(TRITONSERVER_ParameterNew("p", TRITONSERVER_PARAMETER_BYTES, "x"), nullptr);
  EXPECT_EQ(TRITONSERVER_ParameterNew(nullptr, TRITONSERVER_PARAMETER_INT, &value), nullptr);
  EXPECT_EQ(TRITONSERVER_ParameterNew("p", TRITONSERVER_PARAMETER_STRING, nullptr), nullptr);
  EXPECT_EQ(TRITONSERVER_ParameterBytesNew("p", nullptr, 4), nullptr);
}

TEST(ValuesTest, EnumeratorsHaveNames) {
  EXPECT_STREQ(TRITONSERVER_DataTypeString(TRITONSERVER_TYPE_BF16), "BF16");
  EXPECT_EQ(TRITONSERVER_StringToDataType("BYTES"), TRITONSERVER_TYPE_BYTES);
  EXPECT_EQ(TRITONSERVER_StringToDataType("TYPE_FP32"), TRITONSERVER_TYPE_INVALID);
  EXPECT_EQ(TRITONSERVER_DataTypeByteSize(TRITONSERVER_TYPE_INT64), 8u);
  EXPECT_STREQ(TRITONSERVER_MemoryTypeString(TRITONSERVER_MEMORY_CPU_PINNED), "CPU_PINNED");
  EXPECT_STREQ(TRITONSERVER_ParameterTypeString(TRITONSERVER_PARAMETER_DOUBLE), "DOUBLE");
  EXPECT_STREQ(TRITONSERVER_InstanceGroupKindString(TRITONSERVER_INSTANCEGROUPKIND_MODEL), "MODEL");
  EXPECT_STREQ(TRITONSERVER_MemoryTypeString(static_cast<TRITONSERVER_MemoryType>(3)), "<invalid>");
}

TEST(ValuesTest, LogCallbackGetsEveryLine) {
  std::vector<std::string> lines;
  const auto callback = [](TRITONSERVER_LogLevel level, const char* file, int line,
                           uint64_t time_us, const char* message, void* userp) {
    EXPECT_GT(time_us, 1'700'000'000'000'000u);
    static_cast<std::vector<std::string>*>(userp)->push_back(
        StrCat(level, " ", file, ":", line, " ", message));
  };
  ASSERT_EQ(TRITONSERVER_ServerOptionsSetLogCallback(nullptr, callback, &lines), nullptr);
  ASSERT_EQ(TRITONSERVER_LogMessage(TRITONSERVER_LOG_WARN, "a/b.cc", 3, "text"), nullptr);
  ASSERT_EQ(TRITONSERVER_ServerOptionsSetLogCallback(nullptr, nullptr, nullptr), nullptr);
  ASSERT_EQ(TRITONSERVER_LogMessage(TRITONSERVER_LOG_WARN, "a/b.cc", 4, "other"), nullptr);
  EXPECT_EQ(lines, std::vector<std::string>{"1 b.cc:3 text"});
}

TEST(ValuesTest, OptionsRefuseInvalidValues) {
  const ServerOptions options = std::move(ServerOptions::Create()).value();
  const auto mode = [&](int value) {
    return ToStatus(TRITONSERVER_ServerOptionsSetRateLimiterMode(
        options.get(), static_cast<TRITONSERVER_RateLimitMode>(value)));
  };
  EXPECT_TRUE(mode(TRITONSERVER_RATE_LIMIT_EXEC_COUNT).ok());
  EXPECT_EQ(mode(2).message(), "unknown rate limit mode '2'");
  const auto limit = [&](TRITONSERVER_InstanceGroupKind kind, int device, double fraction) {
    return ToStatus(
        TRITONSERVER_ServerOptionsSetModelLoadDeviceLimit(options.get(), kind, device, fraction));
  };
  EXPECT_TRUE(limit(TRITONSERVER_INSTANCEGROUPKIND_GPU, 0, 0.5).ok());
  EXPECT_EQ(limit(TRITONSERVER_INSTANCEGROUPKIND_GPU, -1, 0.5).code(), StatusCode::kInvalidArg);
  EXPECT_EQ(limit(TRITONSERVER_INSTANCEGROUPKIND_GPU, 0, 1.5).code(), StatusCode::kInvalidArg);
  EXPECT_EQ(limit(TRITONSERVER_INSTANCEGROUPKIND_CPU, 0, 0.5).code(), StatusCode::kInvalidArg);
}

TEST(ValuesTest, NullHandlesAreErrorsNotCrashes) {
  EXPECT_EQ(ToStatus(TRITONSERVER_ServerIsLive(nullptr, nullptr)).code(), StatusCode::kInvalidArg);
  EXPECT_EQ(ToStatus(TRITONSERVER_ServerOptionsSetServerId(nullptr, "x")).code(),
            StatusCode::kInvalidArg);
  EXPECT_EQ(ToStatus(TRITONSERVER_MessageSerializeToJson(nullptr, nullptr, nullptr)).code(),
            StatusCode::kInvalidArg);
  EXPECT_EQ(ToStatus(TRITONSERVER_ServerLoadModel(nullptr, "m")).code(), StatusCode::kInvalidArg);
  EXPECT_TRUE(ToStatus(TRITONSERVER_ServerDelete(nullptr)).ok());
}

}  // namespace
}  // namespace nereid::core
