#include "host/core/scheduling/queue_attendant.h"

#include <gtest/gtest.h>

#include <future>
#include <vector>

#include "base/clock.h"

namespace nereid {
namespace {

TEST(QueueAttendantTest, RunsTasksInTheOrderOfTheirDeadlines) {
  std::vector<int> order;
  std::promise<void> done;
  QueueAttendant attendant;
  const uint64_t now_ns = SteadyNowNs();
  attendant.PostAt(now_ns + 30'000'000, [&] {
    order.push_back(3);
    done.set_value();
  });
  attendant.PostAt(now_ns + 10'000'000, [&] { order.push_back(2); });
  attendant.Post([&] { order.push_back(1); });
  done.get_future().wait();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
  EXPECT_GE(SteadyNowNs(), now_ns + 30'000'000);
}

TEST(QueueAttendantTest, RunsWhatIsDueBeforeItEndsAndDropsTheRest) {
  int num_run = 0;
  {
    QueueAttendant attendant;
    attendant.PostAt(UINT64_MAX, [&] { num_run += 100; });
    attendant.Post([&] { ++num_run; });
  }
  EXPECT_EQ(num_run, 1);
}

TEST(QueueAttendantTest, RunsTasksBesideOnesInAFarFuture) {
  std::promise<void> first, second;
  QueueAttendant attendant;
  attendant.PostAt(UINT64_MAX, [] {});
  attendant.PostAt(static_cast<uint64_t>(INT64_MAX) + 1, [] {});
  attendant.Post([&] { first.set_value(); });
  first.get_future().wait();
  attendant.PostAt(SteadyNowNs() + 1'000'000, [&] { second.set_value(); });
  second.get_future().wait();
}

TEST(QueueAttendantTest, LetsATaskPostAnother) {
  std::promise<void> done;
  QueueAttendant attendant;
  attendant.Post([&] { attendant.Post([&] { done.set_value(); }); });
  done.get_future().wait();
}

}  // namespace
}  // namespace nereid
