// Copies of blocks in host memory and in a file have the bytes of the blocks.
#include "backends/llm_core/kv_tiers/host_block_storage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <random>

#include "backends/llm_core/engine/fetch_costs.h"
#include "tests/backends/llm_core/checkpoint_files.h"
#include "tests/support/test_folder.h"

namespace nereid::llm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int32_t kNumBlocks = 4;
constexpr int64_t kBlockBytes = 96;
using Bytes = std::array<std::byte, kBlockBytes>;

class FakeMemory : public BlockMemory {
 public:
  int64_t block_bytes() const override { return kBlockBytes; }
  int32_t num_blocks() const override { return kNumBlocks; }
  void ReadBlock(int32_t block, std::span<std::byte> to) const override {
    std::copy(blocks[block].begin(), blocks[block].end(), to.begin());
  }
  void WriteBlock(int32_t block, std::span<const std::byte> from) const override {
    std::copy(from.begin(), from.end(), blocks[block].begin());
  }
  mutable std::array<Bytes, kNumBlocks> blocks{};
};

Bytes Pattern(uint32_t seed) {
  Bytes bytes;
  std::mt19937 random(seed);
  for (std::byte& each : bytes) each = static_cast<std::byte>(random());
  return bytes;
}

class HostBlockStorageTest : public ::testing::Test {
 protected:
  std::unique_ptr<HostBlockStorage> Create(int64_t host_bytes, bool has_file) {
    std::unique_ptr<BlockFile> file;
    if (has_file) {
      auto opened = BlockFile::Open({.path = folder_ / "blocks",
                                     .max_bytes = 8192,
                                     .block_size = 2,
                                     .block_bytes = kBlockBytes,
                                     .identity = std::string(64, '0'),
                                     .log = [](const std::string&) {}});
      EXPECT_TRUE(opened.ok());
      file = std::move(*opened);
    }
    auto storage = HostBlockStorage::Create(&memory_, host_bytes, std::move(file));
    EXPECT_TRUE(storage.ok()) << storage.status().message();
    return std::move(*storage);
  }

  FakeMemory memory_;
  TestFolder folder_;
};

TEST_F(HostBlockStorageTest, AFetchedBlockHasTheBytesThatWereStoredBefore) {
  const auto storage = Create(3 * kBlockBytes + 1, false);
  EXPECT_EQ(storage->num_host_places(), 3);
  EXPECT_EQ(storage->num_file_places(), 0);
  EXPECT_FALSE(storage->FileAccepts());
  memory_.blocks[1] = Pattern(1);
  memory_.blocks[2] = Pattern(2);
  storage->Store(1, 4, {1, 0, 0, {}});
  storage->Store(2, 6, {2, 1, 0, {}});
  storage->FinishReads();
  memory_.blocks = {};
  storage->Fetch(7, {{4, 3, 1}, {6, 0, 2}});
  const auto fetched = storage->Collect(/*waits=*/true);
  ASSERT_EQ(fetched.size(), 1u);
  EXPECT_EQ(fetched[0].ticket, 7u);
  EXPECT_THAT(fetched[0].lost, IsEmpty());
  EXPECT_EQ(memory_.blocks[3], Pattern(1));
  EXPECT_EQ(memory_.blocks[0], Pattern(2));
  EXPECT_THAT(storage->Collect(/*waits=*/true), IsEmpty());  // none is open
}

TEST_F(HostBlockStorageTest, WhatTheFileHasIsFetchedAfterARestart) {
  uint64_t serial = 0;
  {
    const auto storage = Create(kBlockBytes, true);
    EXPECT_TRUE(storage->FileAccepts());
    serial = storage->first_serial();
    memory_.blocks[0] = Pattern(3);
    storage->Store(0, 4, {serial, 0, 6, {8, 9}});
    storage->Store(4, 5, {serial, 0, 6, {8, 9}});
    memory_.blocks[1] = Pattern(4);
    storage->Store(1, 7, {serial + 1, serial, 6, {5, 5}});
    storage->Finish();
  }
  memory_.blocks = {};
  const auto storage = Create(kBlockBytes, true);
  const auto stored = storage->TakeStored();
  ASSERT_EQ(stored.size(), 2u);
  EXPECT_EQ(stored[0].place, 5);
  EXPECT_EQ(stored[1].place, 7);
  EXPECT_EQ(stored[1].content.parent, serial);
  EXPECT_GT(storage->first_serial(), serial + 1);
  storage->Fetch(1, {{5, 0, serial}, {7, 2, serial + 5}, {7, 1, serial + 1}});
  const auto fetched = storage->Collect(/*waits=*/true);
  ASSERT_EQ(fetched.size(), 1u);
  EXPECT_THAT(fetched[0].lost, ElementsAre(7));  // asked for content that it does not have
  EXPECT_EQ(memory_.blocks[0], Pattern(3));
  EXPECT_EQ(memory_.blocks[1], Pattern(4));
}

TEST_F(HostBlockStorageTest, LessMemoryThanABlockIsRefusedWithBothValues) {
  const auto storage = HostBlockStorage::Create(&memory_, kBlockBytes - 1, nullptr);
  ASSERT_FALSE(storage.ok());
  EXPECT_THAT(storage.status().message(),
              HasSubstr("'kv_cache_host_memory_bytes' is 95, expected 0 or at least 96"));
}

TEST(FetchCostsTest, FetchesWhatIsFasterThanComputing) {
  FetchCosts costs;
  EXPECT_TRUE(costs.Pays(10, 0, 160));  // nothing is known
  costs.RecordComputed(100, 0.1);       // 1 ms a token
  EXPECT_TRUE(costs.Pays(10, 0, 160));
  costs.RecordFetched(10, 0, 0.05);  // 5 ms a block of host memory
  costs.RecordFetched(10, 10, 0.2);  // 20 ms a block of the file
  EXPECT_TRUE(costs.Pays(10, 0, 160));
  EXPECT_FALSE(costs.Pays(10, 10, 160));
  EXPECT_FALSE(costs.Pays(10, 0, 50));
  EXPECT_TRUE(costs.Pays(10, 4, 160));
  for (int i = 0; i < 32; ++i) EXPECT_FALSE(costs.Pays(10, 10, 160)) << i;
  EXPECT_TRUE(costs.Pays(10, 10, 160));  // tries again
  for (int i = 0; i < 20; ++i) costs.RecordFetched(10, 10, 0.02);
  EXPECT_TRUE(costs.Pays(10, 10, 160));
}

}  // namespace
}  // namespace nereid::llm
