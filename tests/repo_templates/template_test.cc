#include "repo_templates/tool/template.h"

#include <gtest/gtest.h>

namespace nereid::repo {
namespace {

TEST(TemplateTest, FillsEveryPlaceholderAndEscapesQuotes) {
  const auto filled = FillTemplate("a: ${n}\nb: \"${s}\" ${n}", {{"n", "4"}, {"s", "x\"y\\"}}, "t");
  ASSERT_TRUE(filled.ok());
  EXPECT_EQ(*filled, "a: 4\nb: \"x\\\"y\\\\\" 4");
}

TEST(TemplateTest, NamesThePlaceholderWithoutAValue) {
  EXPECT_EQ(FillTemplate("a\nb: ${x}", {}, "t").status().message(), "t:2: no value for ${x}");
  EXPECT_EQ(FillTemplate("b: ${x", {}, "t").status().message(), "t:1: '${' without '}'");
}

}  // namespace
}  // namespace nereid::repo
