// Grammars that are hostile, or large: each is compiled or refused within the limits of work and
// memory.
#include <gtest/gtest.h>

#include "tests/backends/llm_core/grammar/small_vocabulary.h"

namespace nereid::llm::grammar {
namespace {

std::shared_ptr<const Vocabulary> Letters() {
  return BytesAnd({"aa", "aaa", "aaaaaaaa", "ab"});
}

// Follows a text as far as the grammar allows, with a mask at each step, within the limits.
void Follow(const std::shared_ptr<const Grammar>& grammar, size_t num_bytes) {
  Matcher matcher(grammar);
  std::vector<uint32_t> mask(grammar->vocabulary().num_mask_words());
  for (size_t i = 0; i < num_bytes && matcher.Accept("a"); ++i) matcher.ComputeMask(mask);
}

TEST(GrammarBounds, ManyEnumValuesAreHeld) {
  std::string schema = R"({"enum":[)";
  for (int i = 0; i < 100'000; ++i) {
    schema += (i == 0 ? "\"value-" : ",\"value-") + std::to_string(i * 7919) + '"';
  }
  const auto grammar = Grammar::FromJsonSchema(schema + "]}", Letters());
  ASSERT_TRUE(grammar.ok()) << grammar.status().message();
  Matcher matcher(*grammar);
  EXPECT_TRUE(matcher.Accept("\"value-79190\""));
  EXPECT_TRUE(matcher.CanEnd());
  matcher.Rollback(1);
  EXPECT_FALSE(matcher.Accept("\"value-79191\""));
}

TEST(GrammarBounds, NestedCountsAreNotExpanded) {
  for (const char* regex :
       {"(a{1000}){1000}", "((a{1000}){1000}){1000}", "(a{0,1000}){0,1000}", "((a?){1000}){1000}",
        "(a*)*b", "(a|a)*b", "(a|aa)+b", "(a*a*)*b", "((a{1,9}){1,9}){1,9}b",
        "(?=.*a.{9}b)(?=.*b.{9}a).*", "(x+x+)+y", "a{1000000000}"}) {
    SCOPED_TRACE(regex);
    const auto grammar = Grammar::FromRegex(regex, Letters());
    if (grammar.ok()) Follow(*grammar, 60);
  }
  const auto nested = Grammar::FromRegex("(a{100}){100}", Letters());
  ASSERT_TRUE(nested.ok());
  Matcher matcher(*nested);
  EXPECT_TRUE(matcher.Accept(std::string(9'999, 'a')));
  EXPECT_FALSE(matcher.CanEnd());
  EXPECT_TRUE(matcher.Accept("a"));
  EXPECT_TRUE(matcher.CanEnd());
  EXPECT_FALSE(matcher.Accept("a"));
}

TEST(GrammarBounds, AmbiguousRulesStayPolynomial) {
  for (const char* rules :
       {"root ::= root root | \"a\" | \"aa\"", "root ::= root? root? \"a\"?",
        "root ::= x x x x\nx ::= \"a\" x | x \"a\" | \"\"", "root ::= (root root){1,50} | \"a\"",
        "root ::= [a]* root | \"b\"", "root ::= a*\na ::= \"a\" b | \"a\"\nb ::= a*"}) {
    SCOPED_TRACE(rules);
    const auto grammar = Grammar::FromEbnf(rules, Letters());
    ASSERT_TRUE(grammar.ok()) << grammar.status().message();
    Follow(*grammar, 40);
  }
}

TEST(GrammarBounds, DeepAndLargeTextsAreRefused) {
  const auto refused = [](const auto& grammar) { return !grammar.ok(); };
  EXPECT_TRUE(refused(Grammar::FromRegex(std::string(100'000, '('), Letters())));
  EXPECT_TRUE(refused(Grammar::FromRegex(std::string(10 << 20, 'a'), Letters())));
  EXPECT_TRUE(refused(Grammar::FromEbnf("root ::= " + std::string(100'000, '('), Letters())));
  EXPECT_TRUE(refused(Grammar::FromEbnf("root ::= \"a\"" + std::string(100'000, '*'), Letters())));
  EXPECT_TRUE(
      refused(Grammar::FromEbnf("root ::= \"a\"\n" + std::string(10 << 20, ' '), Letters())));
  EXPECT_TRUE(refused(Grammar::FromEbnf("root ::= ((root{100000}){100000}){100000}", Letters())));
  std::string deep;
  for (int i = 0; i < 10'000; ++i) deep += R"({"items":)";
  EXPECT_TRUE(refused(Grammar::FromJsonSchema(deep, Letters())));
  std::string many = "root ::= r0";
  for (int i = 0; i < 50'000; ++i) {
    many += "\nr" + std::to_string(i) + " ::= \"a\" | r" + std::to_string((i + 1) % 50'000);
  }
  const auto chain = Grammar::FromEbnf(many, Letters());
  if (chain.ok()) Follow(*chain, 2);
}

TEST(GrammarBounds, CombinationsOfAlternativesAreLimited) {
  // 2^20 combinations of branches.
  std::string schema = R"({"allOf":[)";
  for (int i = 0; i < 20; ++i) {
    const std::string name = "p" + std::to_string(i);
    schema += std::string(i == 0 ? "" : ",") + R"({"anyOf":[{"required":[")" + name +
              R"("]},{"properties":{")" + name + R"(":false}}]})";
  }
  EXPECT_FALSE(Grammar::FromJsonSchema(schema + "]}", Letters()).ok());
  // oneOf nested deeply.
  std::string nested = R"({"type":"object"})";
  for (int i = 0; i < 40; ++i) {
    nested = R"({"oneOf":[{"required":["a"],"properties":{"a":)" + nested +
             R"(}},{"required":["b"],"properties":{"a":false,"b":)" + nested.substr(0, 5000) +
             "}}]}";
    if (nested.size() > 100'000) break;
  }
  (void)Grammar::FromJsonSchema(nested, Letters());
}

TEST(GrammarBounds, AGrammarWithoutTokensAllowsNone) {
  std::vector<std::string> tokens = {"x", "y", ""};
  const auto vocabulary = Vocabulary::Make(tokens, {2}).value();
  const auto grammar = Grammar::FromRegex("a+", vocabulary);
  ASSERT_TRUE(grammar.ok());
  Matcher matcher(*grammar);
  std::vector<uint32_t> mask(1, ~0u);
  matcher.ComputeMask(mask);
  EXPECT_EQ(mask[0], 0u);
}

TEST(GrammarBounds, ALimitOfMemoryEndsTheMatcherNotTheProcess) {
  const auto grammar =
      Grammar::FromRegex("(a|b)*a(a|b){20}", BytesAnd({}), {.max_memory_bytes = size_t{2} << 20});
  ASSERT_TRUE(grammar.ok());
  Matcher matcher(*grammar);
  std::vector<uint32_t> mask(matcher.grammar().vocabulary().num_mask_words());
  uint32_t random = 1;
  while (matcher.status().ok() && matcher.num_accepted() < 200'000) {
    random = random * 1664525 + 1013904223;
    if (!matcher.Accept(random >> 31 ? "a" : "b")) break;
    matcher.ComputeMask(mask);
  }
  EXPECT_EQ(matcher.status().code(), StatusCode::kInvalidArg);
  // The next matcher starts with a new lexer.
  EXPECT_TRUE(Matcher(*grammar).Accept("ab"));
}

TEST(GrammarBounds, TheWorkOfTheCompilerIsNotThatOfItsTexts) {
  const auto grammar =
      *Grammar::FromRegex("(?=(.*a){4}.*)(?=(.*b){4}.*)(?=(.*c){4}.*)[abc]*", Letters());
  const uint64_t compiled = grammar->graph().pool().num_steps();
  ASSERT_GT(compiled, 20'000u);
  const Lexer lexer(grammar->graph(), Letters(), {.max_steps = compiled - 1});
  EXPECT_FALSE(lexer.exhausted());
}

// Whose masks or text take long delays everybody who shares a step with it.
TEST(GrammarBounds, ALimitOfWorkEndsTheMatcher) {
  std::string regex = "(a{1}b";
  for (int i = 2; i < 400; ++i) regex += "|[a-z]{" + std::to_string(i) + "}b";
  const auto grammar = Grammar::FromRegex(regex + "){1,100}", Letters());
  ASSERT_TRUE(grammar.ok()) << grammar.status().message();
  const MatcherLimits limits{.max_work = 300'000, .work_per_step = 20'000};
  Matcher slow(*grammar, limits);
  std::vector<uint32_t> mask(slow.grammar().vocabulary().num_mask_words(), ~0u);
  while (slow.num_accepted() < 300 && slow.Accept("a")) slow.ComputeMask(mask);
  EXPECT_EQ(slow.status().code(), StatusCode::kInvalidArg);
  EXPECT_EQ(mask[0], 0u);
  Follow(*grammar, 300);  // within the usual limits
  Matcher other(*grammar);
  EXPECT_TRUE(other.Accept(std::string(300, 'a')) && other.status().ok());

  // Text that is taken back and appended again gives no work back.
  const auto ambiguous = *Grammar::FromEbnf("root ::= root root | \"a\" | \"ab\"", Letters());
  Matcher matcher(ambiguous, limits);
  ASSERT_TRUE(matcher.Accept("a"));
  matcher.ComputeMaskByWalk(mask);
  const uint64_t left = matcher.work_left();
  ASSERT_LT(left, limits.max_work);
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(matcher.Accept("a"));
    matcher.Rollback(1);
  }
  EXPECT_LE(matcher.work_left(), left + limits.work_per_step);
}

}  // namespace
}  // namespace nereid::llm::grammar
