#include "backends/llm_core/grammar/schema_number.h"

#include <gtest/gtest.h>

#include <random>

namespace nereid::llm::grammar {
namespace {

Decimal Parse(const std::string& text) {
  return *Decimal::Of(nlohmann::ordered_json::parse(text));
}

TEST(SchemaNumber, RangesHoldExactlyTheNumbersBetweenTheirBounds) {
  std::mt19937 random(3);
  const auto draw = [&](int num) {
    return static_cast<int>(random() % static_cast<uint32_t>(num));
  };
  const auto number = [&] {
    std::string text = draw(3) == 0 ? "-" : "";
    text += std::to_string(draw(draw(2) == 0 ? 12 : 1300));
    if (draw(2) == 0) text += "." + std::to_string(draw(20)) + (draw(4) == 0 ? "0" : "");
    return text;
  };
  int num_inside = 0;
  for (int i = 0; i < 300; ++i) {
    NumberRange range;
    range.is_integer = draw(3) == 0;
    if (draw(4) != 0) range.min.push_back({Parse(number()), draw(2) == 0});
    if (draw(4) != 0) range.max.push_back({Parse(number()), draw(2) == 0});
    if (draw(4) == 0) range.multiples.push_back({static_cast<uint32_t>(1 + draw(13)), draw(3)});
    RegexPool pool;
    const RegexId regex = range.Regex(pool);
    for (int j = 0; j < 60; ++j) {
      const std::string text = number();
      const bool is_spelled = !range.is_integer || text.find('.') == std::string::npos;
      const bool inside = range.Contains(Parse(text)) && is_spelled;
      EXPECT_EQ(pool.Matches(regex, text), inside) << text;
      num_inside += inside;
    }
    EXPECT_FALSE(pool.Matches(regex, "01") || pool.Matches(regex, "1.") ||
                 pool.Matches(regex, "-") || pool.Matches(regex, ""));
  }
  EXPECT_GT(num_inside, 1000);
}

TEST(SchemaNumber, DecimalsAreReadExactly) {
  EXPECT_EQ(Parse("1e3").integer, "1000");
  EXPECT_EQ(Parse("1.5e-7").fraction, "00000015");
  EXPECT_TRUE(Parse("-0").IsZero());
  EXPECT_TRUE(Parse("9223372036854775808") < Parse("18446744073709551615"));
  EXPECT_TRUE(Parse("-2") < Parse("-1.5"));
  EXPECT_TRUE(Parse("1.0") == Parse("1"));
}

}  // namespace
}  // namespace nereid::llm::grammar
