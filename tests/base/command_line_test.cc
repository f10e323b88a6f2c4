#include "base/command_line.h"

#include <gtest/gtest.h>

namespace nereid {
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

TEST(CommandLineTest, HelpEndsTheLine) {
  for (const char* help : {"--help", "-h"}) {
    const auto line = Parse({"new", help, "--bogus"});
    ASSERT_TRUE(line.ok());
    EXPECT_TRUE(line->Has("--help"));
  }
}

TEST(CommandLineTest, HoldsIntegersToTheirRange) {
  EXPECT_EQ(Parse({"--count=5"})->IntOr("--count", 0, 1, 5).value(), 5);
  EXPECT_EQ(Parse({"--count=6"})->IntOr("--count", 0, 1, 5).status().message(),
            "--count: expected an integer from 1 to 5, got '6'");
}

TEST(CommandLineTest, NamesWhatItDoesNotUnderstand) {
  EXPECT_EQ(Parse({"--cout", "3"}).status().message(),
            "unknown option '--cout' (did you mean '--out'?)");
  EXPECT_EQ(Parse({"-o"}).status().message(), "unknown option '-o'");
  EXPECT_EQ(Parse({"--copy=x"}).status().message(), "--copy: takes no value, got 'x'");
  EXPECT_EQ(Parse({"--out"}).status().message(), "--out: expected a value");
  EXPECT_EQ(Parse({"--count=three"})->IntOr("--count", 0).status().message(),
            "--count: expected an integer, got 'three'");
}

}  // namespace
}  // namespace nereid
