#include "host/core/memory/memory_manager.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/cuda_driver.h"
#include "host/core/memory/gpus.h"
#include "host/core/memory/owned_memory.h"
#include "tests/support/cuda/fake_gpus.h"

namespace nereid::core {
namespace {

constexpr auto kCpu = TRITONSERVER_MEMORY_CPU;
constexpr auto kPinned = TRITONSERVER_MEMORY_CPU_PINNED;
constexpr auto kGpu = TRITONSERVER_MEMORY_GPU;

class MemoryManagerTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(kHasFakeGpus); }
};

std::string ErrorMessage(const Result<void*>& result) {
  return result.ok() ? "" : result.status().message();
}

TEST_F(MemoryManagerTest, FindsTheDevicesOfTheDriver) {
  EXPECT_EQ(GpuDevices(), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(GpuDevices(7.5), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(GpuDevices(7.6), std::vector<int32_t>());
  EXPECT_EQ(CudaDriver::Get()->UuidOf(1), "GPU-a1a1a1a1-a1a1-a1a1-a1a1-a1a1a1a1a1a1");
}

TEST_F(MemoryManagerTest, AllocatesPinnedMemoryFromAPoolOfFixedSize) {
  MemoryManager memory({.pinned_pool_bytes = 4096});
  EXPECT_EQ(memory.PinnedUse().total_bytes, 4096U);
  EXPECT_EQ(memory.PinnedUse().used_bytes, 0U);
  const auto buffer = memory.Allocate(kPinned, 0, 3000);
  ASSERT_TRUE(buffer.ok()) << ErrorMessage(buffer);
  std::memset(*buffer, 1, 3000);
  EXPECT_EQ(memory.PinnedUse().used_bytes, 3072U);
  EXPECT_EQ(
      ErrorMessage(memory.Allocate(kPinned, 0, 2000)),
      "failed to allocate 2000 bytes of pinned memory: 3072 of 4096 bytes of its pool are in use");
  EXPECT_TRUE(memory.Free(*buffer, kPinned, 0).ok());
  EXPECT_FALSE(memory.Free(*buffer, kPinned, 0).ok()) << "twice";
  EXPECT_EQ(memory.PinnedUse().used_bytes, 0U);
}

TEST_F(MemoryManagerTest, AllocatesGpuMemoryFromAPoolPerGpuAndFreesThePool) {
  auto* const used = FakeCuda<size_t(int)>("FakeCudaUsed");
  {
    MemoryManager memory({.cuda_pool_bytes = {{0, 1 << 20}, {1, 0}}, .peer_access = false});
    EXPECT_EQ(used(0), 0U) << "nothing is allocated before the first use";
    const auto buffer = memory.Allocate(kGpu, 0, 1 << 20);
    ASSERT_TRUE(buffer.ok()) << ErrorMessage(buffer);
    EXPECT_EQ(used(0), size_t{1} << 20);
    const auto full = memory.Allocate(kGpu, 0, 1);
    EXPECT_EQ(full.status().code(), StatusCode::kUnavailable) << ErrorMessage(full);
    EXPECT_EQ(ErrorMessage(memory.Allocate(kGpu, 1, 1)),
              "the server has no pool of memory of GPU 1: its size is 0");
    EXPECT_EQ(ErrorMessage(memory.Allocate(kGpu, 2, 1)),
              "memory of GPU 2: this machine has 2 GPUs, numbered from 0");
    EXPECT_EQ(memory.Free(*buffer, kPinned, 0).code(), StatusCode::kInvalidArg);
    EXPECT_TRUE(memory.Free(*buffer, kGpu, 0).ok());
    EXPECT_TRUE(memory.Allocate(kGpu, 0, 1 << 20).ok());
  }
  EXPECT_EQ(used(0), 0U);
  EXPECT_EQ(FakeCuda<int(int, int)>("FakeCudaPeer")(0, 1), 0);
}

TEST_F(MemoryManagerTest, ReportsThatTheDriverHasNoMemoryForAPool) {
  MemoryManager memory({.cuda_pool_bytes = {{0, uint64_t{1} << 50}}});
  for (int i = 0; i < 2; ++i) {
    const auto buffer = memory.Allocate(kGpu, 0, 1);
    EXPECT_EQ(buffer.status().code(), StatusCode::kUnavailable);
    EXPECT_EQ(ErrorMessage(buffer),
              "failed to allocate 1125899906842624 bytes on GPU 0: CUDA_ERROR_OUT_OF_MEMORY");
  }
}

TEST_F(MemoryManagerTest, EnablesPeerAccessBetweenGpus) {
  MemoryManager memory;
  ASSERT_TRUE(memory.Allocate(kGpu, 0, 1).ok());
  ASSERT_TRUE(memory.Allocate(kGpu, 1, 1).ok());
  auto* const peer = FakeCuda<int(int, int)>("FakeCudaPeer");
  EXPECT_TRUE(peer(0, 1) && peer(1, 0));
  EXPECT_TRUE(CudaDriver::Get()->EnablePeerAccess(0, 1).ok()) << "again";
}

TEST_F(MemoryManagerTest, CopiesBetweenAllMemoryTypes) {
  MemoryManager memory;
  const std::vector<MemoryLocation> locations = {{kCpu, 0}, {kPinned, 0}, {kGpu, 0}, {kGpu, 1}};
  const std::string text = "sixteen bytes it";
  for (const MemoryLocation& from : locations) {
    for (const MemoryLocation& to : locations) {
      const auto source = OwnedMemory::Allocate(&memory, from, text.size());
      const auto target = OwnedMemory::Allocate(&memory, to, text.size());
      ASSERT_TRUE(source.ok() && target.ok());
      EXPECT_TRUE((*source)->location() == from && (*target)->location() == to);
      std::string read(text.size(), '?');
      ASSERT_TRUE(CopyMemory((*source)->base(), from, text.data(), {}, text.size()).ok());
      ASSERT_TRUE(CopyMemory((*target)->base(), to, (*source)->base(), from, text.size()).ok());
      ASSERT_TRUE(CopyMemory(read.data(), {}, (*target)->base(), to, text.size()).ok());
      EXPECT_EQ(read, text);
    }
  }
}

TEST_F(MemoryManagerTest, ReportsCopiesThatFail) {
  const auto block = CudaDriver::Get()->AllocateOnDevice(0, 16);
  ASSERT_TRUE(block.ok());
  char bytes[32];
  const Status status = CopyMemory(bytes, {}, *block, {kGpu, 0}, 32);
  EXPECT_EQ(status.message(), "failed to copy 32 bytes with GPU 0: CUDA_ERROR_OF_THE_TESTS");
  EXPECT_EQ(CopyMemory(bytes, {}, *block, {kGpu, 7}, 1).message(),
            "GPU 7: this machine has 2 GPUs");
  CudaDriver::Get()->FreeOnDevice(0, *block);
}

TEST_F(MemoryManagerTest, OwnedMemoryFallsBackToCpuMemory) {
  MemoryManager memory({.pinned_pool_bytes = 256, .cuda_pool_bytes = {{0, 256}}});
  for (const MemoryLocation requested :
       {MemoryLocation{kPinned, 0}, MemoryLocation{kGpu, 0}, MemoryLocation{kGpu, 9}}) {
    const auto block = OwnedMemory::Allocate(&memory, requested, 257);
    ASSERT_TRUE(block.ok());
    EXPECT_EQ((*block)->location().type, kCpu);
  }
  EXPECT_EQ((*OwnedMemory::Allocate(nullptr, {kGpu, 0}, 1))->location().type, kCpu);
}

}  // namespace
}  // namespace nereid::core
