// Compares regular expressions with those of the standard library, which follows ECMAScript.
#include <gtest/gtest.h>

#include <random>
#include <regex>

#include "backends/llm_core/grammar/regex_syntax.h"
#include "tests/support/sanitizer.h"

namespace nereid::llm::grammar {
namespace {

std::string RandomPattern(std::mt19937& random, int depth) {
  const auto draw = [&](int num) {
    return static_cast<int>(random() % static_cast<uint32_t>(num));
  };
  std::string all;
  for (int i = 1 + draw(3); i > 0; --i) {
    switch (draw(depth > 0 ? 10 : 4)) {
      case 0:
        all += "a";
        break;
      case 1:
        all += "b";
        break;
      case 2:
        all += std::vector<std::string>{"[ab]", "[^a]", ".", "\\w", "[a-c]"}[draw(5)];
        break;
      case 3:
        all += "c";
        break;
      case 4:
        all +=
            "(?:" + RandomPattern(random, depth - 1) + "|" + RandomPattern(random, depth - 1) + ")";
        break;
      case 5:
        all += "[ab]" + std::vector<std::string>{"*", "+", "?", "{2}", "{1,2}", "{2,}"}[draw(6)];
        break;
      case 6:
        // A group that can be empty must not repeat without limit in the standard library.
        all += "(?:a" + RandomPattern(random, depth - 1) + ")" +
               std::vector<std::string>{"*", "+", "?", "{0,2}", "*?"}[draw(5)];
        break;
      case 7:
        all += (draw(2) == 0 ? "(?=" : "(?!") + RandomPattern(random, depth - 1) + ")";
        break;
      case 8:
        all = "^" + all;
        break;
      default:
        all += "$";
        break;
    }
  }
  return all;
}

TEST(RegexProperty, TextsMatchAsInEcmaScript) {
  std::mt19937 random(7);
  std::vector<std::string> texts = {""};
  for (size_t i = 0; i < texts.size() && texts[i].size() < 4; ++i) {
    for (const char c : {'a', 'b', 'c'}) texts.push_back(texts[i] + c);
  }
  int num_patterns = 0, num_matches = 0;
  for (int i = 0; i < (kHasSanitizer ? 80 : 400); ++i) {
    const std::string pattern = RandomPattern(random, 2);
    SCOPED_TRACE(pattern);
    RegexPool pool;
    const auto search = ParseRegex(pool, pattern, RegexMatch::kSearch, Spelling::kUtf8);
    const auto whole = ParseRegex(pool, pattern, RegexMatch::kWhole, Spelling::kUtf8);
    if (!search.ok()) {  // refused by name
      EXPECT_EQ(search.status().code(), StatusCode::kUnsupported) << search.status().message();
      continue;
    }
    ++num_patterns;
    const std::regex expected(pattern);
    for (const std::string& text : texts) {
      EXPECT_EQ(pool.Matches(*search, text), std::regex_search(text, expected))
          << "'" << text << "'";
      EXPECT_EQ(pool.Matches(*whole, text), std::regex_match(text, expected)) << "'" << text << "'";
      num_matches += std::regex_search(text, expected);
    }
  }
  EXPECT_GT(num_patterns, kHasSanitizer ? 60 : 300);
  EXPECT_GT(num_matches, kHasSanitizer ? 1000 : 5000);
}

TEST(RegexSyntax, ClassesAndEscapesHoldTheirCharacters) {
  RegexPool pool;
  const auto matches = [&](const char* pattern, const char* text) {
    const auto regex = ParseRegex(pool, pattern, RegexMatch::kWhole, Spelling::kUtf8);
    EXPECT_TRUE(regex.ok()) << pattern << ": " << regex.status().message();
    return regex.ok() && pool.Matches(*regex, text);
  };
  EXPECT_TRUE(matches("\\d{3}-\\d{2}", "123-45"));
  EXPECT_FALSE(matches("\\d", "\xd9\xa3"));  // an Arabic digit
  EXPECT_TRUE(matches("[^a]", "\xf0\x9f\x98\x80"));
  EXPECT_TRUE(matches("[\\u{1F600}-\\u{1F64F}]", "\xf0\x9f\x98\x80"));
  EXPECT_TRUE(matches("\\ud83d\\ude00", "\xf0\x9f\x98\x80"));
  EXPECT_TRUE(matches("[\\w.-]+", "a_b.c-9"));
  EXPECT_TRUE(matches("[-a]+", "a-"));
  EXPECT_TRUE(matches("\\x41\\u0042", "AB"));
  EXPECT_FALSE(matches(".", "\n"));
  EXPECT_FALSE(matches("[^b]", "\xc3"));  // not a whole character
  EXPECT_TRUE(matches("(?i:ab)c", "aBc"));
}

TEST(RegexSyntax, WhatIsNotHeldIsRefusedByName) {
  RegexPool pool;
  const auto refusal = [&](const char* pattern) {
    return ParseRegex(pool, pattern, RegexMatch::kSearch, Spelling::kUtf8).status();
  };
  EXPECT_EQ(refusal("(a)\\1").message(),
            "a back-reference at byte 3 of the pattern cannot be enforced");
  EXPECT_EQ(refusal("\\bfoo").code(), StatusCode::kUnsupported);
  EXPECT_EQ(refusal("(?<=a)b").code(), StatusCode::kUnsupported);
  EXPECT_EQ(refusal("\\p{L}").code(), StatusCode::kUnsupported);
  EXPECT_EQ(refusal("(a").code(), StatusCode::kInvalidArg);
  EXPECT_EQ(refusal("a**").code(), StatusCode::kInvalidArg);
  EXPECT_EQ(refusal("[b-a]").code(), StatusCode::kInvalidArg);
  EXPECT_EQ(refusal("a{3,2}").code(), StatusCode::kInvalidArg);
  EXPECT_EQ(refusal("\\ud83d").code(), StatusCode::kInvalidArg);
  EXPECT_EQ(refusal("\\ud83d\\u0041").code(), StatusCode::kInvalidArg);
  EXPECT_EQ(refusal("\\ude00").message(), "half of a surrogate pair at byte 6 of the pattern");
  EXPECT_EQ(refusal("[a\\ude00]").code(), StatusCode::kInvalidArg);
  EXPECT_EQ(refusal("\\u{DE00}").code(), StatusCode::kInvalidArg);
  EXPECT_EQ(refusal("\\U0000d83d").code(), StatusCode::kInvalidArg);
  EXPECT_EQ(refusal("\\u{110000}").code(), StatusCode::kInvalidArg);
  EXPECT_EQ(refusal("\xff").code(), StatusCode::kInvalidArg);
}

}  // namespace
}  // namespace nereid::llm::grammar
