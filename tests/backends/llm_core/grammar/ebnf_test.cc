#include "backends/llm_core/grammar/ebnf.h"

#include "tests/backends/llm_core/grammar/small_vocabulary.h"

namespace nereid::llm::grammar {
namespace {

std::shared_ptr<const Grammar> CompileEbnf(const std::string& text) {
  auto grammar = Grammar::FromEbnf(text, BytesAnd({"ab", "(((", "))", "1,", "\xc3"}));
  EXPECT_TRUE(grammar.ok()) << grammar.status().message();
  return *grammar;
}

TEST(Ebnf, TheCommonFormOfRulesIsRead) {
  const auto grammar = CompileEbnf(
      "# the root\n"
      "root ::= \"a\" | [b-z]+ rule*\n"
      "rule ::= \"(\" root \")\"  # a group\n"
      "       | (\",\" | ';'){1,3} /[0-9]{2}/ ;\n");
  for (const char* text : {"a", "bcd(a)", "bc(a),,12", "bc;34(zz(a))"}) {
    EXPECT_TRUE(Accepts(grammar, text)) << text;
  }
  for (const char* text : {"", "ab", "bc(a),,123", "bc(a),,,,12", "b()"}) {
    EXPECT_FALSE(Accepts(grammar, text)) << text;
  }
}

TEST(Ebnf, RecursionNestsToAnyDepth) {
  const auto grammar =
      CompileEbnf("root ::= \"(\" root* \")\" | expr\nexpr ::= expr \"+\" expr | [0-9]");
  const std::string deep = std::string(300, '(') + "1+2" + std::string(300, ')');
  Matcher matcher(grammar);
  EXPECT_TRUE(matcher.Accept(deep));
  EXPECT_TRUE(matcher.CanEnd());
  EXPECT_FALSE(matcher.Accept(")"));
  EXPECT_TRUE(Accepts(grammar, "((1+2+3)())"));
  EXPECT_FALSE(Accepts(grammar, "((1+)"));
}

TEST(Ebnf, EscapesAndUnicodeAreCharacters) {
  const auto grammar = CompileEbnf(R"(root ::= "\x41\n\"" [^\x00-\x7F]? "\u00e9" .)");
  EXPECT_TRUE(Accepts(grammar, "A\n\"\xc3\xa9x"));
  EXPECT_TRUE(Accepts(grammar, "A\n\"\xe2\x82\xac\xc3\xa9\n"));
  EXPECT_FALSE(Accepts(grammar, "A\n\"\xc3"));
}

TEST(Ebnf, ErrorsNameTheLine) {
  const auto error = [](const char* text) {
    return Grammar::FromEbnf(text, BytesAnd({})).status().message();
  };
  EXPECT_EQ(error("root ::= a\n"), "line 1 of the grammar: rule 'a' is not defined");
  EXPECT_EQ(error("root ::= \"a\"\nroot ::= \"b\""),
            "line 2 of the grammar: a second definition of rule 'root'");
  EXPECT_EQ(error("x ::= \"a\""), "line 1 of the grammar: rule 'root' is not defined");
  EXPECT_EQ(error("root ::= (\"a\""), "line 1 of the grammar: '(' is not closed");
  EXPECT_EQ(error("root ::= root"), "no text fits the grammar");
  EXPECT_EQ(error("root ::= \"a\" root"), "no text fits the grammar");
}

}  // namespace
}  // namespace nereid::llm::grammar
