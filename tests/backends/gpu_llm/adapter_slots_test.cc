#include "backends/gpu_llm/adapter_slots.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace nereid::gpu {
namespace {

using Need = AdapterSlots::Need;
using Place = AdapterSlots::Place;

std::vector<Place> Find(AdapterSlots& slots, std::vector<Need> needs, int64_t step) {
  std::vector<Place> places;
  EXPECT_TRUE(slots.Find(needs, step, places));
  return places;
}

TEST(AdapterSlotsTest, TheLeastRecentlyUsedAdapterOfNoStepLeaves) {
  AdapterSlots slots(2048, 8);
  EXPECT_TRUE(Find(slots, {{1, 1024}}, 0)[0].is_new);
  const Place second = Find(slots, {{2, 1024}}, 1)[0];
  EXPECT_FALSE(Find(slots, {{1, 1024}}, 2)[0].is_new);
  EXPECT_EQ(slots.last_replaced_step(), -1);
  const auto places = Find(slots, {{3, 1024}, {1, 1024}}, 3);  // 2 leaves
  EXPECT_TRUE(places[0].is_new);
  EXPECT_EQ(places[0].offset, second.offset);
  EXPECT_FALSE(places[1].is_new);
  EXPECT_EQ(slots.last_replaced_step(), 1);
}

TEST(AdapterSlotsTest, AnAdapterWhoseCopyFailedIsPlacedAgain) {
  AdapterSlots slots(2048, 2);
  Find(slots, {{1, 1024}}, 0);
  Place place;
  ASSERT_TRUE(slots.Prepare({2, 1024}, 1, 0, place));
  slots.Forget(2);
  EXPECT_EQ(slots.BytesOf(2), -1);
  EXPECT_EQ(slots.num_resident(), 1);
  const auto places = Find(slots, {{1, 1024}, {2, 1024}}, 1);
  EXPECT_FALSE(places[0].is_new);
  EXPECT_TRUE(places[1].is_new);
  EXPECT_EQ(places[1].offset, place.offset);
  slots.Forget(3);  // has no place
  EXPECT_EQ(slots.num_resident(), 2);
}

TEST(AdapterSlotsTest, AdaptersThatDoNotFitTogetherChangeNothing) {
  AdapterSlots slots(2048, 2);
  Find(slots, {{1, 2048}}, 0);
  std::vector<Place> places;
  EXPECT_FALSE(slots.Find(std::vector<Need>{{2, 1024}, {3, 1280}}, 1, places));
  EXPECT_FALSE(slots.Find(std::vector<Need>{{2, 0}, {3, 0}, {4, 0}}, 1, places));
  EXPECT_FALSE(Find(slots, {{1, 2048}}, 2)[0].is_new);
}

// Steps 1 and 2 have not ended: only what step 0 used makes room.
TEST(AdapterSlotsTest, APreparedAdapterReplacesNoneOfARunningStep) {
  AdapterSlots slots(1024, 8);
  Find(slots, {{1, 256}, {2, 256}, {3, 512}}, 0);
  Find(slots, {{2, 256}}, 1);
  Find(slots, {{2, 256}, {3, 512}}, 2);
  Place place;
  ASSERT_TRUE(slots.Prepare({4, 256}, 3, 1, place));
  EXPECT_TRUE(place.is_new);
  EXPECT_EQ(place.offset, 0);
  ASSERT_TRUE(slots.Prepare({4, 256}, 3, 1, place));
  EXPECT_FALSE(place.is_new);
  EXPECT_FALSE(slots.Prepare({5, 256}, 3, 1, place));
  EXPECT_EQ(slots.BytesOf(4), 256);
  EXPECT_EQ(slots.BytesOf(5), -1);
  // A step may replace it, and one that needs it finds it.
  EXPECT_FALSE(Find(slots, {{2, 256}, {4, 256}}, 3)[1].is_new);
  const auto places = Find(slots, {{2, 256}, {6, 512}, {7, 256}}, 4);
  EXPECT_FALSE(places[0].is_new);
  EXPECT_TRUE(places[1].is_new && places[2].is_new);
}

// The free bytes are two ranges of 256; adapters that stay lie between.
TEST(AdapterSlotsTest, ScatteredMemoryIsPlacedAnew) {
  AdapterSlots slots(1024, 8);
  Find(slots, {{1, 256}, {2, 256}, {3, 256}, {4, 256}}, 0);
  const auto places = Find(slots, {{2, 256}, {4, 256}, {5, 512}}, 1);
  std::set<int64_t> offsets;
  for (const Place& place : places) {
    EXPECT_TRUE(place.is_new);
    offsets.insert(place.offset);
  }
  EXPECT_EQ(offsets, (std::set<int64_t>{0, 256, 512}));
  EXPECT_EQ(slots.last_replaced_step(), 0);
}

// Against a model: what a step uses never overlaps, and what is not new has not moved.
TEST(AdapterSlotsTest, RandomStepsNeverOverlap) {
  std::mt19937 random(3);
  AdapterSlots slots(16 * 256, 6);
  std::map<uint64_t, int64_t> bytes;
  std::map<int32_t, std::pair<uint64_t, int64_t>> in_slots;  // serial and offset
  for (uint64_t serial = 1; serial <= 20; ++serial) bytes[serial] = random() % 7 * 256;
  for (int64_t step = 0; step < 5000; ++step) {
    std::map<uint64_t, int64_t> chosen;
    for (size_t i = random() % 5 + 1; i > 0; --i) {
      const uint64_t serial = random() % 20 + 1;
      chosen[serial] = bytes[serial];
    }
    std::vector<Need> needs;
    int64_t total = 0;
    for (const auto& [serial, count] : chosen) {
      needs.push_back({serial, count});
      total += count;
    }
    std::vector<Place> places;
    ASSERT_EQ(slots.Find(needs, step, places), total <= 16 * 256);
    if (total > 16 * 256) continue;
    std::vector<bool> used(16);
    std::set<int32_t> used_slots;
    for (size_t i = 0; i < needs.size(); ++i) {
      ASSERT_TRUE(used_slots.insert(places[i].slot).second);
      ASSERT_LE(places[i].offset + needs[i].bytes, 16 * 256);
      for (int64_t at = 0; at < needs[i].bytes; at += 256) {
        ASSERT_FALSE(used[(places[i].offset + at) / 256]);
        used[(places[i].offset + at) / 256] = true;
      }
      const std::pair<uint64_t, int64_t> now = {needs[i].serial, places[i].offset};
      if (!places[i].is_new) {
        ASSERT_EQ(in_slots.at(places[i].slot), now);
      }
      in_slots[places[i].slot] = now;
    }
  }
}

}  // namespace
}  // namespace nereid::gpu
