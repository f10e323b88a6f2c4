// The wish changes nothing but the length of a turn, whether or not the system knows of such.
#include "nereid/short_turns.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <thread>

namespace nereid {
namespace {

TEST(ShortTurnsTest, LeavePolicyAndPriorityAsTheyAre) {
  std::thread([] {
    const int policy = sched_getscheduler(0);
    const int nice = getpriority(PRIO_PROCESS, 0);
    AskForShortTurns();
    EXPECT_EQ(sched_getscheduler(0), policy);
    EXPECT_EQ(getpriority(PRIO_PROCESS, 0), nice);
  }).join();
}

TEST(ShortTurnsTest, LeaveAThreadOfAnotherPolicyAlone) {
  std::thread([] {
    const sched_param none{};
    if (sched_setscheduler(0, SCHED_BATCH, &none) != 0) GTEST_SKIP() << "no other policy here";
    EXPECT_FALSE(AskForShortTurns());
    EXPECT_EQ(sched_getscheduler(0), SCHED_BATCH);
  }).join();
}

}  // namespace
}  // namespace nereid
