// Persistence of algorithms between starts, damaged files, and files that cannot be written.
#include "backends/gpu_llm/model/algorithm_cache.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/support/test_folder.h"

namespace nereid::gpu {
namespace {

class AlgorithmCacheTest : public ::testing::Test {
 protected:
  const TestFolder parent_;
  const std::string folder_ = parent_.path().string();
};

constexpr AlgorithmKey kOne = {4096, 14336, 64, 1, 0, 1}, kOther = {4096, 14336, 64, 1, 0, 0};
constexpr Algorithm kFirst = {1, ~uint64_t{0}, 3, 4, 5, 6, 7, 8}, kSecond = {9, 8, 7, 6};

TEST_F(AlgorithmCacheTest, TheNextStartFindsAddedEntries) {
  const std::string inner = folder_ + "/a/b";
  {
    AlgorithmCache cache(inner, "GPU x/1");
    EXPECT_FALSE(cache.Find(kOne));
    cache.Add(kOne, kFirst);
    cache.Add(kOther, kFirst);
    cache.Add(kOther, kSecond);
    EXPECT_EQ(cache.Find(kOther), kSecond);
  }
  const AlgorithmCache again(inner, "GPU x/1"), elsewhere(inner, "GPU x/2");
  EXPECT_EQ(again.Find(kOne), kFirst);
  EXPECT_EQ(again.Find(kOther), kFirst);  // replaced in memory only
  EXPECT_FALSE(elsewhere.Find(kOne));
}

TEST_F(AlgorithmCacheTest, EntriesAddedInMemoryAreNotFoundAtTheNextStart) {
  AlgorithmCache cache(folder_, "GPU");
  cache.AddInMemory(kOne, kFirst);
  EXPECT_EQ(cache.Find(kOne), kFirst);
  EXPECT_FALSE(AlgorithmCache(folder_, "GPU").Find(kOne));
}

TEST_F(AlgorithmCacheTest, DamagedLinesAreIgnored) {
  AlgorithmCache(folder_, "GPU").Add(kOne, kFirst);
  AlgorithmCache(folder_, "GPU").Add(kOther, kSecond);
  const std::string path = std::filesystem::directory_iterator(folder_)->path().string();
  std::string text;
  {
    std::ifstream in(path);
    text.assign(std::istreambuf_iterator<char>(in), {});
  }
  ASSERT_EQ(text[0], '1');  // 4096 is 1000 in hexadecimal
  text[0] = '2';
  text.insert(text.find('\n') + 1, "what is this\n\n1 2 3\n");
  std::ofstream(path) << text;
  const AlgorithmCache cache(folder_, "GPU");
  EXPECT_FALSE(cache.Find(kOne));
  EXPECT_EQ(cache.Find(kOther), kSecond);
}

TEST_F(AlgorithmCacheTest, ATruncatedLineDoesNotDamageTheNextOne) {
  AlgorithmCache(folder_, "GPU").Add(kOne, kFirst);
  const std::filesystem::path path = std::filesystem::directory_iterator(folder_)->path();
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 5);
  {
    AlgorithmCache cache(folder_, "GPU");
    EXPECT_FALSE(cache.Find(kOne));
    cache.Add(kOther, kSecond);
    cache.Add(kOne, kSecond);
  }
  const AlgorithmCache again(folder_, "GPU");
  EXPECT_EQ(again.Find(kOther), kSecond);
  EXPECT_EQ(again.Find(kOne), kSecond);
}

// Limits the file size of this process; a longer write is truncated as on a full disk.
class FileLimit {
 public:
  explicit FileLimit(rlim_t size_bytes) : on_signal_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {.rlim_cur = size_bytes, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, on_signal_);
  }

 private:
  void (*on_signal_)(int);
  rlimit before_;
};

TEST_F(AlgorithmCacheTest, ALineTruncatedByAFullDiskDoesNotDamageTheNextOne) {
  AlgorithmCache cache(folder_, "GPU");
  cache.Add(kOne, kFirst);
  const std::filesystem::path path = std::filesystem::directory_iterator(folder_)->path();
  {
    const FileLimit limit(std::filesystem::file_size(path) + 5);
    cache.Add(kOther, kFirst);
  }
  constexpr AlgorithmKey kThird = {1, 2, 3};
  cache.Add(kThird, kSecond);
  const AlgorithmCache again(folder_, "GPU");
  EXPECT_EQ(again.Find(kOne), kFirst);
  EXPECT_FALSE(again.Find(kOther));
  EXPECT_EQ(again.Find(kThird), kSecond);
}

TEST_F(AlgorithmCacheTest, WithoutAFolderNothingIsStored) {
  AlgorithmCache none("", "GPU");
  none.Add(kOne, kFirst);
  EXPECT_EQ(none.Find(kOne), kFirst);
  std::ofstream(folder_ + "/file") << "no folder";
  AlgorithmCache blocked(folder_ + "/file", "GPU");
  blocked.Add(kOne, kFirst);
  EXPECT_EQ(blocked.Find(kOne), kFirst);
  EXPECT_FALSE(AlgorithmCache(folder_ + "/file", "GPU").Find(kOne));
}

}  // namespace
}  // namespace nereid::gpu
