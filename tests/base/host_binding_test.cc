#include "base/host_binding.h"

#include <gtest/gtest.h>

namespace nereid {
namespace {

std::string Refusal(const std::string& key, const std::string& value) {
  return ReadHostBinding("cpu", {{key, value}}).status().message();
}

TEST(HostBindingTest, ReadsNumbersAndRangesOfCores) {
  const auto one = ReadHostBinding("cpu", {{"cpu-cores", "0"}});
  ASSERT_TRUE(one.ok()) << one.status().message();
  EXPECT_EQ(one->cores, std::vector<int>{0});
  EXPECT_FALSE(one->empty());
  EXPECT_EQ(ReadHostBinding("cpu", {{"cpu-cores", "0-0,0"}})->cores, (std::vector<int>{0, 0}));
  EXPECT_EQ(ReadHostBinding("cpu", {{"numa-node", "0"}})->numa_node, 0);
  EXPECT_TRUE(ReadHostBinding("cpu", {})->empty());
}

TEST(HostBindingTest, RejectsAMalformedListOfCores) {
  for (const char* value : {"", "x", "-1", "1-", "3-1", "0,,1", "0,", "1.5", "99999999999"}) {
    EXPECT_EQ(Refusal("cpu-cores", value),
              StrCat("host policy 'cpu': cpu-cores: expected numbers and ranges of cores, like "
                     "0-3,8, got '",
                     value, "'"));
  }
}

TEST(HostBindingTest, RejectsNodesThatThisMachineDoesNotHaveAndUnknownSettings) {
  EXPECT_NE(Refusal("numa-node", "4097").find("expected a node of this machine, got '4097'"),
            std::string::npos);
  EXPECT_NE(Refusal("numa-node", "zero").find("expected the number of a node, got 'zero'"),
            std::string::npos);
  EXPECT_EQ(Refusal("numa-nodes", "0"),
            "Unsupported host policy setting 'numa-nodes' of policy 'cpu': expected numa-node or "
            "cpu-cores");
}

}  // namespace
}  // namespace nereid
