// Tests of the JSON writer. Numbers are formatted as in Triton's responses.
#include "host/frontend/http/json/json_writer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>

#include "nereid/status.h"

namespace nereid::http {
namespace {

std::string Double(double value) {
  std::string json;
  AppendJsonDouble(json, value);
  return json;
}

TEST(JsonWriterTest, WritesDoublesAsTritonDoes) {
  EXPECT_EQ(Double(0), "0.0");
  EXPECT_EQ(Double(-0.0), "-0.0");
  EXPECT_EQ(Double(1), "1.0");
  EXPECT_EQ(Double(-2.5), "-2.5");
  EXPECT_EQ(Double(0.1f), "0.10000000149011612");
  EXPECT_EQ(Double(3e10f), "30000001024.0");
  EXPECT_EQ(Double(1e20), "100000000000000000000.0");
  EXPECT_EQ(Double(1e21), "1e21");
  EXPECT_EQ(Double(1.5e300), "1.5e300");
  EXPECT_EQ(Double(1e-5), "0.00001");
  EXPECT_EQ(Double(1e-7), "1e-7");
  EXPECT_EQ(Double(1.25e-7), "1.25e-7");
}

TEST(JsonWriterTest, DoublesRoundTrip) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 20000; ++i) {
    const uint64_t bits = random();
    double value;
    static_assert(sizeof(value) == sizeof(bits));
    std::memcpy(&value, &bits, sizeof(value));
    if (!std::isfinite(value)) continue;
    EXPECT_EQ(std::strtod(Double(value).c_str(), nullptr), value) << Double(value);
  }
}

TEST(JsonWriterTest, EscapesEveryByteAlikeAtEveryPosition) {
  for (int c = 0; c < 256; ++c) {
    std::string alone;
    AppendLossyJsonString(alone, std::string(1, static_cast<char>(c)));
    for (size_t position = 0; position < 17; ++position) {
      std::string text(17, 'x'), json;
      text[position] = static_cast<char>(c);
      AppendLossyJsonString(json, text);
      const std::string character = alone.substr(1, alone.size() - 2);
      EXPECT_EQ(json, StrCat('"', std::string(position, 'x'), character,
                             std::string(16 - position, 'x'), '"'))
          << c << " at " << position;
    }
  }
}

TEST(JsonWriterTest, EscapesControlCharactersQuotesAndBackslashes) {
  std::string json;
  AppendJsonString(json, std::string_view("a\"\\\n\t\x01/\xc3\xa9", 9));
  EXPECT_EQ(json, "\"a\\\"\\\\\\n\\t\\u0001/\xc3\xa9\"");
}

TEST(JsonWriterTest, ReplacesBytesThatAreNotUtf8) {
  std::string json;
  AppendLossyJsonString(json,
                        "a\xff\xfe"
                        "b\xe2\x82");
  EXPECT_EQ(json,
            "\"a\xEF\xBF\xBD\xEF\xBF\xBD"
            "b\xEF\xBF\xBD\xEF\xBF\xBD\"");
}

}  // namespace
}  // namespace nereid::http
