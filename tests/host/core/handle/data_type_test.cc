#include "host/core/handle/data_type.h"

#include <gtest/gtest.h>

#include <string>

#include "triton/core/tritonserver.h"

namespace nereid {
namespace {

TEST(DataTypeTest, NamesAndValuesAreThoseOfTheApi) {
  for (int i = TRITONSERVER_TYPE_BOOL; i <= TRITONSERVER_TYPE_BF16; ++i) {
    const auto type = static_cast<DataType>(i);
    EXPECT_EQ(DataTypeFromName(DataTypeName(type)), type);
  }
  EXPECT_EQ(static_cast<int>(DataTypeFromName("BYTES")), TRITONSERVER_TYPE_BYTES);
  EXPECT_EQ(static_cast<int>(DataTypeFromName("BF16")), TRITONSERVER_TYPE_BF16);
  EXPECT_EQ(DataTypeByteSize(DataType::kFp16), 2u);
  EXPECT_EQ(DataTypeByteSize(DataType::kBytes), 0u);
}

TEST(DataTypeTest, UnknownNamesAndValuesAreInvalid) {
  EXPECT_EQ(DataTypeFromName("FP33"), DataType::kInvalid);
  EXPECT_EQ(DataTypeFromName("<invalid>"), DataType::kInvalid);
  EXPECT_EQ(std::string(DataTypeName(static_cast<DataType>(99))), "<invalid>");
  EXPECT_EQ(DataTypeFromConfigName("TYPE_STRING"), DataType::kBytes);
  EXPECT_EQ(DataTypeFromConfigName("TYPE_BF16"), DataType::kBf16);
  EXPECT_EQ(DataTypeFromConfigName("FP32"), DataType::kInvalid);
}

}  // namespace
}  // namespace nereid
