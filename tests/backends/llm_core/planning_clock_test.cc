// How long planning may wait for those who arrive.
#include "llm_core/engine/planning_clock.h"

#include <gtest/gtest.h>

namespace nereid::llm {
namespace {

using namespace std::chrono_literals;

const PlanningClock::Clock::time_point kBegan{100s};

TEST(PlanningClockTest, WhileNobodyComesStepsArePlannedAtOnce) {
  PlanningClock clock;
  clock.NoteDecodeStep(8ms);
  EXPECT_LE(clock.Latest(kBegan, kBegan + 1ms), kBegan + 1ms);
  clock.NoteArrival(kBegan - 2s);
  EXPECT_LE(clock.Latest(kBegan, kBegan + 1ms), kBegan + 1ms);
}

TEST(PlanningClockTest, AStepIsPlannedShortlyBeforeTheOneAheadCanEnd) {
  PlanningClock clock;
  clock.NoteArrival(kBegan - 100ms);
  clock.NoteDecodeStep(8ms);
  EXPECT_EQ(clock.Latest(kBegan, kBegan), kBegan + 7ms);
  clock.NotePlanning(250us);
  EXPECT_EQ(clock.Latest(kBegan, kBegan), kBegan + 6500us);
}

TEST(PlanningClockTest, ShortStepsAreNotWaitedFor) {
  PlanningClock clock;
  clock.NoteArrival(kBegan);
  EXPECT_LE(clock.Latest(kBegan, kBegan), kBegan);  // nothing is known of them
  clock.NoteDecodeStep(400us);
  EXPECT_LE(clock.Latest(kBegan, kBegan), kBegan);
}

}  // namespace
}  // namespace nereid::llm
