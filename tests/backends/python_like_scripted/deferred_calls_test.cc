// Tests DeferredCalls, also when the system has no more threads.
#include "backends/python_like_scripted/deferred_calls.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>

#include "tests/support/thread_creation_blocker.h"

namespace nereid::python {
namespace {

TEST(DeferredCallsTest, DestructorWaitsForAllCalls) {
  std::atomic<int> num_done{0};
  {
    std::latch all_run(4);  // at the same time
    DeferredCalls deferred_calls;
    for (int i = 0; i < 4; ++i) {
      ASSERT_TRUE(deferred_calls
                      .Run([&] {
                        all_run.arrive_and_wait();
                        ++num_done;
                      })
                      .ok());
    }
    all_run.wait();
  }
  EXPECT_EQ(num_done, 4);
}

TEST(DeferredCallsTest, ACallWithoutAThreadIsAnErrorAndTheNextOneRuns) {
  std::atomic<int> num_done{0};
  {
    DeferredCalls deferred_calls;
    {
      const ThreadCreationBlocker no_threads;
      const Status status = deferred_calls.Run([&] { ++num_done; });
      EXPECT_EQ(status.code(), StatusCode::kUnavailable);
      EXPECT_NE(status.message().find("no thread could be started"), std::string::npos);
    }
    EXPECT_TRUE(deferred_calls.Run([&] { ++num_done; }).ok());
  }
  EXPECT_EQ(num_done, 1);
}

}  // namespace
}  // namespace nereid::python
