// When a sequence with a LoRA adapter starts.
#include <gtest/gtest.h>

#include <set>

#include "tests/backends/llm_core/scheduled_work.h"

namespace nereid::llm {
namespace {

using testing::FakeExecutor;
using testing::MakeSequence;
using testing::SmallLimits;
using testing::Step;
using testing::Work;

// While something runs, a sequence starts when the executor has its adapter; others start before.
// With nothing to delay it starts at once.
TEST(AdapterSchedulingTest, ASequenceWaitsUntilItsAdapterIsReady) {
  const ExecutorLimits limits = SmallLimits();
  const auto one = LoraBuilder("one", 1).Finish(), two = LoraBuilder("two", 1).Finish();
  std::set<const LoraAdapter*> ready, announced;
  SchedulerOptions options;
  options.prepare_adapter = [&](const std::shared_ptr<const LoraAdapter>& adapter) {
    announced.insert(adapter.get());
    return ready.contains(adapter.get());
  };
  Scheduler scheduler(options, limits);
  FakeExecutor executor(limits);
  std::vector<std::unique_ptr<Sequence>> done;
  scheduler.Add(MakeSequence(Work{.prompt = {1, 2}, .max_tokens = 9, .adapter = one}));
  Step(scheduler, executor, done);
  EXPECT_EQ(scheduler.counts().num_running, 1);
  scheduler.Add(MakeSequence(Work{.prompt = {1, 2}, .max_tokens = 9, .adapter = two}));
  scheduler.Add(MakeSequence(Work{.prompt = {1, 2}, .max_tokens = 9}));
  Step(scheduler, executor, done);
  EXPECT_TRUE(announced.contains(two.get()));
  EXPECT_EQ(scheduler.counts().num_running, 2);
  Step(scheduler, executor, done);
  EXPECT_EQ(scheduler.counts().num_running, 2);
  ready.insert(two.get());
  Step(scheduler, executor, done);
  EXPECT_EQ(scheduler.counts().num_running, 3);
  while (!scheduler.is_empty()) Step(scheduler, executor, done);
  EXPECT_TRUE(scheduler.CheckInvariants().ok());
}

}  // namespace
}  // namespace nereid::llm
