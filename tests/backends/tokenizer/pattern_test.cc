// Compares the hand-written matchers with PCRE2 and tests the limits of the dialects and of long
// inputs.
#include "backends/tokenizer/lib/pattern/pattern.h"

#include <random>

#include "tests/backends/tokenizer/test_tokenizers.h"

namespace nereid::tokenizer {
namespace {

struct Spans final : SpanSink {
  std::vector<std::pair<std::string, bool>> spans;
  bool Add(std::string_view piece, bool is_match) override {
    spans.emplace_back(piece, is_match);
    return true;
  }
};

std::vector<std::pair<std::string, bool>> Split(const Pattern& pattern, std::string_view text) {
  Spans sink;
  EXPECT_TRUE(pattern.ForEachSpan(text, sink));
  return sink.spans;
}

// Every pattern with a hand-written matcher.
const std::vector<std::string>& KnownPatterns() {
  static const std::vector<std::string> patterns = {
      std::string(kGpt2Pattern),
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+\z|\s*[\r\n]+|\s+(?!\S)|\s+)",
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
      "[!\"#$%&'()*+,\\-./"
      ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
      "?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
      R"(\p{N})",
      R"(\p{N}{1,3})",
      R"([\r\n])",
      R"(\s?\p{L}+)",
      R"(\s?\p{P}+)",
      "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
      "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"};
  return patterns;
}

std::string RandomText(std::mt19937& random) {
  static const std::vector<std::string> kAtoms = {
      " ",      "  ",      "\t",         "\n",     "\r",     "\r\n",   "\u00a0",      "\u2003",
      "\u0085", "a",       "B",          "Ab",     "'s",     "'S",     "'",           "'re",
      "'LL",    "'\u017f", "1",          "234",    "\u00bd", "\u0663", "!",           "?!",
      "/",      "$",       "_",          "\u20ac", "\u0301", "\u4e2d", "\u3042",      "\uac00",
      "\u01c5", "\u02b0",  "\U0001F600", "\u200b", "\u180e", "\x01",   "\u0915\u094d"};
  std::string text;
  for (size_t n = random() % 12; n > 0; --n) text += kAtoms[random() % kAtoms.size()];
  return text;
}

TEST(PatternTest, MatchersAgreeWithPcre) {
  std::mt19937 random(7);
  for (const std::string& regex : KnownPatterns()) {
    const auto known = MakeKnownPattern(regex);
    const auto general = MakePcrePattern(regex);
    ASSERT_NE(known, nullptr) << regex;
    ASSERT_TRUE(general.ok()) << general.status().message();
    for (int i = 0; i < 3000; ++i) {
      const std::string text = RandomText(random);
      ASSERT_EQ(Split(*known, text), Split(**general, text)) << regex << "\n" << text;
    }
  }
}

TEST(PatternTest, MatchersHandleLongInputs) {
  for (const std::string& regex : KnownPatterns()) {
    const auto pattern = MakeKnownPattern(regex);
    for (const char* unit :
         {" ", "\n", "a", "A", "1", "!", "'", "\u0301", " \n", "A\u02b0", "\u3000"}) {
      std::string text;
      while (text.size() < kLongTextBytes) text += unit;
      size_t covered = 0;
      for (const auto& [span, is_match] : Split(*pattern, text + "x")) covered += span.size();
      ASSERT_EQ(covered, text.size() + 1) << regex << " on " << unit;
    }
  }
}

TEST(PatternTest, EmptyMatchesSplitWithoutLooping) {
  const auto pattern = MakeRegexPattern("x*");
  ASSERT_TRUE(pattern.ok());
  const std::vector<std::pair<std::string, bool>> expected = {
      {"", true}, {"a", false}, {"xx", true}, {"b", false}, {"", true}};
  EXPECT_EQ(Split(**pattern, "axxb"), expected);
}

TEST(PatternTest, BacktrackingPatternsStopAtWorkLimit) {
  const auto pattern = MakeRegexPattern(R"((?:a+)+\d)");
  ASSERT_TRUE(pattern.ok());
  Spans sink;
  EXPECT_FALSE((*pattern)->ForEachSpan(std::string(5000, 'a'), sink));
}

TEST(PatternTest, SpaceClassIsOnigurumas) {
  const auto pattern = MakeRegexPattern(R"(\s)");
  ASSERT_TRUE(pattern.ok());
  EXPECT_EQ(Split(**pattern, "\u180e").size(), 1u);
  EXPECT_FALSE(Split(**pattern, "\u180e")[0].second);
  EXPECT_TRUE(Split(**pattern, "\u0085")[0].second);
}

TEST(PatternTest, KnowsLettersNewerThanPcres) {
  const auto pattern = MakeRegexPattern(R"((?:\p{L})+)");
  ASSERT_TRUE(pattern.ok());
  EXPECT_EQ(Split(**pattern, "a\U00031350b").size(), 1u);
}

TEST(PatternTest, NestedClassesAreLimited) {
  std::string deep, many;
  for (int i = 0; i < 100; ++i) {
    deep += "[a";
    many += StrCat("[^a[", static_cast<char>('b' + i % 20), static_cast<char>('b' + i / 20), "]]");
  }
  for (int i = 0; i < 100; ++i) deep += "]";
  for (const std::string& regex : {deep, many}) {
    const auto pattern = MakeRegexPattern(regex);
    ASSERT_FALSE(pattern.ok());
    EXPECT_EQ(pattern.status().code(), StatusCode::kUnsupported) << pattern.status().message();
  }
}

TEST(PatternTest, RefusesLargePatternsBySize) {
  const auto repeat = [](std::string_view unit, size_t bytes) {
    std::string text;
    while (text.size() + unit.size() <= bytes) text += unit;
    return text;
  };
  const auto refusal = [](const std::string& regex) {
    const auto pattern = MakeRegexPattern(regex);
    EXPECT_FALSE(pattern.ok());
    if (pattern.ok()) return std::string();
    EXPECT_EQ(pattern.status().code(), StatusCode::kUnsupported) << pattern.status().message();
    return pattern.status().message();
  };
  EXPECT_TRUE(MakeRegexPattern(repeat("a", 16384)).ok());
  for (const char* unit : {"a", "a{1}", "[[:a]", "\\b"}) {
    EXPECT_EQ(refusal(repeat(unit, 1 << 20) + "x").substr(0, 12), "a pattern of");
  }
  const std::string classes = repeat("\\w", 16000);
  for (const std::string& regex :
       {repeat("\\b", 16384), "[" + classes + "]", "[" + classes + "[a]]"}) {
    EXPECT_NE(refusal(regex).find("grows so large"), std::string::npos);
  }
}

TEST(PatternTest, LongRunsOfNestedClassStayWithinLimits) {
  const auto pattern = MakeRegexPattern(R"([\p{L}&&[^\p{Han}]]*[\p{Ll}&&[^a]]+|[\p{Han}]+)");
  ASSERT_TRUE(pattern.ok()) << pattern.status().message();
  std::string text;
  while (text.size() < 1'000'000) text += "b\u00e9";
  EXPECT_EQ(Split(**pattern, text + "\u4e2d\u4e2d").size(), 2u);
}

TEST(PatternTest, RefusesUntranslatableOnigurumaConstructsByName) {
  for (const char* regex :
       {R"(\Gx)", R"(a\Kb)", R"(\X)", R"((?<n>a)\k<n>)", R"((a)\1)", R"((*UTF)a)", R"(\C)",
        R"(a(?i)b|c)", R"((?x: a))", R"((?W:a))", R"((?~a))", R"((?s:.))", R"(\p{Script=Han})",
        R"(\p{InBasicLatin})", R"([[:nothing:]])", R"([]a])", R"([a\R])"}) {
    const auto pattern = MakeRegexPattern(regex);
    ASSERT_FALSE(pattern.ok()) << regex;
    EXPECT_EQ(pattern.status().code(), StatusCode::kUnsupported) << pattern.status().message();
    EXPECT_NE(pattern.status().message().find(regex), std::string::npos);
  }
  for (const char* regex :
       {"(", ")", "[a", "[a[b]", "[a&&", "a\\", "a**b", "\\x{110000}", "(?#a"}) {
    const auto pattern = MakeRegexPattern(regex);
    ASSERT_FALSE(pattern.ok()) << regex;
    EXPECT_EQ(pattern.status().code(), StatusCode::kInvalidArg) << pattern.status().message();
  }
}

// Constructs that fancy-regex, which tiktoken uses, interprets differently from PCRE2.
TEST(PatternTest, RefusesUntranslatableRustConstructsByName) {
  for (const auto& [regex, name] : std::vector<std::pair<std::string, std::string>>{
           {R"(\<a)", "'\\<'"},
           {R"(a\>)", "'\\>'"},
           {R"(\b{start}a)", "'\\b{'"},
           {R"(\B{2}a)", "'\\B{'"},
           {"x{2}{3}", "the second quantifier '{3}'"},
           {"x{1,2}*", "the second quantifier '*'"},
           {"x*{3,}", "the second quantifier '{3,}'"},
           {"x{2}?{,3}", "the second quantifier '{,3}'"},
           {"x**", "the second quantifier '*'"},
           {"x++?", "the second quantifier '?'"},
           {"(a(?i)b)c", "an option inside a group"},
           {"(?:(?m)^a)", "an option inside a group"}}) {
    const auto pattern = MakeRegexPattern(regex, RegexDialect::kRust);
    ASSERT_FALSE(pattern.ok()) << regex;
    EXPECT_EQ(pattern.status().code(), StatusCode::kUnsupported) << pattern.status().message();
    EXPECT_NE(pattern.status().message().find(name), std::string::npos)
        << pattern.status().message();
  }
}

}  // namespace
}  // namespace nereid::tokenizer
