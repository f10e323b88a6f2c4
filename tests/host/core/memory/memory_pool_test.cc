#include "host/core/memory/memory_pool.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace nereid::core {
namespace {

void* const kBase = reinterpret_cast<void*>(uintptr_t{1} << 40);  // never touched

TEST(MemoryPoolTest, MergesFreedBlocks) {
  MemoryPool pool(kBase, 1024);
  void* const first = pool.Allocate(1);
  void* const second = pool.Allocate(512);
  EXPECT_EQ(first, kBase);
  EXPECT_EQ(second, static_cast<char*>(kBase) + 256);
  EXPECT_EQ(pool.used_bytes(), 768U);
  EXPECT_EQ(pool.Allocate(257), nullptr) << "256 bytes are left";
  EXPECT_TRUE(pool.Free(first));
  EXPECT_EQ(pool.Allocate(512), nullptr) << "two free blocks of 256 bytes";
  EXPECT_TRUE(pool.Free(second));
  EXPECT_EQ(pool.used_bytes(), 0U);
  EXPECT_EQ(pool.Allocate(1024), kBase) << "the free blocks are merged";
}

TEST(MemoryPoolTest, RejectsBuffersThatItDidNotAllocate) {
  MemoryPool pool(kBase, 1024);
  char* const taken = static_cast<char*>(pool.Allocate(512));
  EXPECT_FALSE(pool.Free(taken + 256));
  EXPECT_FALSE(pool.Free(taken - 1024));
  EXPECT_FALSE(pool.Free(&pool));
  EXPECT_TRUE(pool.Free(taken));
  EXPECT_FALSE(pool.Free(taken)) << "twice";
  EXPECT_EQ(pool.Allocate(SIZE_MAX), nullptr);
  EXPECT_NE(pool.Allocate(0), nullptr);
  EXPECT_EQ(MemoryPool(nullptr, 0).Allocate(0), nullptr);
}

TEST(MemoryPoolTest, NeverAllocatesBytesTwice) {
  constexpr size_t kSize = 1 << 16;
  MemoryPool pool(kBase, kSize);
  std::map<char*, size_t> taken;
  std::minstd_rand random(1);
  for (int step = 0; step < 20000; ++step) {
    if (random() % 2 == 0 || taken.empty()) {
      const size_t size = random() % 4096 + 1;
      auto* const buffer = static_cast<char*>(pool.Allocate(size));
      if (buffer == nullptr) continue;
      const auto next = taken.lower_bound(buffer);
      ASSERT_TRUE(next == taken.end() || buffer + size <= next->first);
      ASSERT_TRUE(next == taken.begin() ||
                  std::prev(next)->first + std::prev(next)->second <= buffer);
      ASSERT_LE(buffer + size, static_cast<char*>(kBase) + kSize);
      taken[buffer] = size;
    } else {
      const auto victim = std::next(taken.begin(), random() % taken.size());
      ASSERT_TRUE(pool.Free(victim->first));
      taken.erase(victim);
    }
  }
  for (const auto& [buffer, size] : taken) EXPECT_TRUE(pool.Free(buffer));
  EXPECT_EQ(pool.Allocate(kSize), kBase);
}

}  // namespace
}  // namespace nereid::core
