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

// Masks of texts with large counts come from those of texts without limit, but for long tokens.
TEST(Matcher, LongTokensAreCountedExactly) {
  std::vector<std::string> more{std::string(33, ' '),          std::string(64, ' '),
                                std::string(40, 'a'),          std::string(64, 'a'),
                                std::string(36, 'a') + "\"",   "\"" + std::string(40, 'a') + "\"",
                                std::string(34, ' ') + "\"a\""};
  std::string accents;
  for (int i = 0; i < 20; ++i) accents += "\xc3\xa9";
  more.push_back(accents);
  const auto vocabulary = BytesAnd(more);
  ASSERT_EQ(vocabulary->long_tokens().size(), more.size());
  for (const char* schema :
       {R"({"type":"string","maxLength":39})", R"({"type":"string","maxLength":38,"minLength":37})",
        R"({"type":"object","additionalProperties":{"maxLength":50},"properties":{"aaa":{}}})",
        R"({"type":"array","items":{"maxLength":63,"minLength":1,"type":"string"}})"}) {
    for (const int spaces : {32, 34, 63, 128}) {
      const auto grammar =
          *Grammar::FromJsonSchema(schema, vocabulary, {.max_json_whitespace = spaces});
      for (const char* text : {R"("aaaa)", R"({  "aaa":"x")", R"(  [ "aé")"}) {
        Accepts(grammar, text);  // compares both ways of computing masks
      }
    }
  }
}

TEST(Matcher, ReadingsOfATextExcludeTheNamesOfAll) {
  const auto grammar = *Grammar::FromJsonSchema(
      R"({"anyOf":[{"type":"object","properties":{"a":{"type":"integer"}}},
                   {"type":"object","properties":{"b":{"type":"string"}}}]})",
      BytesAnd({}));
  for (const char* text : {R"({"a":1,"c":2,"a":1})", R"({"b":"","c":2,"b":""})",
                           R"({"c":2,"a":1,"a":1})", R"({"b":"","b":1})"}) {
    EXPECT_FALSE(Accepts(grammar, text)) << text;
  }
  EXPECT_TRUE(Accepts(grammar, R"({"a":1,"c":2,"b":1})"));
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
