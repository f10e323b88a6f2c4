// Tests of JsonReader: strictness and error positions.
#include "host/frontend/http/json/json_reader.h"

#include <gtest/gtest.h>

namespace nereid::http {
namespace {

Status Skip(std::string_view text, size_t max_depth = 8) {
  JsonReader reader(text, max_depth);
  NEREID_RETURN_IF_ERROR(reader.SkipValue());
  return reader.ExpectEnd();
}

TEST(JsonReaderTest, KeepsStringsWithEscapesAsLongAsTheReader) {
  std::string json = "[";
  for (int i = 0; i < 3000; ++i) json += StrCat(i == 0 ? "" : ",", "\"", i, "\\n\"");
  json += StrCat(",\"\\t", std::string(10'000, 'x'), "\"]");
  JsonReader reader(json, 4);
  std::vector<std::string_view> texts;
  ASSERT_TRUE(reader
                  .ReadArray([&]() -> Status {
                    NEREID_ASSIGN_OR_RETURN(const std::string_view text, reader.ReadString());
                    texts.push_back(text);
                    return Status::Ok();
                  })
                  .ok());
  ASSERT_EQ(texts.size(), 3001u);
  for (int i = 0; i < 3000; ++i) EXPECT_EQ(texts[i], StrCat(i, "\n"));
  EXPECT_EQ(texts.back(), "\t" + std::string(10'000, 'x'));
}

TEST(JsonReaderTest, ReadsTransientStrings) {
  JsonReader reader(R"(["a\nb", "plain", "\u00e9"])", 4);
  std::string joined;
  ASSERT_TRUE(reader
                  .ReadArray([&]() -> Status {
                    NEREID_ASSIGN_OR_RETURN(const std::string_view text,
                                            reader.ReadTransientString());
                    joined += text;
                    return Status::Ok();
                  })
                  .ok());
  EXPECT_EQ(joined, "a\nbplain\xc3\xa9");
}

TEST(JsonReaderTest, AcceptsEveryKindOfValue) {
  for (const char* text :
       {"null", "true", "false", "0", "-0", "12", "-3.5", "1e5", "1E-5", "\"\"", "\"a\\u00e9\"",
        "[]", "{}", " [1, 2 ,3]\r\n", "{\"a\":{\"b\":[null]}}", "\"\\ud83d\\ude00\""}) {
    EXPECT_TRUE(Skip(text).ok()) << text << ": " << Skip(text).message();
  }
}

TEST(JsonReaderTest, RejectsInvalidJson) {
  for (const char* text : {"",          " ",           "nul",         "True",
                           "NaN",       "Infinity",    "-",           "+1",
                           "01",        "1.",          ".5",          "1e",
                           "0x10",      "'a'",         "\"a",         "\"\\x\"",
                           "\"\\u12\"", "\"\n\"",      "[1,]",        "[1 2]",
                           "{\"a\"}",   "{\"a\":1,}",  "{a:1}",       "{\"a\":1 \"b\":2}",
                           "[",         "{",           "1 2",         "[1]]",
                           "// c\n1",   "\"\\ud800\"", "\"\\udc00\"", "\"\\ud800\\u0041\""}) {
    EXPECT_FALSE(Skip(text).ok()) << text;
  }
}

TEST(JsonReaderTest, RejectsTextThatIsNotUtf8) {
  EXPECT_FALSE(Skip("\"\xff\"").ok());
  EXPECT_FALSE(Skip("\"\xc0\xaf\"").ok());          // overlong
  EXPECT_FALSE(Skip("\"\xed\xa0\x80\"").ok());      // surrogate
  EXPECT_FALSE(Skip("\"\xf4\x90\x80\x80\"").ok());  // beyond U+10FFFF
  EXPECT_FALSE(Skip("\"\xe2\x82\"").ok());          // truncated
  EXPECT_TRUE(Skip("\"\xe2\x82\xac\xf0\x9f\x98\x80\"").ok());
}

TEST(JsonReaderTest, RejectsRepeatedMembersAlsoWhenSpeltDifferently) {
  EXPECT_FALSE(Skip(R"({"a":1,"a":2})").ok());
  EXPECT_FALSE(Skip(R"({"a":1,"\u0061":2})").ok());
  EXPECT_TRUE(Skip(R"({"a":1,"A":2})").ok());
}

TEST(JsonReaderTest, RejectsNestingBeyondTheLimitWithoutRecursingIntoIt) {
  const std::string deep(1'000'000, '[');
  const Status status = Skip(deep, 64);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.message(), "invalid JSON at byte 65: nested deeper than 64 levels");
  EXPECT_TRUE(Skip("[[[[]]]]", 4).ok());
  EXPECT_FALSE(Skip("[[[[[]]]]]", 4).ok());
}

TEST(JsonReaderTest, RejectsObjectsWithThousandsOfMembers) {
  std::string text = "{";
  for (int i = 0; i < 2000; ++i) text += (i ? ",\"k" : "\"k") + std::to_string(i) + "\":0";
  EXPECT_FALSE(Skip(text + "}").ok());
}

TEST(JsonReaderTest, NamesTheByteOfAnError) {
  EXPECT_EQ(Skip("[1, x]").message(), "invalid JSON at byte 4: expected a value, got 'x'");
  EXPECT_EQ(Skip("[1, 2").message(),
            "invalid JSON at byte 5: expected ',' or ']', got the end of the text");
}

TEST(JsonReaderTest, ReadsEscapes) {
  JsonReader reader(R"("q\"\\\/\b\f\n\r\t\u0041\u00e9\u20ac\ud83d\ude00")", 4);
  const Result<std::string_view> text = reader.ReadString();
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(*text, "q\"\\/\b\f\n\r\tA\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
}

TEST(JsonReaderTest, ReadsIntegersOfAllSixtyFourBits) {
  EXPECT_EQ(*JsonReader("18446744073709551615", 4).ReadUint64(), UINT64_MAX);
  EXPECT_EQ(*JsonReader("-9223372036854775808", 4).ReadInt64(), INT64_MIN);
  EXPECT_FALSE(JsonReader("18446744073709551616", 4).ReadUint64().ok());
  EXPECT_FALSE(JsonReader("9223372036854775808", 4).ReadInt64().ok());
  EXPECT_FALSE(JsonReader("-1", 4).ReadUint64().ok());
  EXPECT_FALSE(JsonReader("1.0", 4).ReadInt64().ok());
  EXPECT_FALSE(JsonReader("1e2", 4).ReadInt64().ok());
}

TEST(JsonReaderTest, RejectsDoublesOutOfRange) {
  EXPECT_DOUBLE_EQ(*JsonReader("1e308", 4).ReadDouble(), 1e308);
  EXPECT_FALSE(JsonReader("1e309", 4).ReadDouble().ok());
  EXPECT_EQ(*JsonReader("1e-400", 4).ReadDouble(), 0);
}

TEST(JsonReaderTest, ReadsAnyByteAtEveryPositionOfAString) {
  for (size_t size = 1; size < 20; ++size) {
    for (size_t at = 0; at < size; ++at) {
      for (int c = 0; c < 0x80; ++c) {
        std::string text(size, 'x');
        text[at] = static_cast<char>(c);
        const std::string json = "\"" + text + "\"";
        JsonReader reader(json, 4);
        const Result<std::string_view> read = reader.ReadString();
        if (c < ' ') {
          ASSERT_NE(read.status().message().find(StrCat("byte ", at + 1)), std::string::npos);
        } else if (c == '"') {
          ASSERT_EQ(*read, text.substr(0, at));
        } else if (c != '\\') {
          ASSERT_EQ(*read, text) << c;
        }
      }
      const std::string before(at, 'x'), after(size - at - 1, 'y');
      const std::string json = StrCat("\"", before, "\\n\\u00e9", after, "\u00e9", after, "\"");
      JsonReader reader(json, 4);
      ASSERT_EQ(*reader.ReadString(), StrCat(before, "\n\u00e9", after, "\u00e9", after));
    }
  }
}

}  // namespace
}  // namespace nereid::http
