#include "base/inline_vector.h"

#include <gtest/gtest.h>

#include <string>

namespace nereid {
namespace {

using Strings = InlineVector<std::string, 2>;

const std::string kLong(100, 'x');

TEST(InlineVectorTest, KeepsItsElementsWhenItGrowsBeyondTheInlineCapacity) {
  Strings strings;
  for (int i = 0; i < 9; ++i) strings.push_back(kLong + std::to_string(i));
  ASSERT_EQ(strings.size(), 9U);
  EXPECT_EQ(strings[0], kLong + "0");
  EXPECT_EQ(strings[8], kLong + "8");
}

TEST(InlineVectorTest, MovesInlineAndHeapContents) {
  Strings few{kLong};
  Strings many{kLong, "b", "c"};
  Strings taken_few(std::move(few));
  Strings taken_many(std::move(many));
  EXPECT_EQ(taken_few, Strings{kLong});
  EXPECT_EQ(taken_many.size(), 3U);
  EXPECT_TRUE(many.empty());  // NOLINT: a moved-from vector is empty and usable
  many.push_back("again");
  EXPECT_EQ(many[0], "again");
  taken_few = std::move(taken_many);
  EXPECT_EQ(taken_few[2], "c");
}

TEST(InlineVectorTest, CopiesWithoutSharing) {
  Strings original{kLong, "b", "c"};
  Strings copy(original);
  copy[0] = "changed";
  EXPECT_EQ(original[0], kLong);
  copy = copy;  // NOLINT
  EXPECT_EQ(copy.size(), 3U);
}

TEST(InlineVectorTest, ErasesFromTheMiddle) {
  Strings strings{"a", kLong, "c"};
  strings.erase(1);
  EXPECT_EQ(strings, (Strings{"a", "c"}));
}

TEST(InlineVectorTest, ResizesWithEmptyElements) {
  Strings strings{kLong};
  strings.resize(4);
  EXPECT_EQ(strings, (Strings{kLong, "", "", ""}));
  strings.resize(1);
  EXPECT_EQ(strings, Strings{kLong});
}

TEST(InlineVectorTest, FrontAndBackAreTheFirstAndTheLastElement) {
  Strings strings{"a", kLong, "c"};
  EXPECT_EQ(strings.front(), "a");
  EXPECT_EQ(strings.back(), "c");
  strings.pop_back();
  EXPECT_EQ(strings.back(), kLong);
}

}  // namespace
}  // namespace nereid
