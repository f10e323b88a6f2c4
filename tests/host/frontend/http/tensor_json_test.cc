// Tests of the conversion between JSON arrays and tensors.
#include "host/frontend/http/bodies/tensor_json.h"

#include <gtest/gtest.h>

#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace nereid::http {
namespace {

struct ParsedTensor {
  Status status;
  std::string bytes;
};

ParsedTensor ParseTensor(std::string_view json, TRITONSERVER_DataType datatype,
                         std::vector<int64_t> shape) {
  JsonReader reader(json, 64);
  ByteBuffer data;
  ParsedTensor parsed{ReadJsonTensor(reader, datatype, shape, data), {}};
  parsed.bytes = data.view();
  return parsed;
}

template <typename T>
std::vector<T> Elements(const std::string& bytes) {
  std::vector<T> elements(bytes.size() / sizeof(T));
  std::memcpy(elements.data(), bytes.data(), bytes.size());
  return elements;
}

TEST(TensorJsonTest, ReadsFlatAndNestedArraysAlike) {
  for (const char* json : {"[1,2,3,4]", "[[1,2],[3,4]]", "[[[1,2],[3,4]]]", "[ [ 1 , 2 ],[3,4]]"}) {
    const ParsedTensor parsed = ParseTensor(json, TRITONSERVER_TYPE_INT32, {2, 2});
    ASSERT_TRUE(parsed.status.ok()) << parsed.status.message();
    EXPECT_EQ(Elements<int32_t>(parsed.bytes), (std::vector<int32_t>{1, 2, 3, 4}));
  }
}

TEST(TensorJsonTest, RejectsRaggedNesting) {
  for (const char* json : {"[[1,2],[3],[4]]", "[[1,2],3,4]", "[1,[2,3],4]", "[[1],[2,3,4]]",
                           "[[],[1,2,3,4]]", "[[1,2,3,4],[]]", "[[[1],2],[3,4]]", "[[1,2,3],4]"}) {
    EXPECT_FALSE(ParseTensor(json, TRITONSERVER_TYPE_INT32, {2, 2}).status.ok()) << json;
  }
}

TEST(TensorJsonTest, RejectsNestingThatContradictsTheShape) {
  const ParsedTensor parsed = ParseTensor("[[1,2,3],[4,5,6]]", TRITONSERVER_TYPE_INT32, {3, 2});
  EXPECT_EQ(parsed.status.message(), "'data' is nested as [2,3], shape is [3,2]");
}

TEST(TensorJsonTest, RejectsTheWrongNumberOfElements) {
  EXPECT_EQ(ParseTensor("[1]", TRITONSERVER_TYPE_FP32, {3}).status.message(),
            "Unable to parse 'data': Shape does not match true shape of 'data' field: 1 elements, "
            "shape [3] needs 3");
  EXPECT_FALSE(ParseTensor("[1,2,3,4]", TRITONSERVER_TYPE_FP32, {3}).status.ok());
  EXPECT_TRUE(ParseTensor("[]", TRITONSERVER_TYPE_FP32, {0}).status.ok());
  EXPECT_TRUE(ParseTensor("[1]", TRITONSERVER_TYPE_FP32, {}).status.ok());
}

TEST(TensorJsonTest, RejectsShapesLargerThanTheTextBeforeAllocating) {
  EXPECT_FALSE(ParseTensor("[1]", TRITONSERVER_TYPE_FP32, {4611686018427387904}).status.ok());
  EXPECT_FALSE(ParseTensor("[1]", TRITONSERVER_TYPE_FP32, {4611686018427387904, 4}).status.ok());
  EXPECT_FALSE(ParseTensor("[1]", TRITONSERVER_TYPE_BYTES, {1'000'000'000'000}).status.ok());
}

TEST(TensorJsonTest, RejectsValuesOutOfRange) {
  EXPECT_FALSE(ParseTensor("[128]", TRITONSERVER_TYPE_INT8, {1}).status.ok());
  EXPECT_TRUE(ParseTensor("[-128]", TRITONSERVER_TYPE_INT8, {1}).status.ok());
  EXPECT_FALSE(ParseTensor("[-1]", TRITONSERVER_TYPE_UINT8, {1}).status.ok());
  EXPECT_FALSE(ParseTensor("[2147483648]", TRITONSERVER_TYPE_INT32, {1}).status.ok());
  EXPECT_TRUE(ParseTensor("[18446744073709551615]", TRITONSERVER_TYPE_UINT64, {1}).status.ok());
  EXPECT_FALSE(ParseTensor("[1.0]", TRITONSERVER_TYPE_INT32, {1}).status.ok());
  EXPECT_FALSE(ParseTensor("[1e39]", TRITONSERVER_TYPE_FP32, {1}).status.ok());
  EXPECT_FALSE(ParseTensor("[1e309]", TRITONSERVER_TYPE_FP64, {1}).status.ok());
  EXPECT_FALSE(ParseTensor("[1]", TRITONSERVER_TYPE_BOOL, {1}).status.ok());
  EXPECT_FALSE(ParseTensor("[1]", TRITONSERVER_TYPE_BYTES, {1}).status.ok());
  EXPECT_FALSE(ParseTensor("[\"1\"]", TRITONSERVER_TYPE_INT32, {1}).status.ok());
  EXPECT_FALSE(ParseTensor("[null]", TRITONSERVER_TYPE_FP32, {1}).status.ok());
  EXPECT_EQ(ParseTensor("[300]", TRITONSERVER_TYPE_UINT8, {1}).status.message(),
            "invalid JSON at byte 4: 300 does not fit UINT8");
}

TEST(TensorJsonTest, RoundsTinyNumbersToZero) {
  const ParsedTensor parsed = ParseTensor("[1e-60,1e-45]", TRITONSERVER_TYPE_FP32, {2});
  ASSERT_TRUE(parsed.status.ok());
  EXPECT_EQ(Elements<float>(parsed.bytes), (std::vector<float>{0.0f, 1e-45f}));
}

template <typename T>
void ExpectNearest(TRITONSERVER_DataType datatype, const std::string& text) {
  T nearest{};
  std::from_chars(text.data(), text.data() + text.size(), nearest);
  const ParsedTensor parsed = ParseTensor("[" + text + "]", datatype, {1});
  ASSERT_TRUE(parsed.status.ok()) << text;
  const T value = Elements<T>(parsed.bytes)[0];
  EXPECT_EQ(std::memcmp(&value, &nearest, sizeof(T)), 0) << text << " became " << value;
}

TEST(TensorJsonTest, RoundsDecimalsOfEveryLengthToTheNearestNumber) {
  std::vector<std::string> texts = {"-0",
                                    "-0.0",
                                    "0.10",
                                    "16777216",
                                    "16777217",
                                    "16777219",
                                    "9007199254740993",
                                    "0.00000000001",
                                    "123456.7e-3"};
  std::mt19937_64 random(1);
  for (int i = 0; i < 20'000; ++i) {
    std::string text = std::to_string(random());
    text = std::to_string(std::stoull(text.substr(0, 1 + i % 18)));
    const size_t num_decimals = random() % 14;
    if (text.size() <= num_decimals) text.insert(0, num_decimals + 1 - text.size(), '0');
    if (num_decimals > 0) text.insert(text.size() - num_decimals, ".");
    texts.push_back((random() % 2 == 0 ? "-" : "") + text);
  }
  for (const std::string& text : texts) {
    ExpectNearest<float>(TRITONSERVER_TYPE_FP32, text);
    ExpectNearest<double>(TRITONSERVER_TYPE_FP64, text);
  }
}

TEST(TensorJsonTest, RejectsTypesWithoutAJsonForm) {
  EXPECT_FALSE(ParseTensor("[1]", TRITONSERVER_TYPE_FP16, {1}).status.ok());
  EXPECT_FALSE(ParseTensor("[1]", TRITONSERVER_TYPE_BF16, {1}).status.ok());
}

TEST(TensorJsonTest, PrefixesBytesElementsWithTheirLength) {
  const ParsedTensor parsed = ParseTensor(R"(["ab","","\u00e9"])", TRITONSERVER_TYPE_BYTES, {3});
  ASSERT_TRUE(parsed.status.ok());
  EXPECT_EQ(parsed.bytes, std::string("\2\0\0\0ab\0\0\0\0\2\0\0\0\xc3\xa9", 16));
}

struct Written {
  Status status;
  std::string json;
};

Written Write(TRITONSERVER_DataType datatype, std::string_view data,
              TextPolicy policy = TextPolicy::kRefuse) {
  Written written;
  size_t count = 0;
  written.status = AppendJsonElements(written.json, datatype, data, policy, count);
  return written;
}

TEST(TensorJsonTest, RoundTripsEveryType) {
  const struct {
    TRITONSERVER_DataType datatype;
    const char* elements;
  } cases[] = {{TRITONSERVER_TYPE_BOOL, "true,false"},
               {TRITONSERVER_TYPE_UINT8, "0,255"},
               {TRITONSERVER_TYPE_INT16, "-32768,32767"},
               {TRITONSERVER_TYPE_INT64, "-9223372036854775808,7"},
               {TRITONSERVER_TYPE_FP32, "1.5,-2.0"},
               {TRITONSERVER_TYPE_FP64, "0.1,1e300"},
               {TRITONSERVER_TYPE_BYTES, "\"a\\n\",\"\""}};
  for (const auto& example : cases) {
    const ParsedTensor parsed =
        ParseTensor("[" + std::string(example.elements) + "]", example.datatype, {2});
    ASSERT_TRUE(parsed.status.ok()) << parsed.status.message();
    EXPECT_EQ(Write(example.datatype, parsed.bytes).json, example.elements);
  }
}

TEST(TensorJsonTest, RejectsValuesThatJsonCannotExpress) {
  const float values[] = {1, std::numeric_limits<float>::quiet_NaN()};
  const std::string_view data(reinterpret_cast<const char*>(values), sizeof(values));
  EXPECT_FALSE(Write(TRITONSERVER_TYPE_FP32, data).status.ok());
  EXPECT_FALSE(Write(TRITONSERVER_TYPE_FP16, "ab").status.ok());
  const std::string_view not_utf8("\1\0\0\0\xff", 5);
  EXPECT_FALSE(Write(TRITONSERVER_TYPE_BYTES, not_utf8).status.ok());
  EXPECT_EQ(Write(TRITONSERVER_TYPE_BYTES, not_utf8, TextPolicy::kReplace).json,
            "\"\xEF\xBF\xBD\"");
}

TEST(TensorJsonTest, RejectsTruncatedBytesData) {
  EXPECT_FALSE(Write(TRITONSERVER_TYPE_BYTES, std::string_view("\1\0\0", 3)).status.ok());
  EXPECT_FALSE(Write(TRITONSERVER_TYPE_BYTES, std::string_view("\5\0\0\0ab", 6)).status.ok());
}

}  // namespace
}  // namespace nereid::http
