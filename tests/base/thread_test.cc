#include "base/thread.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <string_view>

#include "base/parallel_for.h"
#include "tests/support/thread_creation_blocker.h"

namespace nereid {
namespace {

bool HasAlternateStack() {
  stack_t present{};
  return ::sigaltstack(nullptr, &present) == 0 && (present.ss_flags & SS_DISABLE) == 0;
}

TEST(ThreadTest, AThreadHasAnAlternateSignalStackUntilItEnds) {
  bool has_stack = false;
  StartThread([&] { has_stack = HasAlternateStack(); }).join();
  EXPECT_TRUE(has_stack);
  std::thread([] {
    const bool has_one_before = HasAlternateStack();  // a sanitizer's
    { const AlternateSignalStack stack; }
    EXPECT_EQ(HasAlternateStack(), has_one_before);
  }).join();
}

TEST(ThreadTest, KeepsAStackThatTheThreadAlreadyHas) {
  static char memory[64 << 10];
  std::thread([] {
    stack_t own{};
    own.ss_sp = memory;
    own.ss_size = sizeof(memory);
    ASSERT_EQ(::sigaltstack(&own, nullptr), 0);
    { const AlternateSignalStack stack; }
    stack_t present{};
    ASSERT_EQ(::sigaltstack(nullptr, &present), 0);
    EXPECT_EQ(present.ss_sp, memory);
    own.ss_flags = SS_DISABLE;
    ::sigaltstack(&own, nullptr);
  }).join();
}

TEST(ThreadTest, ASystemWithoutThreadsStartsFewer) {
  std::vector<std::thread> threads;
  std::atomic<int> sum{0};
  StartThreads(
      3, [&](size_t i) { sum += 1 << i; }, threads);
  {
    const ThreadCreationBlocker blocker;
    EXPECT_THROW(StartThread([] {}).join(), std::system_error);
    StartThreads(
        2, [&](size_t) { sum += 1000; }, threads);
    std::atomic<int> num_items{0};
    ParallelFor(100, [&](size_t) { ++num_items; });
    EXPECT_EQ(num_items, 100);
  }
  ASSERT_EQ(threads.size(), 3u);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sum, 7);
}

#if !defined(NEREID_SANITIZE_ADDRESS) && !defined(NEREID_SANITIZE_THREAD)

[[gnu::noinline]] int Recurse(int depth) {
  volatile char frame[1024];
  frame[0] = static_cast<char>(depth);
  return depth == 0 ? 0 : Recurse(depth - 1) + frame[0];
}

void OnSegv(int) {
  constexpr std::string_view kText = "the handler ran\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kText.data(), kText.size());
  _exit(3);
}

void InstallHandler() {
  struct sigaction action {};
  action.sa_handler = &OnSegv;
  action.sa_flags = SA_ONSTACK;
  ::sigaction(SIGSEGV, &action, nullptr);
}

using ThreadDeathTest = testing::Test;

TEST_F(ThreadDeathTest, AHandlerRunsWhenTheStackOverflows) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        InstallHandler();
        StartThread([] { Recurse(INT_MAX); }).join();
      },
      testing::ExitedWithCode(3), "the handler ran");
}

#endif

}  // namespace
}  // namespace nereid
