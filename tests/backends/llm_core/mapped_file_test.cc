#include "backends/llm_core/checkpoint/mapped_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

namespace nereid::llm {
namespace {

class MappedFileTest : public ::testing::Test {
 protected:
  MappedFileTest()
      : page_bytes_(static_cast<size_t>(sysconf(_SC_PAGESIZE))),
        path_(::testing::TempDir() + "mapped_file_test." + std::to_string(getpid())) {}
  ~MappedFileTest() override { std::filesystem::remove(path_); }

  MappedFile OpenPages(size_t count) const {
    std::ofstream(path_, std::ios::binary) << std::string(count * page_bytes_, 'x');
    Result<MappedFile> file = MappedFile::Open(path_);
    EXPECT_TRUE(file.ok()) << file.status().message();
    return *std::move(file);
  }
  void CutTo(size_t count) const { std::filesystem::resize_file(path_, count * page_bytes_); }
  static uint8_t Read(const MappedFile& file, size_t at) {
    return *static_cast<const volatile uint8_t*>(file.bytes().data() + at);
  }

  const size_t page_bytes_;
  const std::string path_;
};

TEST_F(MappedFileTest, LostBytesAreReadAsZerosAndTheErrorNamesTheFile) {
  const MappedFile file = OpenPages(4);
  EXPECT_EQ(Read(file, 3 * page_bytes_), 'x');
  CutTo(2);
  EXPECT_TRUE(file.CheckIntact().ok()) << "nobody has looked yet";
  EXPECT_EQ(Read(file, page_bytes_), 'x');
  EXPECT_TRUE(file.CheckIntact().ok());
  EXPECT_EQ(Read(file, 3 * page_bytes_ + 1), 0);
  const Status status = file.CheckIntact();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find(path_), std::string::npos) << status.message();
  EXPECT_EQ(Read(file, page_bytes_), 'x');
}

TEST_F(MappedFileTest, SeveralThreadsMayReadLostBytes) {
  const MappedFile file = OpenPages(64);
  CutTo(0);
  std::vector<std::thread> threads;
  for (size_t first = 0; first < 4; ++first) {
    threads.emplace_back([&file, first, this] {
      for (size_t page = first; page < 64; ++page) EXPECT_EQ(Read(file, page * page_bytes_), 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(file.CheckIntact().ok());
}

TEST_F(MappedFileTest, ATruncatedFileDoesNotAffectOthers) {
  MappedFile cut = OpenPages(2);
  CutTo(0);
  EXPECT_EQ(Read(cut, page_bytes_), 0);
  std::filesystem::remove(path_);
  const MappedFile other = OpenPages(2);
  EXPECT_FALSE(cut.CheckIntact().ok());
  EXPECT_TRUE(other.CheckIntact().ok());
  {
    const MappedFile moved = std::move(cut);
    EXPECT_FALSE(moved.CheckIntact().ok());
  }
  std::filesystem::remove(path_);
  const MappedFile next = OpenPages(2);  // may reuse the guard slot of the destroyed file
  EXPECT_TRUE(next.CheckIntact().ok());
}

TEST_F(MappedFileTest, OtherBusErrorsEndTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const MappedFile file = OpenPages(1);
  EXPECT_DEATH(raise(SIGBUS), "");
}

}  // namespace
}  // namespace nereid::llm
