// Tests GpuRegion with a fake CUDA driver that has no GPU.
#include "backends/python_like_scripted/gpu_region.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "tests/support/cuda/fake_gpus.h"

namespace nereid::python {
namespace {

namespace fs = std::filesystem;

class GpuRegionTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    ASSERT_TRUE(kHasFakeGpus);
    std::string folder = (fs::temp_directory_path() / "gpu_region_test.XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    setenv("NEREID_FAKE_CUDA_DIR", folder.c_str(), 1);
  }
  static void TearDownTestSuite() { fs::remove_all(folder_); }

  static void Write(const GpuBlock& block, const std::string& text) {
    ASSERT_TRUE(
        CudaDriver::Get()->Copy(block.range.device, block.data, text.data(), text.size()).ok());
  }
  static std::string Read(GpuRegion& region, const GpuRange& range) {
    std::string text(range.size_bytes, '?');
    const Status status = region.CopyFrom(range, text.data());
    return status.ok() ? text : status.message();
  }
  static size_t Used(int device) { return FakeCuda<size_t(int)>("FakeCudaUsed")(device); }

  static inline fs::path folder_;
  std::unique_ptr<SharedRegion> tokens_ = *SharedRegion::Create("test", 4096, 4096);
};

TEST_F(GpuRegionTest, BlocksKeepTheirDataAndAreReused) {
  GpuRegion region(*tokens_);
  const GpuBlock first = *region.Allocate(0, 5);
  const GpuBlock second = *region.Allocate(0, 5);
  const GpuBlock elsewhere = *region.Allocate(1, 5);
  EXPECT_EQ(elsewhere.range.device, 1);
  Write(first, "first");
  Write(second, "other");
  EXPECT_EQ(Read(region, first.range), "first");
  EXPECT_EQ(Read(region, second.range), "other");
  first.token.Release();
  EXPECT_EQ(region.Allocate(0, 5)->data, first.data);
}

TEST_F(GpuRegionTest, FreesItsMemory) {
  const size_t before = Used(0);
  {
    GpuRegion region(*tokens_);
    ASSERT_TRUE(region.Allocate(0, 20 << 20).ok());
    EXPECT_GE(Used(0), before + (20 << 20));
  }
  EXPECT_EQ(Used(0), before);
}

TEST_F(GpuRegionTest, RejectsRangesOutsideOfAllocations) {
  GpuRegion region(*tokens_);
  GpuRange range = region.Allocate(0, 5)->range;
  range.size_bytes = uint64_t{1} << 40;
  EXPECT_EQ(region.CopyFrom(range, nullptr).code(), StatusCode::kInvalidArg);
  range = {.device = 0, .size_bytes = 1};  // without an owner
  EXPECT_FALSE(region.CopyFrom(range, nullptr).ok());
  EXPECT_EQ(region.Allocate(7, 5).status().message(), "GPU 7: this machine has 2 GPUs");
  EXPECT_EQ(region.Allocate(0, uint64_t{1} << 60).status().code(), StatusCode::kUnavailable);
}

TEST_F(GpuRegionTest, SeveralThreadsAllocateAndRelease) {
  GpuRegion region(*tokens_);
  std::vector<std::thread> threads;
  std::atomic<int> num_wrong = 0;
  for (int number = 0; number < 4; ++number) {
    threads.emplace_back([&region, &num_wrong, number] {
      const std::string text(100, static_cast<char>('a' + number));
      for (int i = 0; i < 50; ++i) {
        const GpuBlock block = *region.Allocate(number % 2, text.size());
        Write(block, text);
        if (Read(region, block.range) != text) ++num_wrong;
        block.token.Release();
      }
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(num_wrong, 0);
}

}  // namespace
}  // namespace nereid::python
