// Invalid headers: each error names the tensor and both values.
#include "backends/llm_core/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/backends/llm_core/checkpoint_files.h"

namespace nereid::llm {
namespace {

using ::testing::HasSubstr;
using testing::SafetensorsBytes;
using testing::WithHeader;

Result<TensorMap> Parse(const std::string& file) {
  return ParseSafetensors({reinterpret_cast<const uint8_t*>(file.data()), file.size()}, "f");
}

void ExpectFault(const std::string& file, const std::string& part) {
  const Result<TensorMap> parsed = Parse(file);
  ASSERT_FALSE(parsed.ok()) << part;
  EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArg);
  EXPECT_THAT(parsed.status().message(), HasSubstr(part));
}

std::string Entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":" + dtype + ",\"shape\":" + shape +
         ",\"data_offsets\":" + offsets + "}";
}

TEST(SafetensorsTest, FindsTensorsAndTheirBytes) {
  const std::string file =
      SafetensorsBytes({{"a", {2, 3}}, {"empty", {0, 5}}, {"b", {4}, "BF16", 2}});
  const Result<TensorMap> parsed = Parse(file);
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  ASSERT_EQ(parsed->size(), 3u);
  EXPECT_EQ(parsed->at("a").bytes.size(), 24u);
  EXPECT_EQ(parsed->at("b").type, CheckpointDataType::kBF16);
  EXPECT_EQ(parsed->at("b").bytes.data() - parsed->at("a").bytes.data(), 24);
  EXPECT_TRUE(parsed->at("empty").bytes.empty());
}

TEST(SafetensorsTest, IgnoresMetadata) {
  EXPECT_TRUE(Parse(WithHeader(R"({"__metadata__":{"format":"pt"}})", 0))->empty());
}

TEST(SafetensorsTest, RejectsFilesTooShortForTheirHeader) {
  ExpectFault("", "0 bytes are too few");
  ExpectFault("1234567", "7 bytes are too few");
  ExpectFault(std::string("\xff\xff\xff\xff\xff\xff\xff\xff", 8) + "{}", "in a file of 10 bytes");
  ExpectFault(WithHeader("{}", 0).substr(0, 9), "header of 2 bytes in a file of 9 bytes");
}

TEST(SafetensorsTest, RejectsHeadersThatAreNotAnObject) {
  ExpectFault(WithHeader("[]", 0), "not a JSON object");
  ExpectFault(WithHeader("{", 0), "header of 1 bytes: line 1: not valid JSON at byte 2");
  ExpectFault(WithHeader(R"({"a":1})", 0), "tensor 'a': the entry is not an object");
}

TEST(SafetensorsTest, RejectsValuesThatAreNestedTooDeep) {
  const std::string deep = std::string(40'000, '[') + std::string(40'000, ']');
  const std::string fault = "'a' is nested 4000";
  ExpectFault(WithHeader("{" + Entry("a", "\"F32\"", deep, "[0,4]") + "}", 4), fault);
  ExpectFault(WithHeader("{" + Entry("a", "\"F32\"", "[1]", deep) + "}", 4), fault);
  ExpectFault(WithHeader("{" + Entry("a", deep, "[1]", "[0,4]") + "}", 4), fault);
  ExpectFault(WithHeader("{\"a\":" + deep + "}", 4), fault);
}

TEST(SafetensorsTest, CutsOffLongValuesInMessages) {
  std::string list = "[";
  for (int i = 0; i < 10'000; ++i) list += "-1,";
  list += "-1]";
  for (const std::string& header :
       {"{" + Entry("a", "\"F32\"", "[" + list + "]", "[0,4]") + "}",
        "{" + Entry("a", "\"F32\"", "[1]", "[" + list + "," + list + "]") + "}",
        "{" + Entry("a", "\"" + std::string(10'000, 'x') + "\"", "[1]", "[0,4]") + "}",
        "{" + Entry(std::string(10'000, 'x'), "1", "[1]", "[0,4]") + "}"}) {
    const std::string message = Parse(WithHeader(header, 4)).status().message();
    EXPECT_NE(message, "");
    EXPECT_LT(message.size(), 500U) << message.substr(0, 500);
  }
  ExpectFault(WithHeader("{" + Entry("a", "\"F32\"", list, "[0,4]") + "}", 4),
              "'shape' has 10001 dimensions, limit 64");
}

TEST(SafetensorsTest, RejectsTruncatedData) {
  std::string file = SafetensorsBytes({{"a", {4}}});
  file.pop_back();
  ExpectFault(file, "tensor 'a': data_offsets [0,16] exceed the file's 15 bytes");
}

TEST(SafetensorsTest, RejectsTrailingBytesAndGaps) {
  ExpectFault(SafetensorsBytes({{"a", {4}}}) + "x", "1 bytes follow the last tensor");
  ExpectFault(WithHeader("{" + Entry("a", "\"U8\"", "[4]", "[4,8]") + "}", 8),
              "gap of 4 bytes before tensor 'a'");
}

TEST(SafetensorsTest, RejectsOverlappingTensors) {
  ExpectFault(WithHeader("{" + Entry("a", "\"U8\"", "[4]", "[0,4]") + "," +
                             Entry("b", "\"U8\"", "[4]", "[3,7]") + "}",
                         7),
              "tensors 'a' and 'b' overlap");
  ExpectFault(WithHeader("{" + Entry("a", "\"U8\"", "[4]", "[0,4]") + "," +
                             Entry("b", "\"U8\"", "[4]", "[0,4]") + "}",
                         4),
              "overlap");
}

TEST(SafetensorsTest, RejectsATensorThatOccursTwice) {
  ExpectFault(WithHeader("{" + Entry("a", "\"U8\"", "[4]", "[0,4]") + "," +
                             Entry("a", "\"U8\"", "[4]", "[4,8]") + "}",
                         8),
              "tensor 'a' occurs twice");
}

TEST(SafetensorsTest, RejectsSizesThatContradictTheShape) {
  ExpectFault(WithHeader("{" + Entry("a", "\"F32\"", "[2,3]", "[0,20]") + "}", 20),
              "F32 [2, 3] needs 24 bytes, data_offsets give 20");
  ExpectFault(WithHeader("{" + Entry("a", "\"F32\"", "[4611686018427387904,4]", "[0,0]") + "}", 0),
              "needs more than 2^64 bytes");
}

TEST(SafetensorsTest, RejectsInvalidTypesShapesAndOffsets) {
  ExpectFault(WithHeader("{" + Entry("a", "\"F31\"", "[1]", "[0,4]") + "}", 4),
              "unknown dtype \"F31\"");
  ExpectFault(WithHeader("{" + Entry("a", "5", "[1]", "[0,4]") + "}", 4), "'dtype'");
  ExpectFault(WithHeader("{" + Entry("a", "\"U8\"", "[-4]", "[0,4]") + "}", 4), "'shape' holds -4");
  ExpectFault(WithHeader("{" + Entry("a", "\"U8\"", "4", "[0,4]") + "}", 4),
              "'shape' is not a list");
  ExpectFault(WithHeader("{" + Entry("a", "\"U8\"", "[4]", "[4,0]") + "}", 4), "not an ascending");
  ExpectFault(WithHeader("{" + Entry("a", "\"U8\"", "[4]", "[0]") + "}", 4), "not a list of two");
  ExpectFault(WithHeader("{" + Entry("a", "\"U8\"", "[4]", "[0,4.5]") + "}", 4),
              "not an ascending");
}

}  // namespace
}  // namespace nereid::llm
