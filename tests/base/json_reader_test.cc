#include "base/json_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace nereid {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using testing::HasSubstr;

std::string Nested(size_t depth) {
  return std::string(depth, '[') + std::string(depth, ']');
}

template <typename Json>
std::string Message(std::string_view text, std::string_view name = "",
                    const JsonLimits& limits = {}) {
  return ReadJson<Json>(text, name, limits).status().message();
}

TEST(JsonReaderTest, ReadsWhatTheLibraryReads) {
  for (const char* text : {"{}", "[]", "null", "1", "-2.5e3", "\"a\\u00e4\\n\"",
                           R"({"b": [1, {"c": null}], "a": true, "b": "the last one counts"})"}) {
    EXPECT_EQ(ReadJson<json>(text, "").value(), json::parse(text)) << text;
    EXPECT_EQ(ReadJson<ordered_json>(text, "").value().dump(), ordered_json::parse(text).dump());
  }
}

TEST(JsonReaderTest, RefusesWhatTheLibraryRefuses) {
  EXPECT_EQ(Message<json>(""), "line 1: not valid JSON at byte 1");
  EXPECT_EQ(Message<json>("[1\n,\n2", "'a.json'"), "'a.json': line 3: not valid JSON at byte 7");
  EXPECT_EQ(Message<ordered_json>("[1] 2"), "line 1: not valid JSON at byte 5");
  EXPECT_FALSE(ReadJson<json>("1e999", "").ok());
  EXPECT_FALSE(ReadJson<json>("\"\xff\"", "").ok());
  EXPECT_FALSE(CheckJson("[1", "").ok());
  EXPECT_TRUE(CheckJson("[1]", "").ok());
}

TEST(JsonReaderTest, RefusesATextThatIsNestedTooDeepAndNamesTheField) {
  EXPECT_TRUE(ReadJson<json>(Nested(64), "").ok());
  EXPECT_EQ(Message<json>(Nested(65)), "line 1: nested 65 levels deep, limit 64");
  EXPECT_EQ(Message<ordered_json>("{\"a\": 1,\n\"b\": " + Nested(40'000) + ", \"c\": 2}", "'x'"),
            "'x': line 2: 'b' is nested 40001 levels deep, limit 64");
  EXPECT_FALSE(CheckJson(Nested(1'000'000), "").ok());
  EXPECT_EQ(Message<json>(std::string(1'000'000, '{')),
            "line 1: nested 1000000 levels deep, limit 64");
}

TEST(JsonReaderTest, IgnoresBracketsInStrings) {
  const std::string text = "{\"" + std::string(100, '[') + "\": \"\\\"" + std::string(100, '{') +
                           "\\\\\", \"a\\\"[\": []}";
  EXPECT_EQ(ReadJson<json>(text, "").value(), json::parse(text));
}

TEST(JsonReaderTest, RefusesATextOfTooManyBytesOrValues) {
  EXPECT_EQ(Message<json>("[1, 2]", "'x'", {.max_bytes = 5}),
            "'x': expected at most 5 bytes, got 6");
  EXPECT_EQ(Message<json>("[1, 2, 3, 4]", "'x'", {.max_values = 3}),
            "'x': about 4 values, limit 3");
}

TEST(JsonReaderTest, ReadsOnlyAnObjectWhereOneIsRequired) {
  EXPECT_TRUE(ReadJsonObject<json>("{}", "x").ok());
  EXPECT_EQ(ReadJsonObject<json>("[]", "x").status().message(),
            "x: not a JSON object, but of type array");
}

TEST(JsonReaderTest, KeepsTheOrderAndTheLastValueOfManyMembers) {
  std::string text = "{";
  for (int i = 0; i < 100; ++i)
    text += "\"k" + std::to_string(i) + "\": " + std::to_string(i) + ",";
  text += "\"k50\": \"again\"}";
  const ordered_json object = ReadJson<ordered_json>(text, "").value();
  ASSERT_EQ(object.size(), 100U);
  EXPECT_EQ(object.dump(), ordered_json::parse(text).dump());
  EXPECT_EQ(object.at("k50"), "again");
}

TEST(JsonReaderTest, ShowsTheCallbackEachValue) {
  const auto drop_a = [](int, json::parse_event_t event, json& value) {
    return event != json::parse_event_t::key || value != "a";
  };
  EXPECT_EQ(ReadJsonObject<json>(R"({"a": 1, "b": 2})", "", {}, drop_a).value(), json({{"b", 2}}));
  EXPECT_EQ(ReadJsonObject<json>(R"({"a" 1})", "x", {}, drop_a).status().message(),
            "x: line 1: not valid JSON at byte 6");
}

TEST(JsonReaderTest, ShowsShortValuesAsTheyAre) {
  for (const char* text : {"{}", "[]", "[1,2]", R"({"a":[true,null,"\"x\""],"b":1.5})"}) {
    EXPECT_EQ(ShowJson(json::parse(text)), text);
  }
}

TEST(JsonReaderTest, CutsOffLongValues) {
  const json numbers(std::vector<int>(100'000, 7));
  EXPECT_EQ(ShowJson(numbers).size(), 60U);
  EXPECT_THAT(ShowJson(numbers), testing::StartsWith("[7,7,7,"));
  EXPECT_THAT(ShowJson(numbers), testing::EndsWith("..."));
  EXPECT_EQ(ShowJson(json(std::string(1'000'000, 'x'))).size(), 60U);
  const std::string umlauts =
      ShowJson(json("\xc3\xa4" + std::string(1, 'x') + std::string("\xc3\xa4\xc3\xa4\xc3\xa4") +
                    std::string(100, 'y')));
  EXPECT_TRUE(json::accept("\"" + umlauts.substr(1) + "\""));
  EXPECT_THAT(ShowText(std::string(1000, 'z')), testing::EndsWith("..."));
  EXPECT_EQ(ShowText("short"), "short");
}

TEST(JsonReaderTest, ShowsOnlyTheOuterLevelsOfADeepValue) {
  json deep = 1;
  for (int i = 0; i < 30; ++i) deep = json::array({std::move(deep)});
  EXPECT_EQ(ShowJson(deep), "[[[[[[[[...]]]]]]]]");
}

}  // namespace
}  // namespace nereid
