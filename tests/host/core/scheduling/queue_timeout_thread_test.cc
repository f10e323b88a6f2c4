#include "host/core/scheduling/queue_timeout_thread.h"

#include <gtest/gtest.h>

#include <future>
#include <vector>

#include "base/clock.h"

namespace nereid::core {
namespace {

TEST(QueueTimeoutThreadTest, RunsTasksInTheOrderOfTheirDeadlines) {
  std::vector<int> order;
  std::promise<void> done;
  QueueTimeoutThread timeout_thread;
  const uint64_t now_ns = SteadyNowNs();
  timeout_thread.PostAt(now_ns + 30'000'000, [&] {
    order.push_back(3);
    done.set_value();
  });
  timeout_thread.PostAt(now_ns + 10'000'000, [&] { order.push_back(2); });
  timeout_thread.Post([&] { order.push_back(1); });
  done.get_future().wait();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
  EXPECT_GE(SteadyNowNs(), now_ns + 30'000'000);
}

TEST(QueueTimeoutThreadTest, DestructorRunsDueTasksAndDropsTheOthers) {
  int num_run = 0;
  {
    QueueTimeoutThread timeout_thread;
    timeout_thread.PostAt(UINT64_MAX, [&] { num_run += 100; });
    timeout_thread.Post([&] { ++num_run; });
  }
  EXPECT_EQ(num_run, 1);
}

TEST(QueueTimeoutThreadTest, RunsTasksDespiteVeryLateDeadlines) {
  std::promise<void> first, second;
  QueueTimeoutThread timeout_thread;
  timeout_thread.PostAt(UINT64_MAX, [] {});
  timeout_thread.PostAt(static_cast<uint64_t>(INT64_MAX) + 1, [] {});
  timeout_thread.Post([&] { first.set_value(); });
  first.get_future().wait();
  timeout_thread.PostAt(SteadyNowNs() + 1'000'000, [&] { second.set_value(); });
  second.get_future().wait();
}

TEST(QueueTimeoutThreadTest, TasksMayPostTasks) {
  std::promise<void> done;
  QueueTimeoutThread timeout_thread;
  timeout_thread.Post([&] { timeout_thread.Post([&] { done.set_value(); }); });
  done.get_future().wait();
}

}  // namespace
}  // namespace nereid::core
