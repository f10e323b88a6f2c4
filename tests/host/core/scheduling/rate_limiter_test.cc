#include "host/core/scheduling/rate_limiter.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace nereid::core {
namespace {

InstanceGroup Group(std::vector<InstanceGroup::Resource> resources, uint32_t priority = 0) {
  InstanceGroup group;
  group.rate_limiter_resources = std::move(resources);
  group.rate_limiter_priority = priority;
  return group;
}

std::unique_ptr<RateLimiter::RegisteredInstance> Register(RateLimiter* limiter,
                                                          const InstanceGroup& group,
                                                          int device = 0) {
  auto instance = limiter->Register(group, device);
  EXPECT_TRUE(instance.ok()) << instance.status().message();
  return std::move(*instance);
}

void WaitUntilWaiting(RateLimiter* limiter, size_t count) {
  while (limiter->num_waiting() < count) std::this_thread::yield();
}

TEST(RateLimiterTest, RefusesAnInstanceThatExceedsALimit) {
  RateLimiter limiter({{"R1", 3, -1}, {"R2", 8, -1}, {"R2", 1, 5}});
  EXPECT_EQ(limiter.Register(Group({{"R1", false, 4}}), 0).status().message(),
            "Resource count for \"R1\" is limited to 3 which will prevent scheduling of one or "
            "more model instances, the minimum required count is 4");
  EXPECT_TRUE(limiter.Register(Group({{"R2", false, 8}}), 0).ok());
  EXPECT_TRUE(limiter.Register(Group({{"R2", false, 8}}), 5).ok()) << "the larger limit counts";
}

TEST(RateLimiterTest, ResourcesWithoutLimitDoNotExist) {
  RateLimiter limiter({{"R", 10, 5}});
  EXPECT_EQ(limiter.Register(Group({{"R", false, 4}}), 0).status().message(),
            "Resource count for \"R\" is limited to 0 which will prevent scheduling of one or "
            "more model instances, the minimum required count is 4");
  EXPECT_TRUE(limiter.Register(Group({{"R", false, 4}}), 5).ok());
  EXPECT_FALSE(limiter.Register(Group({{"S", false, 1}}), 5).ok());
  RateLimiter anywhere({{"G", 3, 5}});
  EXPECT_TRUE(anywhere.Register(Group({{"G", true, 3}}), 0).ok());
}

TEST(RateLimiterTest, RefusesAResourceThatIsGlobalAndDeviceSpecific) {
  RateLimiter limiter({});
  {
    const auto global = Register(&limiter, Group({{"R", true, 2}}));
    EXPECT_EQ(limiter.Register(Group({{"R", false, 2}}), 0).status().message(),
              "Resource \"R\" is present as both global and device-specific resource in the model "
              "configuration.");
    EXPECT_TRUE(limiter.Register(Group({{"S", false, 2}}), 0).ok());
  }
  EXPECT_TRUE(limiter.Register(Group({{"R", false, 2}}), 0).ok())
      << "the other instance was removed";
  EXPECT_EQ(limiter.Register(Group({{"R", true, 2}, {"R", false, 1}}), 0).status().message(),
            "Resource \"R\" is present as both global and device-specific resource in the model "
            "configuration.")
      << "within one instance";
}

TEST(RateLimiterTest, AcquiresAvailableResourcesAtOnce) {
  RateLimiter limiter({{"R", 3, -1}});
  const auto two = Register(&limiter, Group({{"R", false, 2}}));
  const auto one = Register(&limiter, Group({{"R", false, 1}}));
  two->Acquire();
  one->Acquire();
  two->Release();
  one->Release();
}

TEST(RateLimiterTest, CountsPerDeviceUnlessAResourceIsGlobal) {
  RateLimiter limiter({});
  const auto first = Register(&limiter, Group({{"R", false, 1}, {"G", true, 1}}), 0);
  const auto second = Register(&limiter, Group({{"R", false, 1}}), 1);
  const auto third = Register(&limiter, Group({{"G", true, 1}}), 2);
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

// Returns the order in which instances of the given priorities acquire the same exclusive resource.
std::string ExecutionOrder(RateLimiter* limiter, const std::vector<uint32_t>& priorities,
                           int num_executions) {
  const auto holder = Register(limiter, Group({{"R", true, 1}}));
  holder->Acquire();
  std::string order;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < priorities.size(); ++i) {
    threads.emplace_back(
        [limiter, &order, num_executions, priority = priorities[i], name = 'A' + i] {
          const auto instance = Register(limiter, Group({{"R", true, 1}}, priority));
          instance->Acquire();
          for (int run = 1; run <= num_executions; ++run) {
            order += static_cast<char>(name);
            instance->CountExecution();
            if (run < num_executions) instance->Reacquire();
          }
          instance->Release();
        });
    WaitUntilWaiting(limiter, i + 1);
  }
  holder->Release();
  for (std::thread& thread : threads) thread.join();
  return order;
}

// The order of Triton 2.51 with one model per instance.
TEST(RateLimiterTest, OrdersByNumberOfExecutionsTimesPriority) {
  RateLimiter limiter({});
  EXPECT_EQ(ExecutionOrder(&limiter, {1, 2}, 24).substr(0, 36),
            "AABAABAABAABAABAABAABAABAABAABAABAAB");
}

TEST(RateLimiterTest, OrdersEqualsByArrival) {
  RateLimiter limiter({});
  EXPECT_EQ(ExecutionOrder(&limiter, {1, 1, 1}, 4), "ABCABCABCABC");
}

TEST(RateLimiterTest, WaitingInstancesReserveTheirResources) {
  RateLimiter limiter({{"R", 2, -1}, {"S", 1, -1}});
  const auto holder = Register(&limiter, Group({{"R", false, 1}}));
  const auto large = Register(&limiter, Group({{"R", false, 2}}));
  const auto small = Register(&limiter, Group({{"R", false, 1}}));
  const auto other_resource = Register(&limiter, Group({{"S", false, 1}}));
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
  other_resource->Acquire();  // does not require R
  other_resource->Release();
  holder->Release();
  first.join();
  second.join();
  EXPECT_EQ(order, "ls");
}

TEST(RateLimiterTest, NeverExceedsALimit) {
  RateLimiter limiter({{"R", 2, -1}});
  std::vector<std::thread> threads;
  std::atomic<int> inside{0}, max_inside{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const auto instance = Register(&limiter, Group({{"R", false, 1}}));
      for (int run = 0; run < 100; ++run) {
        instance->Acquire();
        const int now = ++inside;
        int seen = max_inside;
        while (seen < now && !max_inside.compare_exchange_weak(seen, now)) {
        }
        --inside;
        instance->Release();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(max_inside, 2);
}

}  // namespace
}  // namespace nereid::core
