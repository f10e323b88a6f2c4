// A block of several GPUs is there if all of its parts are: storages that end in any order.
#include "backends/gpu_llm/sharded_block_storage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

namespace nereid::gpu {
namespace {

// One GPU's part. Fetches end when the test says so, or when Collect waits.
class Part : public llm::BlockStorage {
 public:
  int32_t num_host_places() const override { return 3; }
  int32_t num_file_places() const override { return num_file; }
  std::vector<StoredBlock> TakeStored() override { return std::move(stored); }
  uint64_t first_serial() const override { return first; }
  bool FileAccepts() const override { return accepts; }
  void Store(int32_t from, int32_t to, const llm::BlockContent&) override {
    stores.push_back({from, to});
  }
  void Fetch(uint64_t ticket, std::vector<Transfer> transfers) override {
    open.push_back({ticket, {}, 0.001 * static_cast<double>(transfers.size())});
  }
  std::vector<Fetched> Collect(bool waits) override {
    if (waits && num_done == 0 && !open.empty()) num_done = 1;
    std::vector<Fetched> ended;
    for (; num_done > 0 && !open.empty(); --num_done) {
      ended.push_back(std::move(open.front()));
      open.pop_front();
    }
    return ended;
  }
  void Finish() override { is_finished = true; }

  int32_t num_file = 5;
  uint64_t first = 1;
  bool accepts = true, is_finished = false;
  std::vector<StoredBlock> stored;
  std::vector<std::pair<int32_t, int32_t>> stores;
  std::deque<Fetched> open;
  size_t num_done = 0;  // of the open ones
};

std::vector<uint64_t> Tickets(const std::vector<llm::BlockStorage::Fetched>& fetched) {
  std::vector<uint64_t> tickets;
  for (const auto& one : fetched) tickets.push_back(one.ticket);
  return tickets;
}

class ShardedBlockStorageTest : public ::testing::Test {
 protected:
  Part parts_[3];
  ShardedBlockStorage all_{{&parts_[0], &parts_[1], &parts_[2]}};
};

TEST_F(ShardedBlockStorageTest, AFetchEndsWithItsLastPart) {
  all_.Fetch(7, {{10, 0, 1}, {11, 1, 2}});
  all_.Fetch(8, {{12, 2, 3}});
  parts_[0].num_done = parts_[1].num_done = 2;
  parts_[1].open[0].lost = {11};
  parts_[2].open[0].seconds = 0.5;
  EXPECT_TRUE(all_.Collect(false).empty());
  parts_[2].num_done = 1;
  parts_[2].open[0].lost = {11, 10};
  const auto first = all_.Collect(false);
  ASSERT_EQ(Tickets(first), std::vector<uint64_t>{7});
  EXPECT_EQ(first[0].lost, (std::vector<int32_t>{11, 10}));
  EXPECT_EQ(first[0].seconds, 0.5);
  EXPECT_TRUE(all_.Collect(false).empty());
  const auto second = all_.Collect(true);
  ASSERT_EQ(Tickets(second), std::vector<uint64_t>{8});
  EXPECT_TRUE(second[0].lost.empty());
  EXPECT_TRUE(all_.Collect(true).empty());  // none is open
}

TEST_F(ShardedBlockStorageTest, WaitingEndsWithTheFirstWholeFetch) {
  for (uint64_t ticket = 1; ticket <= 4; ++ticket) all_.Fetch(ticket, {{10, 0, ticket}});
  parts_[1].num_done = 3;  // this GPU is ahead
  EXPECT_EQ(Tickets(all_.Collect(true)), std::vector<uint64_t>{1});
  EXPECT_EQ(parts_[0].open.size(), 3u);
  EXPECT_EQ(Tickets(all_.Collect(true)), std::vector<uint64_t>{2});
  parts_[0].num_done = parts_[1].num_done = parts_[2].num_done = 4;
  EXPECT_EQ(Tickets(all_.Collect(false)), (std::vector<uint64_t>{3, 4}));
}

TEST_F(ShardedBlockStorageTest, StoresGoToAllAndTheFileToThoseThatAccept) {
  all_.Store(1, 10, {});
  for (const Part& part : parts_)
    EXPECT_EQ(part.stores, (std::vector<std::pair<int32_t, int32_t>>{{1, 10}}));
  EXPECT_TRUE(all_.FileAccepts());
  parts_[1].accepts = false;
  EXPECT_FALSE(all_.FileAccepts());
  parts_[2].first = 40;
  EXPECT_EQ(all_.first_serial(), 40u);
  parts_[0].num_file = 4;
  EXPECT_EQ(all_.num_file_places(), 4);
  all_.Finish();
  for (const Part& part : parts_) EXPECT_TRUE(part.is_finished);
}

// A process that ended while it wrote leaves files that differ.
TEST_F(ShardedBlockStorageTest, WhatAFileDoesNotHaveIsForgottenWithWhatFollowsIt) {
  const auto block = [](int32_t place, uint64_t serial, uint64_t parent) {
    return llm::BlockStorage::StoredBlock{place, {serial, parent, 0, {1, 2}}};
  };
  const std::vector<llm::BlockStorage::StoredBlock> whole = {block(20, 5, 0), block(21, 6, 5),
                                                             block(22, 7, 6), block(23, 8, 5)};
  for (Part& part : parts_) part.stored = whole;
  parts_[1].stored.erase(parts_[1].stored.begin() + 1, parts_[1].stored.begin() + 3);  // 6 and 7
  parts_[2].stored[1].content.serial = 9;
  const auto stored = all_.TakeStored();
  ASSERT_EQ(stored.size(), 2u);
  EXPECT_EQ(stored[0].content.serial, 5u);
  EXPECT_EQ(stored[1].place, 23);
  for (Part& part : parts_) part.stored = whole;
  parts_[2].stored[1].content.serial = 9;  // 7 is there, and what it follows is not
  EXPECT_EQ(all_.TakeStored().size(), 2u);
  for (Part& part : parts_) part.stored = whole;
  parts_[1].num_file = 0;  // another process uses it
  EXPECT_TRUE(all_.TakeStored().empty());
}

}  // namespace
}  // namespace nereid::gpu
