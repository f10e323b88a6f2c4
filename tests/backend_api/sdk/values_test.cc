// Tests data types, shapes and the BYTES codec, which need no host.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "nereid/bytes_codec.h"
#include "nereid/data_type.h"
#include "nereid/tensor_view.h"

namespace nereid {
namespace {

TEST(DataTypeTest, NamesConvertInBothDirections) {
  for (uint32_t value = 1; value <= 14; ++value) {
    const auto type = static_cast<DataType>(value);
    EXPECT_EQ(DataTypeFromName(Name(type)), type) << Name(type);
    EXPECT_EQ(DataTypeFromName(ConfigName(type)), type) << ConfigName(type);
  }
  EXPECT_EQ(DataTypeFromName("FP31"), DataType::kInvalid);
  EXPECT_EQ(DataTypeFromName(""), DataType::kInvalid);
  EXPECT_STREQ(Name(static_cast<DataType>(99)), "<invalid>");
}

TEST(DataTypeTest, ValuesAreThoseOfTheCApi) {
  for (int i = TRITONSERVER_TYPE_BOOL; i <= TRITONSERVER_TYPE_BF16; ++i) {
    const auto type = static_cast<DataType>(i);
    EXPECT_EQ(DataTypeFromProtocolName(Name(type)), type);
    EXPECT_EQ(DataTypeFromConfigName(ConfigName(type)), type);
  }
  EXPECT_EQ(static_cast<int>(DataTypeFromProtocolName("BYTES")), TRITONSERVER_TYPE_BYTES);
  EXPECT_EQ(static_cast<int>(DataTypeFromProtocolName("BF16")), TRITONSERVER_TYPE_BF16);
  EXPECT_EQ(ByteSize(DataType::kFp16), 2u);
}

TEST(DataTypeTest, ProtocolAndConfigNamesAreDistinct) {
  EXPECT_EQ(DataTypeFromProtocolName("FP33"), DataType::kInvalid);
  EXPECT_EQ(DataTypeFromProtocolName("<invalid>"), DataType::kInvalid);
  EXPECT_EQ(DataTypeFromProtocolName("TYPE_FP32"), DataType::kInvalid);
  EXPECT_EQ(DataTypeFromProtocolName("STRING"), DataType::kInvalid);
  EXPECT_EQ(DataTypeFromConfigName("TYPE_STRING"), DataType::kBytes);
  EXPECT_EQ(DataTypeFromConfigName("TYPE_BF16"), DataType::kBf16);
  EXPECT_EQ(DataTypeFromConfigName("TYPE_INVALID"), DataType::kInvalid);
  EXPECT_EQ(DataTypeFromConfigName("FP32"), DataType::kInvalid);
}

TEST(DataTypeTest, SizesAreThoseOfTheCppTypes) {
  EXPECT_EQ(ByteSize(kDataTypeOf<Bool>), sizeof(Bool));
  EXPECT_EQ(ByteSize(kDataTypeOf<int16_t>), sizeof(int16_t));
  EXPECT_EQ(ByteSize(kDataTypeOf<Bf16>), sizeof(Bf16));
  EXPECT_EQ(ByteSize(kDataTypeOf<float>), sizeof(float));
  EXPECT_EQ(ByteSize(kDataTypeOf<uint64_t>), sizeof(uint64_t));
  EXPECT_EQ(ByteSize(DataType::kBytes), 0u);
  static_assert(!TensorElement<bool> && !TensorElement<std::string>);
}

TEST(DataTypeTest, EveryByteButZeroIsTrue) {
  Bool two;
  two.byte = 2;
  EXPECT_TRUE(two);
  EXPECT_FALSE(Bool());
}

TEST(ShapeTest, CountsElements) {
  EXPECT_EQ(*ElementCount(std::vector<int64_t>{}), 1u);
  EXPECT_EQ(*ElementCount(std::vector<int64_t>{2, 3}), 6u);
  EXPECT_EQ(*ElementCount(std::vector<int64_t>{2, 0, 3}), 0u);
}

TEST(ShapeTest, RefusesWhatDoesNotFit) {
  const int64_t huge = int64_t{1} << 62;
  EXPECT_EQ(ElementCount(std::vector<int64_t>{huge}, 4).status().code(), StatusCode::kInvalidArg);
  EXPECT_FALSE(ElementCount(std::vector<int64_t>{huge, 2}).ok());
  EXPECT_TRUE(ElementCount(std::vector<int64_t>{huge}).ok());
  EXPECT_EQ(*ElementCount(std::vector<int64_t>{huge, 4, 0}), 0u) << "there is nothing to hold";
  EXPECT_EQ(ElementCount(std::vector<int64_t>{2, -1}).status().message(),
            "shape [2, -1]: negative dimension -1");
  EXPECT_FALSE(ElementCount(std::vector<int64_t>{0, -1}).ok())
      << "a negative dimension is wrong wherever it stands";
}

TEST(BytesCodecTest, DecodesWhatItEncoded) {
  const std::vector<std::string> elements = {"", "a", std::string("\0\xff", 2),
                                             std::string(300, 'x')};
  const Result<std::string> data = EncodeBytes(elements);
  ASSERT_TRUE(data.ok());
  EXPECT_EQ(data->substr(4, 5), std::string("\1\0\0\0a", 5));
  const Result<std::vector<std::string_view>> decoded =
      DecodeBytes(std::as_bytes(std::span(*data)), elements.size());
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(std::vector<std::string>(decoded->begin(), decoded->end()), elements);
}

TEST(BytesCodecTest, NamesTheElementThatIsCutOff) {
  const std::string data("\1\0\0\0a\5\0\0\0bc", 11);
  BytesReader reader(data);
  EXPECT_EQ(*reader.Next(), "a");
  EXPECT_EQ(reader.Next().status().message(), "BYTES element 1: expected 5 bytes, got 2");
  BytesReader cut(std::string_view("\1\0", 2));
  EXPECT_EQ(cut.Next().status().message(), "BYTES element 0: expected a length of 4 bytes, got 2");
}

TEST(BytesCodecTest, ALengthBeyondTheDataIsNoReadBeyondIt) {
  BytesReader reader(std::string_view("\xff\xff\xff\xff", 4));
  EXPECT_EQ(reader.Next().status().code(), StatusCode::kInvalidArg);
}

TEST(BytesCodecTest, RefusesAnotherNumberOfElements) {
  const std::string data = *EncodeBytes(std::vector<std::string>{"a", "b"});
  const auto bytes = std::as_bytes(std::span(data));
  EXPECT_EQ(DecodeBytes(bytes, 3).status().message(), "expected 3 BYTES elements, got 2");
  EXPECT_FALSE(DecodeBytes(bytes, 1).ok());
  EXPECT_FALSE(DecodeBytes(bytes, std::numeric_limits<size_t>::max()).ok());
}

}  // namespace
}  // namespace nereid
