#include "host/core/config/config_document.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace nereid::core::config {
namespace {

TEST(CompactTextTest, EqualsTheDumpOfTheTree) {
  const std::string bytes("a\0b", 3);
  const Json trees[] = {Json(),
                        true,
                        0,
                        -1,
                        INT64_MIN,
                        UINT64_MAX,
                        0.1,
                        1e300,
                        2.0,
                        "",
                        "plain text",
                        "\"quoted\" \\ / \b\f\n\r\t\x01\x1f\x7f",
                        bytes,
                        "\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80",
                        "cut \xE2\x82",
                        Json::array(),
                        Json::object(),
                        {1, "two", {3.5, nullptr, false}, Json::array()},
                        {{"b", {{"\n", 1}, {"", Json::object()}}}, {"a", {1, 2}}}};
  for (const Json& tree : trees) {
    EXPECT_EQ(CompactText(tree), tree.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
}

}  // namespace
}  // namespace nereid::core::config
