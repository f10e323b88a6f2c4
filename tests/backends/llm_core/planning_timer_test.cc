// How long planning may wait for further requests.
#include "backends/llm_core/engine/planning_timer.h"

#include <gtest/gtest.h>

namespace nereid::llm {
namespace {

using namespace std::chrono_literals;

const PlanningTimer::Clock::time_point kBegan{100s};

TEST(PlanningTimerTest, WithoutArrivalsStepsArePlannedAtOnce) {
  PlanningTimer clock;
  clock.RecordStep(/*is_decode=*/true, 8ms, 1ms);
  EXPECT_LE(clock.Deadline(kBegan, kBegan + 1ms), kBegan + 1ms);
  clock.RecordArrival(kBegan - 2s);
  EXPECT_LE(clock.Deadline(kBegan, kBegan + 1ms), kBegan + 1ms);
}

TEST(PlanningTimerTest, AStepIsPlannedShortlyBeforeTheRunningOneCanEnd) {
  PlanningTimer clock;
  clock.RecordArrival(kBegan - 100ms);
  clock.RecordStep(/*is_decode=*/true, 8ms, 1ms);
  EXPECT_EQ(clock.Deadline(kBegan, kBegan), kBegan + 7ms);
  clock.RecordPlanning(250us);
  EXPECT_EQ(clock.Deadline(kBegan, kBegan), kBegan + 6500us);
}

TEST(PlanningTimerTest, PlanningDoesNotWaitDuringShortSteps) {
  PlanningTimer clock;
  clock.RecordArrival(kBegan);
  EXPECT_LE(clock.Deadline(kBegan, kBegan), kBegan);  // no step was recorded yet
  clock.RecordStep(/*is_decode=*/true, 400us, 100us);
  EXPECT_LE(clock.Deadline(kBegan, kBegan), kBegan);
}

TEST(PlanningTimerTest, AResultThatWasReadyBeforeCollectHalvesThePrediction) {
  PlanningTimer clock;
  clock.RecordArrival(kBegan);
  clock.RecordStep(/*is_decode=*/true, 8ms, 1ms);
  clock.RecordStep(/*is_decode=*/true, 50ms, 0us);  // the host was busy
  EXPECT_EQ(clock.Deadline(kBegan, kBegan), kBegan + 3500us);
  clock.RecordStep(/*is_decode=*/false, 7ms, 10us);
  EXPECT_EQ(clock.Deadline(kBegan, kBegan), kBegan + 1500us);
  clock.RecordStep(/*is_decode=*/false, 20ms, 5ms);  // a step with prompts predicts nothing
  EXPECT_EQ(clock.Deadline(kBegan, kBegan), kBegan + 1500us);
  clock.RecordStep(/*is_decode=*/true, 8ms, 1ms);
  EXPECT_EQ(clock.Deadline(kBegan, kBegan), kBegan + 7ms);
}

TEST(PlanningTimerTest, AResultIsAskedForShortlyBeforeTheStepCanEnd) {
  PlanningTimer clock;
  EXPECT_LE(clock.CollectTime(kBegan), kBegan);  // no step was recorded yet
  clock.RecordStep(/*is_decode=*/true, 8ms, 1ms);
  EXPECT_EQ(clock.CollectTime(kBegan), kBegan + 7ms);  // also without arrivals
  clock.RecordStep(/*is_decode=*/true, 400us, 100us);
  EXPECT_LE(clock.CollectTime(kBegan), kBegan);
}

TEST(PlanningTimerTest, AfterAnIdleTimePlanningDoesNotWait) {
  PlanningTimer clock;
  clock.RecordStep(/*is_decode=*/true, 8ms, 1ms);
  clock.Reset();
  clock.RecordArrival(kBegan);
  EXPECT_LE(clock.Deadline(kBegan, kBegan), kBegan);
}

}  // namespace
}  // namespace nereid::llm
