// Tests ReservedMemory with the machine's CUDA driver. Skipped without one.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/cuda_driver.h"
#include "host/core/memory/owned_memory.h"
#include "host/core/memory/reserved_memory.h"

namespace nereid::core {
namespace {

constexpr MemoryLocation kFirstGpu{TRITONSERVER_MEMORY_GPU, 0};
constexpr size_t kMiB = size_t{1} << 20;

class ReservedGpuMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    if (CudaDriver::Get() == nullptr) GTEST_SKIP() << "no GPU";
  }
};

TEST_F(ReservedGpuMemoryTest, GrowsInPlace) {
  auto memory = std::move(ReservedMemory::Reserve(kFirstGpu, 1024 * kMiB)).value();
  char* const base = memory->base();
  ASSERT_TRUE(memory->Grow(1).ok());
  const size_t first = memory->byte_size();
  const std::string content(first, 'a');
  ASSERT_TRUE(CopyMemory(base, kFirstGpu, content.data(), {}, first).ok());
  for (int i = 1; i <= 8; ++i) {
    const Status grown = memory->Grow(static_cast<size_t>(i) * 16 * kMiB);
    ASSERT_TRUE(grown.ok()) << grown.message();
  }
  EXPECT_EQ(memory->base(), base);
  // Across the boundary of two chunks, and at the end.
  ASSERT_TRUE(CopyMemory(base + first, kFirstGpu, "0123456789", {}, 10).ok());
  ASSERT_TRUE(CopyMemory(base + 128 * kMiB - 1, kFirstGpu, "z", {}, 1).ok());
  std::string read(first + 10, ' ');
  ASSERT_TRUE(CopyMemory(read.data(), {}, base, kFirstGpu, read.size()).ok());
  EXPECT_EQ(read, content + "0123456789");
}

TEST_F(ReservedGpuMemoryTest, CannotGrowBeyondItsReservedAddresses) {
  auto memory = std::move(ReservedMemory::Reserve(kFirstGpu, 1)).value();
  ASSERT_TRUE(memory->Grow(memory->max_bytes()).ok());
  EXPECT_EQ(memory->Grow(memory->max_bytes() + 1).code(), StatusCode::kInvalidArg);
}

TEST_F(ReservedGpuMemoryTest, ReturnsItsMemoryToTheDevice) {
  // In total this is more than the device has, so it fails if any memory is not returned.
  const auto use = CudaDriver::Get()->MemoryUseOf(0);
  ASSERT_TRUE(use.ok());
  const size_t part = use->free_bytes / 2 / (32 * kMiB) * (32 * kMiB);
  for (int i = 0; i < 4; ++i) {
    auto memory = std::move(ReservedMemory::Reserve(kFirstGpu, part)).value();
    const Status grown = memory->Grow(part);
    ASSERT_TRUE(grown.ok()) << i << ": " << grown.message();
  }
}

}  // namespace
}  // namespace nereid::core
