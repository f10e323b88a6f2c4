#include "repo_templates/tool/command_line.h"

#include <gtest/gtest.h>

namespace nereid::repo {
namespace {

Result<CommandLine> Parse(const std::vector<std::string>& arguments) {
  return ParseCommandLine(arguments, {"--out", "--count"}, {"--copy"});
}

TEST(CommandLineTest, TakesValuesInBothForms) {
  const auto line = Parse({"new", "--out=a b", "llm", "--count", "3", "--copy"});
  ASSERT_TRUE(line.ok());
  EXPECT_EQ(line->words, (std::vector<std::string>{"new", "llm"}));
  EXPECT_EQ(line->ValueOr("--out", ""), "a b");
  EXPECT_EQ(line->IntOr("--count", 0).value(), 3);
  EXPECT_EQ(line->IntOr("--other", 7).value(), 7);
  EXPECT_TRUE(line->Has("--copy"));
}

TEST(CommandLineTest, NamesWhatItDoesNotUnderstand) {
  EXPECT_EQ(Parse({"--cout", "3"}).status().message(),
            "unknown option '--cout' (did you mean '--out'?)");
  EXPECT_EQ(Parse({"--out"}).status().message(), "option '--out' needs a value");
  EXPECT_EQ(Parse({"--count=three"})->IntOr("--count", 0).status().message(),
            "--count: expected an integer, got 'three'");
}

}  // namespace
}  // namespace nereid::repo
