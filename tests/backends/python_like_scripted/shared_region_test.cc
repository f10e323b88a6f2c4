#include "backends/python_like_scripted/shared_region.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <vector>

namespace nereid::python {
namespace {

std::unique_ptr<SharedRegion> Region() {
  return *SharedRegion::Create("test", 4096, 4096);
}

TEST(SharedRegionTest, BlocksAreAlignedAndDoNotOverlap) {
  const auto region = Region();
  const SharedBlock first = *region->Allocate(100);
  const SharedBlock second = *region->Allocate(1);
  EXPECT_EQ(first.offset % kBlockHeaderBytes, 0u);
  EXPECT_GE(second.offset, first.offset + 100);
  std::memset(first.data(), 1, 100);
  std::memset(second.data(), 2, 1);
  EXPECT_EQ(static_cast<int>(first.data()[99]), 1);
}

TEST(SharedRegionTest, ReleasedMemoryIsReused) {
  const auto region = Region();
  const SharedBlock first = *region->Allocate(1000);
  const SharedBlock second = *region->Allocate(1000);
  first.Release();
  EXPECT_EQ(region->Allocate(500)->offset, first.offset);
  second.Release();
}

TEST(SharedRegionTest, ABlockIsNotReusedWhileItHasReaders) {
  const auto region = Region();
  const SharedBlock block = *region->Allocate(1000);
  block.AddReader();
  block.AddReader();
  block.Release();
  EXPECT_NE(region->Allocate(100)->offset, block.offset);
  block.RemoveReader();
  EXPECT_NE(region->Allocate(100)->offset, block.offset);
  block.RemoveReader();
  EXPECT_EQ(region->Allocate(100)->offset, block.offset);
}

TEST(SharedRegionTest, ABlockOverOldDataHasNoReaders) {
  const auto region = Region();
  const SharedBlock large = *region->Allocate(1000);
  std::memset(large.data(), 0xff, 1000);
  large.Release();
  const SharedBlock first = *region->Allocate(64);
  const SharedBlock second =
      *region->Allocate(64);  // its header overwrites bytes of the large block
  second.Release();
  EXPECT_EQ(region->Allocate(64)->offset, second.offset);
  first.Release();
}

TEST(SharedRegionTest, GrowsAndKeepsItsData) {
  const auto region = Region();
  const SharedBlock small = *region->Allocate(10);
  std::memset(small.data(), 7, 10);
  const SharedBlock large = *region->Allocate(1 << 20);
  std::memset(large.data(), 8, 1 << 20);
  EXPECT_EQ(static_cast<int>(small.data()[9]), 7);
  const SharedBlock found = *region->Find(small.offset, 10);
  EXPECT_EQ(static_cast<int>(found.data()[9]), 7);
}

TEST(SharedRegionTest, FindsMemoryThatTheOtherSideAdded) {
  const auto region = Region();
  ASSERT_EQ(ftruncate(region->fd(), 3 * 4096), 0);
  EXPECT_TRUE(region->Find(2 * 4096, 4096).ok());
}

TEST(SharedRegionTest, RejectsLocationsOutsideOfTheRegion) {
  const auto region = Region();
  const uint64_t most = ~uint64_t{0};
  for (const auto& [offset, size] : std::vector<std::pair<uint64_t, uint64_t>>{
           {0, 1}, {65, 1}, {4096, 1}, {64, 4096}, {64, most}, {most - 63, 64}}) {
    EXPECT_EQ(region->Find(offset, size).status().code(), StatusCode::kInvalidArg)
        << offset << " " << size;
  }
}

TEST(SharedRegionTest, TheFileCannotShrink) {
  const auto region = Region();
  EXPECT_NE(ftruncate(region->fd(), 0), 0);
}

TEST(SharedRegionTest, RejectsAbsurdSizes) {
  EXPECT_EQ(Region()->Allocate(uint64_t{1} << 60).status().code(), StatusCode::kUnavailable);
}

TEST(SharedRegionTest, GrowsToItsLimitAndNotBeyond) {
  const auto region = *SharedRegion::Create("test", 4096, 1 << 20, 3 * 4096);
  const SharedBlock most = *region->Allocate(3 * 4096 - kBlockHeaderBytes);
  const Status full = region->Allocate(1).status();
  EXPECT_EQ(full.code(), StatusCode::kUnavailable);
  EXPECT_EQ(full.message(),
            "Failed to increase the shared memory pool size for key 'test' to 1060864 bytes: at "
            "most 12288 are allowed by shm-max-byte-size");
  most.Release();
  EXPECT_TRUE(region->Allocate(1).ok());
}

}  // namespace
}  // namespace nereid::python
