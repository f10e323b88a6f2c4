#include "base/deletion_ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <set>
#include <thread>
#include <vector>

namespace nereid {
namespace {

using Entry = DeletionRing::Entry;

// Things of which one after the other is deleted, and what the ring gave for them.
struct Deletions {
  explicit Deletions(size_t count) : entries(count) {}

  void Make(DeletionRing& ring) {
    for (Entry& entry : entries) {
      ring.Begin(&entry);
      if (Entry* old = ring.Keep(&entry)) given.insert(old);
    }
  }
  bool Contains(const Entry* entry) const {
    return std::any_of(entries.begin(), entries.end(),
                       [entry](const Entry& own) { return &own == entry; });
  }

  std::deque<Entry> entries;
  std::set<Entry*> given;
};

TEST(DeletionRingTest, GivesTheOldest) {
  DeletionRing ring;
  Deletions first(DeletionRing::kNumKept), then(2);
  first.Make(ring);
  EXPECT_TRUE(first.given.empty());
  then.Make(ring);
  EXPECT_EQ(then.given, (std::set<Entry*>{&first.entries[0], &first.entries[1]}));
}

TEST(DeletionRingTest, GivesTheDeletionThatStoppedForHundredsOfOthersAndNoneOfThose) {
  for (const size_t num_others : {256, 257, 300, 512, 1000}) {
    DeletionRing ring;
    Entry slow;
    Deletions others(num_others), after(DeletionRing::kNumKnown);
    ring.Begin(&slow);
    others.Make(ring);
    EXPECT_EQ(ring.Keep(&slow), &slow) << num_others;
    after.Make(ring);
    // All of them are older than what is there: at least kNumKept others came behind each.
    for (const Entry* given : after.given) EXPECT_TRUE(others.Contains(given)) << num_others;
    EXPECT_EQ(after.given.size(), after.entries.size()) << num_others;
  }
}

TEST(DeletionRingTest, KeepsADeletionThatStoppedForFewerThanItHasRoomFor) {
  DeletionRing ring;
  Entry slow;
  Deletions others(DeletionRing::kNumKept - 1), last(1);
  ring.Begin(&slow);
  others.Make(ring);
  EXPECT_EQ(ring.Keep(&slow), nullptr);
  last.Make(ring);
  EXPECT_EQ(last.given, std::set<Entry*>{&slow});
}

TEST(DeletionRingTest, GivesNoneOfTheLastToAnyThread) {
  constexpr size_t kNumThreads = 4;
  std::deque<Entry> entries(kNumThreads * 1000);
  DeletionRing ring;
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kNumThreads; ++t) {
    std::vector<Entry*> unused;
    for (size_t i = t; i < entries.size(); i += kNumThreads) unused.push_back(&entries[i]);
    threads.emplace_back([&ring, unused]() mutable {
      for (int i = 0; i < 50000; ++i) {
        Entry* entry = i % 3 == 0 ? ring.TakeOld() : nullptr;
        const bool is_taken = entry != nullptr;
        if (!is_taken && unused.empty()) continue;
        if (!is_taken) {
          entry = unused.back();
          unused.pop_back();
        }
        const uint64_t before = entry->mark;
        ring.Begin(entry);
        if (is_taken) EXPECT_GT(entry->mark, before + DeletionRing::kNumKnown);
        if (Entry* given = ring.Keep(entry)) unused.push_back(given);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace nereid
