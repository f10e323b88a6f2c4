// Tests of EventLoop: every task posted by several threads runs, in the order of its thread.
#include "net/event_loop.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <new>
#include <thread>

namespace nereid::net {
namespace {

TEST(EventLoopTest, RunsEveryPostInTheOrderOfItsThread) {
  Result<std::unique_ptr<EventLoop>> loop = EventLoop::Create();
  ASSERT_TRUE(loop.ok());
  (*loop)->Start();
  constexpr int kThreads = 4;
  constexpr int kPosts = 2000;
  std::vector<std::vector<int>> seen(kThreads);  // loop thread
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kPosts; ++i) (*loop)->PostFunction([&, t, i] { seen[t].push_back(i); });
    });
  }
  for (std::thread& thread : threads) thread.join();
  (*loop)->Stop();
  for (const auto& numbers : seen) {
    ASSERT_EQ(numbers.size(), static_cast<size_t>(kPosts));
    EXPECT_TRUE(std::is_sorted(numbers.begin(), numbers.end()));
  }
}

TEST(EventLoopTest, ATaskMayPostItselfAgain) {
  Result<std::unique_ptr<EventLoop>> loop = EventLoop::Create();
  ASSERT_TRUE(loop.ok());
  struct Again final : LoopTask {
    EventLoop* loop;
    int left = 1000;
    std::promise<void> done;
    void RunOnLoop() override { --left == 0 ? done.set_value() : loop->Post(this); }
  } task;
  task.loop = loop->get();
  (*loop)->Start();
  (*loop)->Post(&task);
  EXPECT_EQ(task.done.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
}

// Otherwise an overflow of its stack, for example in a callback of a backend, leaves nothing in the
// log.
TEST(EventLoopTest, ItsThreadHasAnAlternateSignalStack) {
  Result<std::unique_ptr<EventLoop>> loop = EventLoop::Create();
  ASSERT_TRUE(loop.ok());
  (*loop)->Start();
  std::promise<int> flags;
  (*loop)->PostFunction([&] {
    stack_t present{};
    ::sigaltstack(nullptr, &present);
    flags.set_value(present.ss_flags);
  });
  EXPECT_EQ(flags.get_future().get() & SS_DISABLE, 0);
}

TEST(EventLoopTest, SurvivesATickWithoutMemory) {
  Result<std::unique_ptr<EventLoop>> loop = EventLoop::Create();
  ASSERT_TRUE(loop.ok());
  std::promise<void> done;
  int num_ticks = 0;  // loop thread
  (*loop)->SetTick([&] {
    if (++num_ticks == 1) throw std::bad_alloc();
    if (num_ticks == 2) done.set_value();
  });
  (*loop)->Start();
  done.get_future().wait();
}

}  // namespace
}  // namespace nereid::net
