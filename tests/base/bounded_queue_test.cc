#include "base/bounded_queue.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace nereid {
namespace {

TEST(BoundedQueueTest, RejectsAnItemWhenFullAndLeavesItUnchanged) {
  BoundedQueue<std::unique_ptr<int>> queue(1);
  auto second = std::make_unique<int>(2);
  EXPECT_TRUE(queue.TryPush(std::make_unique<int>(1)));
  EXPECT_FALSE(queue.TryPush(std::move(second)));
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(**queue.Pop(), 1);
  EXPECT_TRUE(queue.TryPush(std::move(second)));
}

TEST(BoundedQueueTest, CanBeDrainedAfterClosing) {
  BoundedQueue<int> queue(4);
  EXPECT_TRUE(queue.Push(1));
  EXPECT_TRUE(queue.Push(2));
  queue.Close();
  EXPECT_FALSE(queue.Push(3));
  EXPECT_EQ(queue.Pop(), 1);
  EXPECT_EQ(queue.Pop(), 2);
  EXPECT_EQ(queue.Pop(), std::nullopt);
}

TEST(BoundedQueueTest, DeliversEveryItemToExactlyOneConsumer) {
  BoundedQueue<int> queue(3);
  std::vector<std::vector<int>> taken(3);
  std::vector<std::thread> threads;
  for (auto& mine : taken) {
    threads.emplace_back([&queue, &mine] {
      while (auto item = queue.Pop()) mine.push_back(*item);
    });
  }
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(queue.Push(int{i}));
  queue.Close();
  for (std::thread& thread : threads) thread.join();
  std::vector<int> seen(1000);
  for (const auto& mine : taken) {
    for (const int item : mine) ++seen[item];
  }
  EXPECT_EQ(seen, std::vector<int>(1000, 1));
}

}  // namespace
}  // namespace nereid
