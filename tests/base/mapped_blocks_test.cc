#include "base/mapped_blocks.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <thread>
#include <vector>

namespace nereid {
namespace {

constexpr size_t kMegabyte = 1 << 20;

TEST(MappedBlocksTest, ReusesFreedBlocksOfNearlyTheSameSize) {
  void* const first = MappedBlocks::Allocate(kMegabyte);
  ASSERT_NE(first, nullptr);
  std::memset(first, 1, kMegabyte);
  MappedBlocks::Free(first, kMegabyte);
  void* const second = MappedBlocks::Allocate(kMegabyte - 1000);
  EXPECT_EQ(second, first);
  void* const third = MappedBlocks::Allocate(2 * kMegabyte);
  EXPECT_NE(third, first);
  MappedBlocks::Free(second, kMegabyte - 1000);
  MappedBlocks::Free(third, 2 * kMegabyte);
  MappedBlocks::Trim();
  EXPECT_EQ(MappedBlocks::num_kept_bytes(), 0U);
}

TEST(MappedBlocksTest, KeepsNoMoreThanItsLimit) {
  std::vector<void*> blocks;
  for (int i = 0; i < 200; ++i) blocks.push_back(MappedBlocks::Allocate(kMegabyte));
  for (void* block : blocks) {
    ASSERT_NE(block, nullptr);
    static_cast<char*>(block)[kMegabyte - 1] = 1;
    MappedBlocks::Free(block, kMegabyte);
    EXPECT_LE(MappedBlocks::num_kept_bytes(), MappedBlocks::kMaxKeptBytes);
  }
  void* const large = MappedBlocks::Allocate(2 * MappedBlocks::kMaxKeptBytes);
  MappedBlocks::Free(large, 2 * MappedBlocks::kMaxKeptBytes);
  EXPECT_EQ(MappedBlocks::num_kept_bytes(), 0U) << "the large block drove out the others";
}

TEST(MappedBlocksTest, RefusesSizesThatTheSystemCannotGive) {
  EXPECT_EQ(MappedBlocks::Allocate(std::numeric_limits<size_t>::max()), nullptr);
  EXPECT_EQ(MappedBlocks::Allocate(size_t{1} << 60), nullptr);
}

TEST(MappedBlocksTest, ServesManyThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 500; ++i) {
        const size_t size_bytes = MappedBlocks::kMinBytes + static_cast<size_t>(i % 7) * 5000;
        auto* const block = static_cast<int*>(MappedBlocks::Allocate(size_bytes));
        *block = t;
        EXPECT_EQ(*block, t);
        MappedBlocks::Free(block, size_bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  MappedBlocks::Trim();
}

}  // namespace
}  // namespace nereid
