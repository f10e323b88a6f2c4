#include "host/core/scheduling/rate_limiter.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace nereid {
namespace {

InstanceGroup Group(std::vector<InstanceGroup::Resource> resources, uint32_t priority = 0) {
  InstanceGroup group;
  group.rate_limiter_resources = std::move(resources);
  group.rate_limiter_priority = priority;
  return group;
}

std::unique_ptr<RateLimiter::Member> Join(RateLimiter* limiter, const InstanceGroup& group,
                                          int device = 0) {
  auto member = limiter->Join(group, device);
  EXPECT_TRUE(member.ok()) << member.status().message();
  return std::move(*member);
}

void WaitUntilWaiting(RateLimiter* limiter, size_t count) {
  while (limiter->num_waiting() < count) std::this_thread::yield();
}

TEST(RateLimiterTest, RefusesAnInstanceThatCouldNeverRun) {
  RateLimiter limiter({{"R1", 3, -1}, {"R2", 8, -1}, {"R2", 1, 5}});
  EXPECT_EQ(limiter.Join(Group({{"R1", false, 4}}), 0).status().message(),
            "Resource count for \"R1\" is limited to 3 which will prevent scheduling of one or "
            "more model instances, the minimum required count is 4");
  EXPECT_TRUE(limiter.Join(Group({{"R2", false, 8}}), 0).ok());
  EXPECT_TRUE(limiter.Join(Group({{"R2", false, 8}}), 5).ok()) << "the larger limit counts";
}

TEST(RateLimiterTest, LimitsNameAllThatIsThere) {
  RateLimiter limiter({{"R", 10, 5}});
  EXPECT_EQ(limiter.Join(Group({{"R", false, 4}}), 0).status().message(),
            "Resource count for \"R\" is limited to 0 which will prevent scheduling of one or "
            "more model instances, the minimum required count is 4");
  EXPECT_TRUE(limiter.Join(Group({{"R", false, 4}}), 5).ok());
  EXPECT_FALSE(limiter.Join(Group({{"S", false, 1}}), 5).ok());
  RateLimiter anywhere({{"G", 3, 5}});
  EXPECT_TRUE(anywhere.Join(Group({{"G", true, 3}}), 0).ok());
}

TEST(RateLimiterTest, AResourceIsGlobalForAllOrForNone) {
  RateLimiter limiter({});
  {
    const auto global = Join(&limiter, Group({{"R", true, 2}}));
    EXPECT_EQ(limiter.Join(Group({{"R", false, 2}}), 0).status().message(),
              "Resource \"R\" is present as both global and device-specific resource in the model "
              "configuration.");
    EXPECT_TRUE(limiter.Join(Group({{"S", false, 2}}), 0).ok());
  }
  EXPECT_TRUE(limiter.Join(Group({{"R", false, 2}}), 0).ok()) << "the other has left";
  EXPECT_EQ(limiter.Join(Group({{"R", true, 2}, {"R", false, 1}}), 0).status().message(),
            "Resource \"R\" is present as both global and device-specific resource in the model "
            "configuration.")
      << "within one instance";
}

TEST(RateLimiterTest, GivesWhatIsThereAtOnce) {
  RateLimiter limiter({{"R", 3, -1}});
  const auto two = Join(&limiter, Group({{"R", false, 2}}));
  const auto one = Join(&limiter, Group({{"R", false, 1}}));
  two->Acquire();
  one->Acquire();
  two->Release();
  one->Release();
}

TEST(RateLimiterTest, CountsDevicesApartUnlessAResourceIsGlobal) {
  RateLimiter limiter({});
  const auto first = Join(&limiter, Group({{"R", false, 1}, {"G", true, 1}}), 0);
  const auto second = Join(&limiter, Group({{"R", false, 1}}), 1);
  const auto third = Join(&limiter, Group({{"G", true, 1}}), 2);
  first->Acquire();
  second->Acquire();
  std::atomic<bool> acquired{false};
  std::thread waiter([&] {
    third->Acquire();
    acquired = true;
    third->Release();
  });
  WaitUntilWaiting(&limiter, 1);
  EXPECT_FALSE(acquired);
  second->Release();
  EXPECT_FALSE(acquired);
  first->Release();
  waiter.join();
  EXPECT_TRUE(acquired);
}

// Runs that want the same resource, which nobody else has, in the order in which they got it.
std::string Runs(RateLimiter* limiter, const std::vector<uint32_t>& priorities, int num_runs) {
  const auto holder = Join(limiter, Group({{"R", true, 1}}));
  holder->Acquire();
  std::string order;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < priorities.size(); ++i) {
    threads.emplace_back([limiter, &order, num_runs, priority = priorities[i], name = 'A' + i] {
      const auto member = Join(limiter, Group({{"R", true, 1}}, priority));
      member->Acquire();
      for (int run = 1; run <= num_runs; ++run) {
        order += static_cast<char>(name);
        member->CountRun();
        if (run < num_runs) member->AcquireAgain();
      }
      member->Release();
    });
    WaitUntilWaiting(limiter, i + 1);
  }
  holder->Release();
  for (std::thread& thread : threads) thread.join();
  return order;
}

// What Triton 2.51 does when it is asked the same, with a model for each.
TEST(RateLimiterTest, ServesByNumberOfRunsTimesPriority) {
  RateLimiter limiter({});
  EXPECT_EQ(Runs(&limiter, {1, 2}, 24).substr(0, 36), "AABAABAABAABAABAABAABAABAABAABAABAAB");
}

TEST(RateLimiterTest, ServesEqualsInTheOrderOfTheirArrival) {
  RateLimiter limiter({});
  EXPECT_EQ(Runs(&limiter, {1, 1, 1}, 4), "ABCABCABCABC");
}

TEST(RateLimiterTest, LetsNobodyPassWhoWaitsForTheSame) {
  RateLimiter limiter({{"R", 2, -1}, {"S", 1, -1}});
  const auto holder = Join(&limiter, Group({{"R", false, 1}}));
  const auto large = Join(&limiter, Group({{"R", false, 2}}));
  const auto small = Join(&limiter, Group({{"R", false, 1}}));
  const auto stranger = Join(&limiter, Group({{"S", false, 1}}));
  holder->Acquire();
  std::string order;
  std::thread first([&] {
    large->Acquire();
    order += 'l';
    large->Release();
  });
  WaitUntilWaiting(&limiter, 1);
  std::thread second([&] {
    small->Acquire();
    order += 's';
    small->Release();
  });
  WaitUntilWaiting(&limiter, 2);
  stranger->Acquire();  // wants none of it
  stranger->Release();
  holder->Release();
  first.join();
  second.join();
  EXPECT_EQ(order, "ls");
}

TEST(RateLimiterTest, NeverGivesMoreThanThereIs) {
  RateLimiter limiter({{"R", 2, -1}});
  std::vector<std::thread> threads;
  std::atomic<int> inside{0}, most{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const auto member = Join(&limiter, Group({{"R", false, 1}}));
      for (int run = 0; run < 100; ++run) {
        member->Acquire();
        const int now = ++inside;
        int seen = most;
        while (seen < now && !most.compare_exchange_weak(seen, now)) {
        }
        --inside;
        member->Release();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most, 2);
}

}  // namespace
}  // namespace nereid
