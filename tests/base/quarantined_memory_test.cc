#include "base/quarantined_memory.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <set>
#include <thread>
#include <vector>

namespace nereid {
namespace {

struct Thing final : QuarantinedMemory<Thing> {
  explicit Thing(uint64_t number) : first(number), last(number) {}
  uint64_t first;
  char between[200];
  uint64_t last;
};

TEST(QuarantinedMemoryTest, TheLastDeletedObjectsAreNotLiveWhileOthersAreAllocated) {
  std::deque<Thing*> deleted;
  std::vector<std::unique_ptr<Thing>> living;
  for (uint64_t i = 0; i < 5000; ++i) {
    auto* thing = new Thing(i);
    EXPECT_TRUE(Thing::IsLive(thing));
    delete thing;
    deleted.push_back(thing);
    if (deleted.size() > 64) deleted.pop_front();
    if (i % 3 == 0) living.push_back(std::make_unique<Thing>(i));
    for (Thing* quarantined : deleted) ASSERT_FALSE(Thing::IsLive(quarantined)) << i;
  }
}

#if !defined(NEREID_SANITIZE_ADDRESS)
TEST(QuarantinedMemoryTest, ReusesOldMemoryForNewObjects) {
  std::set<Thing*> addresses;
  for (uint64_t i = 0; i < 5000; ++i) {
    auto* thing = new Thing(i);
    addresses.insert(thing);
    delete thing;
  }
  EXPECT_LE(addresses.size(), 400U);
}
#endif

TEST(QuarantinedMemoryTest, NoTwoLiveObjectsShareMemory) {
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      std::deque<std::unique_ptr<Thing>> mine;
      for (uint64_t i = 0; i < 20000; ++i) {
        mine.push_back(std::make_unique<Thing>(t << 32 | i));
        if (mine.size() < 1 + i % 100) continue;
        const std::unique_ptr<Thing> oldest = std::move(mine.front());
        mine.pop_front();
        ASSERT_EQ(oldest->first, oldest->last);
        ASSERT_EQ(oldest->first >> 32, t);
        ASSERT_TRUE(Thing::IsLive(oldest.get()));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace nereid
