// How long planning may wait for those who arrive.
#include "backends/llm_core/engine/planning_clock.h"

#include <gtest/gtest.h>

namespace nereid::llm {
namespace {

using namespace std::chrono_literals;

const PlanningClock::Clock::time_point kBegan{100s};

TEST(PlanningClockTest, WhileNobodyComesStepsArePlannedAtOnce) {
  PlanningClock clock;
  clock.NoteStep(/*is_decode=*/true, 8ms, 1ms);
  EXPECT_LE(clock.Latest(kBegan, kBegan + 1ms), kBegan + 1ms);
  clock.NoteArrival(kBegan - 2s);
  EXPECT_LE(clock.Latest(kBegan, kBegan + 1ms), kBegan + 1ms);
}

TEST(PlanningClockTest, AStepIsPlannedShortlyBeforeTheOneAheadCanEnd) {
  PlanningClock clock;
  clock.NoteArrival(kBegan - 100ms);
  clock.NoteStep(/*is_decode=*/true, 8ms, 1ms);
  EXPECT_EQ(clock.Latest(kBegan, kBegan), kBegan + 7ms);
  clock.NotePlanning(250us);
  EXPECT_EQ(clock.Latest(kBegan, kBegan), kBegan + 6500us);
}

TEST(PlanningClockTest, ShortStepsAreNotWaitedFor) {
  PlanningClock clock;
  clock.NoteArrival(kBegan);
  EXPECT_LE(clock.Latest(kBegan, kBegan), kBegan);  // nothing is known of them
  clock.NoteStep(/*is_decode=*/true, 400us, 100us);
  EXPECT_LE(clock.Latest(kBegan, kBegan), kBegan);
}

TEST(PlanningClockTest, AStepThatEndedBeforeItWasAskedForIsNotWhatTheNextOneTakes) {
  PlanningClock clock;
  clock.NoteArrival(kBegan);
  clock.NoteStep(/*is_decode=*/true, 8ms, 1ms);
  clock.NoteStep(/*is_decode=*/true, 50ms, 0us);  // the host was busy
  EXPECT_EQ(clock.Latest(kBegan, kBegan), kBegan + 3500us);
  clock.NoteStep(/*is_decode=*/false, 7ms, 10us);
  EXPECT_EQ(clock.Latest(kBegan, kBegan), kBegan + 1500us);
  clock.NoteStep(/*is_decode=*/false, 20ms, 5ms);  // with prompts: says nothing
  EXPECT_EQ(clock.Latest(kBegan, kBegan), kBegan + 1500us);
  clock.NoteStep(/*is_decode=*/true, 8ms, 1ms);
  EXPECT_EQ(clock.Latest(kBegan, kBegan), kBegan + 7ms);
}

TEST(PlanningClockTest, AfterAPauseNothingIsWaitedFor) {
  PlanningClock clock;
  clock.NoteStep(/*is_decode=*/true, 8ms, 1ms);
  clock.Forget();
  clock.NoteArrival(kBegan);
  EXPECT_LE(clock.Latest(kBegan, kBegan), kBegan);
}

}  // namespace
}  // namespace nereid::llm
