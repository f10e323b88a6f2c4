#include "host/core/observe/text_table.h"

#include <gtest/gtest.h>

namespace nereid::core {
namespace {

TEST(TextTableTest, ColumnsAreAsWideAsTheirContent) {
  TextTable table({"Model", "Status"});
  table.AddRow({"a", "READY"});
  table.AddRow({"longer", ""});
  EXPECT_EQ(table.Text(),
            "+--------+--------+\n"
            "| Model  | Status |\n"
            "+--------+--------+\n"
            "| a      | READY  |\n"
            "| longer |        |\n"
            "+--------+--------+\n");
}

TEST(TextTableTest, ShowsCellsWithSeveralLines) {
  TextTable table({"A", "B"});
  table.AddRow({"1\n22\n", "x"});
  table.AddRow({"3"});
  EXPECT_EQ(table.Text(),
            "+----+---+\n"
            "| A  | B |\n"
            "+----+---+\n"
            "| 1  | x |\n"
            "| 22 |   |\n"
            "|    |   |\n"
            "| 3  |   |\n"
            "+----+---+\n");
}

TEST(TextTableTest, MayBeEmpty) {
  EXPECT_EQ(TextTable({"A"}).Text(), "+---+\n| A |\n+---+\n+---+\n");
}

}  // namespace
}  // namespace nereid::core
