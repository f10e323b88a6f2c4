// Errands, also where the system has no more threads.
#include "backends/python_like_scripted/errands.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>

#include "tests/backends/python_like_scripted/no_threads.h"

namespace nereid::scripted {
namespace {

TEST(ErrandsTest, TheirEndWaitsForAll) {
  std::atomic<int> num_done{0};
  {
    std::latch all_run(4);  // at the same time
    Errands errands;
    for (int i = 0; i < 4; ++i) {
      ASSERT_TRUE(errands
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

TEST(ErrandsTest, AnErrandThatGetsNoThreadIsAnErrorAndTheNextOneRuns) {
  std::atomic<int> num_done{0};
  {
    Errands errands;
    {
      const NoThreads no_threads;
      const Status status = errands.Run([&] { ++num_done; });
      EXPECT_EQ(status.code(), StatusCode::kUnavailable);
      EXPECT_NE(status.message().find("no thread could be started"), std::string::npos);
    }
    EXPECT_TRUE(errands.Run([&] { ++num_done; }).ok());
  }
  EXPECT_EQ(num_done, 1);
}

}  // namespace
}  // namespace nereid::scripted
