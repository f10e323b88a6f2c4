#include "base/quarantine_ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <set>
#include <thread>
#include <vector>

namespace nereid {
namespace {

using Entry = QuarantineRing::Entry;

// Deletes objects one after the other and collects the entries that the ring returns.
struct Deletions {
  explicit Deletions(size_t count) : entries(count) {}

  void Make(QuarantineRing& ring) {
    for (Entry& entry : entries) {
      ring.BeginDeletion(&entry);
      if (Entry* old = ring.Insert(&entry)) returned.insert(old);
    }
  }
  bool Contains(const Entry* entry) const {
    return std::any_of(entries.begin(), entries.end(),
                       [entry](const Entry& own) { return &own == entry; });
  }

  std::deque<Entry> entries;
  std::set<Entry*> returned;
};

TEST(QuarantineRingTest, ReturnsTheOldestEntry) {
  QuarantineRing ring;
  Deletions first(QuarantineRing::kCapacity), then(2);
  first.Make(ring);
  EXPECT_TRUE(first.returned.empty());
  then.Make(ring);
  EXPECT_EQ(then.returned, (std::set<Entry*>{&first.entries[0], &first.entries[1]}));
}

TEST(QuarantineRingTest, ReturnsADeletionThatWasSuspendedForHundredsOfOthersButNoneOfThose) {
  for (const size_t num_others : {256, 257, 300, 512, 1000}) {
    QuarantineRing ring;
    Entry slow;
    Deletions others(num_others), after(QuarantineRing::kMinQuarantined);
    ring.BeginDeletion(&slow);
    others.Make(ring);
    EXPECT_EQ(ring.Insert(&slow), &slow) << num_others;
    after.Make(ring);
    // Each returned entry is old: at least kCapacity other deletions followed it.
    for (const Entry* entry : after.returned) EXPECT_TRUE(others.Contains(entry)) << num_others;
    EXPECT_EQ(after.returned.size(), after.entries.size()) << num_others;
  }
}

TEST(QuarantineRingTest, KeepsADeletionThatWasSuspendedForFewerThanCapacityOthers) {
  QuarantineRing ring;
  Entry slow;
  Deletions others(QuarantineRing::kCapacity - 1), last(1);
  ring.BeginDeletion(&slow);
  others.Make(ring);
  EXPECT_EQ(ring.Insert(&slow), nullptr);
  last.Make(ring);
  EXPECT_EQ(last.returned, std::set<Entry*>{&slow});
}

TEST(QuarantineRingTest, ReturnsNoneOfTheLastDeletedEntriesToAnyThread) {
  constexpr size_t kNumThreads = 4;
  std::deque<Entry> entries(kNumThreads * 1000);
  QuarantineRing ring;
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kNumThreads; ++t) {
    std::vector<Entry*> unused;
    for (size_t i = t; i < entries.size(); i += kNumThreads) unused.push_back(&entries[i]);
    threads.emplace_back([&ring, unused]() mutable {
      for (int i = 0; i < 50000; ++i) {
        Entry* entry = i % 3 == 0 ? ring.TakeOldest() : nullptr;
        const bool is_taken = entry != nullptr;
        if (!is_taken && unused.empty()) continue;
        if (!is_taken) {
          entry = unused.back();
          unused.pop_back();
        }
        const uint64_t before = entry->mark;
        ring.BeginDeletion(entry);
        if (is_taken) EXPECT_GT(entry->mark, before + QuarantineRing::kMinQuarantined);
        if (Entry* returned = ring.Insert(entry)) unused.push_back(returned);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace nereid
