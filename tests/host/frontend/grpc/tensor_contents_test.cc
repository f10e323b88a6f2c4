// Conversion of typed contents to tensor bytes, and its errors.
#include "host/frontend/grpc/tensor_contents.h"

#include <gtest/gtest.h>

#include <cstring>

namespace nereid {
namespace {

using inference::InferTensorContents;

Result<std::string> Bytes(const InferTensorContents& contents, DataType datatype) {
  InputStorage storage;
  auto view = ContentsAsBytes(contents, datatype, "INPUT0", "model", storage);
  if (!view.ok()) return view.status();
  return std::string(*view);
}

template <typename T>
std::string Raw(std::initializer_list<T> values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), std::data(values), bytes.size());
  return bytes;
}

TEST(TensorContentsTest, ReferencesTypesOfTheSameWidth) {
  InferTensorContents contents;
  contents.add_int64_contents(-2);
  EXPECT_EQ(*Bytes(contents, DataType::kInt64), Raw<int64_t>({-2}));
  contents.Clear();
  contents.add_fp32_contents(1.5f);
  contents.add_fp32_contents(-0.0f);
  EXPECT_EQ(*Bytes(contents, DataType::kFp32), Raw<float>({1.5f, -0.0f}));
  contents.Clear();
  contents.add_bool_contents(true);
  contents.add_bool_contents(false);
  EXPECT_EQ(*Bytes(contents, DataType::kBool), std::string("\1\0", 2));
}

TEST(TensorContentsTest, ReferencesTheMessageWithoutACopy) {
  InferTensorContents contents;
  contents.add_fp64_contents(2.5);
  InputStorage storage;
  const auto view = ContentsAsBytes(contents, DataType::kFp64, "INPUT0", "model", storage);
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(static_cast<const void*>(view->data()), contents.fp64_contents().data());
  EXPECT_TRUE(storage.empty());
}

TEST(TensorContentsTest, NarrowsSmallIntegers) {
  InferTensorContents contents;
  for (const int value : {-128, 127}) contents.add_int_contents(value);
  EXPECT_EQ(*Bytes(contents, DataType::kInt8), Raw<int8_t>({-128, 127}));
  EXPECT_EQ(*Bytes(contents, DataType::kInt16), Raw<int16_t>({-128, 127}));
  contents.Clear();
  contents.add_uint_contents(65535);
  EXPECT_EQ(*Bytes(contents, DataType::kUint16), Raw<uint16_t>({65535}));
}

TEST(TensorContentsTest, RejectsIntegersOutOfRange) {
  InferTensorContents contents;
  contents.add_int_contents(128);
  EXPECT_EQ(Bytes(contents, DataType::kInt8).status().message(),
            "input 'INPUT0' for model 'model': value 128 does not fit INT8");
  contents.Clear();
  contents.add_uint_contents(65536);
  EXPECT_EQ(Bytes(contents, DataType::kUint16).status().code(), StatusCode::kInvalidArg);
}

TEST(TensorContentsTest, PutsTheLengthBeforeEachString) {
  InferTensorContents contents;
  contents.add_bytes_contents("ab");
  contents.add_bytes_contents("");
  contents.add_bytes_contents(std::string("\0", 1));
  EXPECT_EQ(*Bytes(contents, DataType::kBytes), std::string("\2\0\0\0ab\0\0\0\0\1\0\0\0\0", 15));
}

TEST(TensorContentsTest, NamesTheUnexpectedField) {
  InferTensorContents contents;
  contents.add_fp32_contents(1);
  EXPECT_EQ(Bytes(contents, DataType::kFp16).status().message(),
            "unexpected explicit tensor data for input tensor 'INPUT0' for model 'model' of type "
            "'FP32', expected datatype 'FP16'");
  contents.add_int_contents(1);
  EXPECT_EQ(Bytes(contents, DataType::kFp32).status().message(),
            "unexpected explicit tensor data for input tensor 'INPUT0' for model 'model' of type "
            "'INT32', expected datatype 'FP32'");
  EXPECT_EQ(Bytes(contents, DataType::kInt32).status().message(),
            "unexpected explicit tensor data for input tensor 'INPUT0' for model 'model', binary "
            "data was already supplied.");
}

TEST(TensorContentsTest, ReportsTheFirstOfThreeFields) {
  InferTensorContents contents;
  contents.add_bool_contents(true);
  contents.add_int_contents(1);
  contents.add_uint_contents(1);
  EXPECT_EQ(Bytes(contents, DataType::kInt8).status().message(),
            "unexpected explicit tensor data for input tensor 'INPUT0' for model 'model' of type "
            "'BOOL', expected datatype 'INT8'");
  EXPECT_EQ(Bytes(contents, DataType::kBool).status().message(),
            "unexpected explicit tensor data for input tensor 'INPUT0' for model 'model', binary "
            "data was already supplied.");
}

TEST(TensorContentsTest, ReturnsNoBytesForEmptyContents) {
  for (const DataType datatype :
       {DataType::kFp32, DataType::kInt8, DataType::kBytes, DataType::kBf16}) {
    EXPECT_EQ(*Bytes(InferTensorContents(), datatype), "");
  }
}

}  // namespace
}  // namespace nereid
