#include "host/core/config/key_index.h"

#include <gtest/gtest.h>

#include "host/core/config/parse.h"

namespace nereid::core::config {
namespace {

KeyIndex Index(std::string_view text) {
  return IndexKeys(text, ConfigSchema::Get().model_config());
}

std::string PathAt(const KeyIndex& index, int line, int column) {
  const KeyPosition* key = index.Before(line, column);
  return key == nullptr ? "" : key->path;
}

TEST(KeyIndexTest, CountsRepeatedMessagesInBothNotations) {
  const KeyIndex index = Index("input [ { name: 'A' }, { name: 'B' } ]\ninput { name: 'C' }\n");
  EXPECT_EQ(PathAt(index, 1, 11), "input[0].name");
  EXPECT_EQ(PathAt(index, 1, 26), "input[1].name");
  EXPECT_EQ(PathAt(index, 2, 9), "input[2].name");
}

TEST(KeyIndexTest, SkipsCommentsAndStrings) {
  const KeyIndex index = Index("# name: 'x' ${a}\nname: \"quote \\\" ${b} {\" backend: 'b'\n");
  EXPECT_EQ(PathAt(index, 1, 5), "");
  EXPECT_EQ(PathAt(index, 2, 30), "backend");
  EXPECT_TRUE(index.placeholders.empty());
}

TEST(KeyIndexTest, FindsTheNearestEnclosingField) {
  const KeyIndex index = Index("name: 'x'\ninstance_group [ { kind: KIND_CPU } ]\n");
  ASSERT_NE(index.Nearest("instance_group[0].count"), nullptr);
  EXPECT_EQ(index.Nearest("instance_group[0].count")->line, 2);
  EXPECT_EQ(index.Nearest("output[0].dims"), nullptr);
}

TEST(KeyIndexTest, FindsPlaceholdersInLists) {
  const KeyIndex index = Index("input { dims: [ 1, ${size} ] }");
  ASSERT_EQ(index.placeholders.size(), 1u);
  EXPECT_EQ(index.placeholders[0].name, "${size}");
  EXPECT_EQ(index.placeholders[0].position.path, "input[0].dims");
}

}  // namespace
}  // namespace nereid::core::config
