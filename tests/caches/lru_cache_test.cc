#include "caches/local/lru_cache.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

namespace nereid::local_cache {
namespace {

std::shared_ptr<const EntryBuffers> Bytes(size_t count) {
  return std::make_shared<const EntryBuffers>(1, std::vector<std::byte>(count));
}

class LruCacheTest : public testing::Test {
 protected:
  static constexpr size_t kBytes = 1000;
  static size_t EntrySize() { return LruCache::SizeOf("a", *Bytes(kBytes)); }
  LruCache::Outcome Insert(const std::string& key) { return cache_.Insert(key, Bytes(kBytes)); }

  LruCache cache_{3 * EntrySize()};
};

TEST_F(LruCacheTest, EvictsTheLeastRecentlyUsedEntry) {
  for (const char* key : {"a", "b", "c"}) EXPECT_EQ(Insert(key), LruCache::Outcome::kInserted);
  EXPECT_NE(cache_.Find("a"), nullptr);  // b is the oldest now
  EXPECT_EQ(Insert("d"), LruCache::Outcome::kInserted);
  EXPECT_EQ(cache_.Find("b"), nullptr);
  for (const char* key : {"a", "c", "d"}) EXPECT_NE(cache_.Find(key), nullptr) << key;
}

TEST_F(LruCacheTest, ALargeEntryEvictsAsManyAsNecessary) {
  for (const char* key : {"a", "b", "c"}) Insert(key);
  EXPECT_EQ(cache_.Insert("x", Bytes(2 * kBytes)), LruCache::Outcome::kInserted);
  EXPECT_EQ(cache_.Find("a"), nullptr);
  EXPECT_EQ(cache_.Find("b"), nullptr);
  EXPECT_NE(cache_.Find("c"), nullptr);
}

TEST_F(LruCacheTest, AnEntryLargerThanTheCacheEvictsNothing) {
  Insert("a");
  EXPECT_EQ(cache_.Insert("x", Bytes(3 * EntrySize())), LruCache::Outcome::kTooLarge);
  EXPECT_NE(cache_.Find("a"), nullptr);
}

TEST_F(LruCacheTest, RejectsAnExistingKey) {
  EXPECT_EQ(Insert("a"), LruCache::Outcome::kInserted);
  EXPECT_EQ(Insert("a"), LruCache::Outcome::kKeyExists);
}

TEST_F(LruCacheTest, AFoundEntryStaysValidAfterItsEviction) {
  Insert("a");
  const auto found = cache_.Find("a");
  for (const char* key : {"b", "c", "d"}) Insert(key);
  EXPECT_EQ(cache_.Find("a"), nullptr);
  EXPECT_EQ(found->front().size(), kBytes);
}

TEST_F(LruCacheTest, ServesManyThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < 500; ++i) {
        const std::string key(1, static_cast<char>('a' + (i + t) % 7));
        if (cache_.Find(key) == nullptr) Insert(key);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  size_t num_kept = 0;
  for (char key = 'a'; key <= 'g'; ++key) num_kept += cache_.Find(std::string(1, key)) != nullptr;
  EXPECT_EQ(num_kept, 3u);
}

}  // namespace
}  // namespace nereid::local_cache
