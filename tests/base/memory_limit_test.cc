// MemoryLimitBytes is at most the memory of the machine, and follows the limit of the process.
#include "base/memory_limit.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/support/sanitizer.h"

namespace nereid {
namespace {

TEST(MemoryLimitTest, IsAtMostTheMachinesMemory) {
  EXPECT_GT(MemoryLimitBytes(), 0u);
  EXPECT_LE(MemoryLimitBytes(), static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) *
                                    static_cast<size_t>(sysconf(_SC_PAGE_SIZE)));
}

TEST(MemoryLimitTest, FollowsTheLimitOfTheAddressSpace) {
  if (kHasSanitizer) GTEST_SKIP();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  rlimit lower = before;
  lower.rlim_cur = 900'000'000;
  ASSERT_EQ(setrlimit(RLIMIT_AS, &lower), 0);
  const size_t limit = MemoryLimitBytes();
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_LE(limit, 900'000'000u);
}

}  // namespace
}  // namespace nereid
