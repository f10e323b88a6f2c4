#include "host/core/memory/reserved_memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "host/core/memory/owned_memory.h"
#include "tests/support/cuda/fake_gpus.h"

namespace nereid::core {
namespace {

constexpr MemoryLocation kSecondGpu{TRITONSERVER_MEMORY_GPU, 1};
constexpr size_t kMiB = size_t{1} << 20;

size_t UsedOnGpu() {
  return FakeCuda<size_t(int)>("FakeCudaUsed")(1);
}

TEST(ReservedMemoryTest, GrowsInPlaceOnTheCpu) {
  auto memory = std::move(ReservedMemory::Reserve({}, 64 * kMiB)).value();
  char* const base = memory->base();
  ASSERT_TRUE(memory->Grow(5).ok());
  std::memcpy(base, "12345", 5);
  ASSERT_TRUE(memory->Grow(10 * kMiB).ok());
  EXPECT_EQ(memory->base(), base);
  EXPECT_GE(memory->byte_size(), 10 * kMiB);
  EXPECT_EQ(std::memcmp(base, "12345", 6), 0) << "followed by zeros";
  base[10 * kMiB - 1] = 'x';
  ASSERT_TRUE(memory->Grow(1).ok()) << "it never shrinks";
  EXPECT_EQ(base[10 * kMiB - 1], 'x');
}

TEST(ReservedMemoryTest, CannotGrowBeyondItsReservedAddresses) {
  for (const MemoryLocation location : {MemoryLocation{}, kSecondGpu}) {
    auto memory = std::move(ReservedMemory::Reserve(location, kMiB)).value();
    EXPECT_TRUE(memory->Grow(kMiB).ok());
    EXPECT_EQ(memory->Grow(kMiB + 1).message(),
              "memory cannot grow to 1048577 bytes: addresses are reserved for 1048576");
  }
}

TEST(ReservedMemoryTest, GrowsInPlaceOnAGpu) {
  ASSERT_TRUE(kHasFakeGpus);
  const size_t before = UsedOnGpu();
  {
    auto memory = std::move(ReservedMemory::Reserve(kSecondGpu, 64 * kMiB)).value();
    EXPECT_EQ(UsedOnGpu(), before) << "only addresses are reserved";
    ASSERT_TRUE(memory->Grow(100).ok());
    const size_t first = UsedOnGpu() - before;
    EXPECT_EQ(memory->byte_size(), first);
    const std::vector<char> content(first, 'a');
    ASSERT_TRUE(CopyMemory(memory->base(), kSecondGpu, content.data(), {}, first).ok());
    ASSERT_TRUE(memory->Grow(4 * kMiB).ok());
    EXPECT_EQ(UsedOnGpu() - before, 4 * kMiB);
    // Across the boundary of both chunks.
    std::vector<char> read(first + 10);
    ASSERT_TRUE(CopyMemory(memory->base() + first, kSecondGpu, "0123456789", {}, 10).ok());
    ASSERT_TRUE(CopyMemory(read.data(), {}, memory->base(), kSecondGpu, read.size()).ok());
    EXPECT_EQ(std::string(read.begin(), read.end()), std::string(first, 'a') + "0123456789");
  }
  EXPECT_EQ(UsedOnGpu(), before);
}

TEST(ReservedMemoryTest, ReportsThatAGpuHasNoMemoryLeft) {
  ASSERT_TRUE(kHasFakeGpus);
  const size_t before = UsedOnGpu();
  auto memory = std::move(ReservedMemory::Reserve(kSecondGpu, size_t{4} << 30)).value();
  ASSERT_TRUE(memory->Grow(kMiB).ok());
  EXPECT_EQ(memory->Grow(size_t{2} << 30).code(), StatusCode::kUnavailable);
  EXPECT_EQ(memory->byte_size(), kMiB) << "unchanged";
  ASSERT_TRUE(memory->Grow(2 * kMiB).ok());
  memory.reset();
  EXPECT_EQ(UsedOnGpu(), before);
}

TEST(ReservedMemoryTest, NamesAGpuThatDoesNotExist) {
  ASSERT_TRUE(kHasFakeGpus);
  EXPECT_EQ(ReservedMemory::Reserve({TRITONSERVER_MEMORY_GPU, 9}, kMiB).status().message(),
            "GPU 9: this machine has 2 GPUs");
}

}  // namespace
}  // namespace nereid::core
