#include "backends/llm_core/grammar/matcher.h"

#include "tests/backends/llm_core/grammar/small_vocabulary.h"

namespace nereid::llm::grammar {
namespace {

TEST(Matcher, TokensMayCrossTerminals) {
  const auto vocabulary = BytesAnd({"{\"a\":[", "],\"b\":", "\"}", "\"},"});
  const auto grammar = *Grammar::FromJsonSchema(
      R"({"type":"object","properties":{"a":{"type":"array"},"b":{"type":"string"}},
          "required":["a","b"],"additionalProperties":false})",
      vocabulary);
  Matcher matcher(grammar);
  std::vector<uint32_t> mask(vocabulary->num_mask_words());
  for (const int32_t token : {256, 257, 256 + 2}) {
    if (token == 258) ASSERT_TRUE(matcher.Accept("\"x"));
    matcher.ComputeMask(mask);
    EXPECT_TRUE(MaskHas(mask, token)) << token;
    if (token == 258) EXPECT_FALSE(MaskHas(mask, 259));
    ASSERT_TRUE(matcher.AcceptToken(token)) << token;
  }
  EXPECT_TRUE(matcher.CanEnd());
  matcher.ComputeMask(mask);
  for (int32_t token = 0; token < 260; ++token) EXPECT_FALSE(MaskHas(mask, token));
  EXPECT_TRUE(MaskHas(mask, 260));
  EXPECT_FALSE(matcher.AcceptToken(260));  // has no bytes
  EXPECT_FALSE(matcher.AcceptToken(1000));
}

TEST(Matcher, StepsBackRestoreTheNamesOfObjects) {
  const auto grammar = *Grammar::FromJsonSchema(R"({"type":"object"})", BytesAnd({}));
  Matcher matcher(grammar);
  ASSERT_TRUE(matcher.Accept(R"({"a":1,"b":)"));
  ASSERT_TRUE(matcher.Accept("2,"));
  Matcher copy = matcher;
  EXPECT_FALSE(matcher.Accept(R"("b")"));
  ASSERT_TRUE(matcher.Accept(R"("c":3})"));
  EXPECT_TRUE(matcher.CanEnd());
  matcher.Rollback(3);
  EXPECT_EQ(matcher.num_accepted(), 0u);
  ASSERT_TRUE(matcher.Accept(R"({"b":{"b":1},"a":1})"));
  EXPECT_FALSE(copy.CanEnd());
  EXPECT_TRUE(copy.Accept(R"("d":{"a":1}})"));
}

TEST(Matcher, ForcedBytesAreThoseWithoutChoice) {
  const auto grammar = *Grammar::FromRegex("abc(de|df)g?", BytesAnd({}));
  Matcher matcher(grammar);
  EXPECT_EQ(matcher.ForcedBytes(100), "abcd");
  EXPECT_EQ(matcher.ForcedBytes(2), "ab");
  ASSERT_TRUE(matcher.Accept("abcde"));
  EXPECT_EQ(matcher.ForcedBytes(100), "");  // the text may end
}

TEST(Matcher, ChoicesAreWholeTexts) {
  const auto grammar = *Grammar::FromChoices({"yes", "no", "not", "\xc3\xa9"}, BytesAnd({"no"}));
  for (const char* text : {"yes", "no", "not", "\xc3\xa9"}) EXPECT_TRUE(Accepts(grammar, text));
  for (const char* text : {"", "ye", "nott", "\xc3"}) EXPECT_FALSE(Accepts(grammar, text));
}

TEST(Matcher, TokensOfTheSameBytesAreAllowedTogether) {
  const auto grammar = *Grammar::FromRegex("aa", BytesAnd({"aa", "aa", "a"}));
  Matcher matcher(grammar);
  std::vector<uint32_t> mask(grammar->vocabulary().num_mask_words());
  matcher.ComputeMask(mask);
  for (const int32_t token : {97, 256, 257, 258}) EXPECT_TRUE(MaskHas(mask, token)) << token;
}

}  // namespace
}  // namespace nereid::llm::grammar
