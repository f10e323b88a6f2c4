// The file of KV blocks: what it keeps beyond its process, and what damage, other files and other
// models leave of it.
#include "backends/llm_core/kv_tiers/block_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <map>
#include <random>

#include "tests/backends/llm_core/checkpoint_files.h"
#include "tests/support/test_folder.h"

namespace nereid::llm {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int32_t kBlockSize = 4;
constexpr int64_t kBlockBytes = 200;

class BlockFileTest : public ::testing::Test {
 protected:
  Result<std::unique_ptr<BlockFile>> Open(char identity = 'a', int64_t max_bytes = 1 << 16,
                                          int64_t block_bytes = kBlockBytes) {
    return BlockFile::Open({.path = path_,
                            .max_bytes = max_bytes,
                            .block_size = kBlockSize,
                            .block_bytes = block_bytes,
                            .identity = std::string(64, identity),
                            .log = [this](const std::string& line) { log_.push_back(line); }});
  }
  static std::vector<std::byte> Bytes(uint64_t serial) {
    std::vector<std::byte> bytes(kBlockBytes);
    std::mt19937_64 random(serial);
    for (std::byte& each : bytes) each = static_cast<std::byte>(random());
    return bytes;
  }
  // A chain of five contents, of which the slots are in another order.
  void Fill(BlockFile& file) {
    uint64_t parent = 0;
    for (uint64_t i = 0; i < 5; ++i) {
      const uint64_t serial = file.first_serial() + i;
      const auto token = static_cast<int32_t>(10 * i);
      EXPECT_TRUE(file.Write(static_cast<int32_t>((i * 3 + 1) % 5),
                             {serial, parent, 7, {token, token + 1, token + 2, token + 3}},
                             Bytes(serial)));
      parent = serial;
    }
  }
  std::string Content() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void SetContent(const std::string& content) const {
    std::ofstream(path_, std::ios::binary) << content;
  }

  TestFolder folder_;
  const std::string path_ = folder_ / "blocks";
  std::vector<std::string> log_;
};

TEST_F(BlockFileTest, KeepsContentsAndTheirChainBeyondItsProcess) {
  uint64_t first = 0;
  {
    const auto file = Open();
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_THAT((*file)->TakeStored(), IsEmpty());
    first = (*file)->first_serial();
    Fill(**file);
  }
  const auto file = Open();
  ASSERT_TRUE(file.ok());
  EXPECT_GT((*file)->first_serial(), first + 5);  // no serial is given twice
  const std::vector<BlockFile::Stored> stored = (*file)->TakeStored();
  ASSERT_EQ(stored.size(), 5u);
  std::vector<std::byte> bytes(kBlockBytes);
  for (uint64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(stored[i].content.serial, first + i);
    EXPECT_EQ(stored[i].content.parent, i == 0 ? 0 : first + i - 1);
    EXPECT_EQ(stored[i].content.salt, 7u);
    EXPECT_EQ(stored[i].content.token_ids[2], static_cast<int32_t>(10 * i + 2));
    ASSERT_TRUE((*file)->Read(stored[i].slot, first + i, bytes));
    EXPECT_EQ(bytes, Bytes(first + i));
  }
  EXPECT_FALSE((*file)->Read(stored[0].slot, first + 1, bytes));
  EXPECT_THAT(log_.back(), HasSubstr("is damaged; its tokens are computed again"));
}

TEST_F(BlockFileTest, AnyDamagedByteIsAMissAndNeverOtherContent) {
  {
    const auto file = Open();
    Fill(**file);
  }
  const std::string whole = Content();
  std::mt19937 random(3);
  for (size_t at = 0; at < whole.size(); at += at < 160 || at >= 4096 ? 3 : 512) {
    SCOPED_TRACE(at);
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (random() % 8)));
    SetContent(damaged);
    const auto file = Open();
    if (!file.ok()) {
      EXPECT_LT(at, 8u);
      EXPECT_THAT(file.status().message(), HasSubstr("is not a file of KV blocks"));
      EXPECT_EQ(Content(), damaged);
      continue;
    }
    std::vector<std::byte> bytes(kBlockBytes);
    for (const BlockFile::Stored& stored : (*file)->TakeStored()) {
      const uint64_t serial = stored.content.serial;
      ASSERT_EQ(stored.content.token_ids[0] / 10, static_cast<int32_t>((serial & 0xff) - 1));
      if ((*file)->Read(stored.slot, serial, bytes)) ASSERT_EQ(bytes, Bytes(serial));
    }
  }
}

TEST_F(BlockFileTest, ATruncatedFileKeepsWhatIsWhole) {
  {
    const auto file = Open();
    Fill(**file);
  }
  const std::string whole = Content();
  size_t most = 0;
  for (size_t size = 0; size <= whole.size(); size += 37) {
    SCOPED_TRACE(size);
    SetContent(whole.substr(0, size));
    const auto file = Open();
    ASSERT_TRUE(file.ok()) << file.status().message();
    std::vector<std::byte> bytes(kBlockBytes);
    size_t num_whole = 0;
    for (const BlockFile::Stored& stored : (*file)->TakeStored()) {
      if (!(*file)->Read(stored.slot, stored.content.serial, bytes)) continue;
      ++num_whole;
      ASSERT_EQ(bytes, Bytes(stored.content.serial));
    }
    most = std::max(most, num_whole);
  }
  EXPECT_GE(most, 3u);
}

TEST_F(BlockFileTest, TheFileOfAnotherModelOrFormatIsStartedOverAndLogged) {
  Fill(**Open());
  EXPECT_THAT((*Open('b'))->TakeStored(), IsEmpty());
  ASSERT_EQ(log_.size(), 1u);
  EXPECT_THAT(log_[0], HasSubstr("is of another checkpoint or another format of the KV cache"));
  EXPECT_THAT((*Open('a'))->TakeStored(), IsEmpty());
  Fill(**Open());
  EXPECT_THAT((*Open('a', 1 << 16, kBlockBytes + 1))->TakeStored(), IsEmpty());
}

TEST_F(BlockFileTest, AFileThatIsSomethingElseIsRefusedAndLeftAsItIs) {
  SetContent("the only copy of a thesis");
  const auto file = Open();
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.status().code(), StatusCode::kInvalidArg);
  EXPECT_THAT(file.status().message(), HasSubstr("'" + path_ + "' is not a file of KV blocks"));
  EXPECT_EQ(Content(), "the only copy of a thesis");
}

TEST_F(BlockFileTest, OnlyOneProcessUsesTheFile) {
  const auto first = Open();
  ASSERT_TRUE(first.ok());
  const auto second = Open();
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(second.status().message(), HasSubstr("is used by another model or process"));
}

TEST_F(BlockFileTest, TheSizeIsBoundedAlsoForTheFileOfALargerBound) {
  const auto too_small = Open('a', 4096 + 200);
  ASSERT_FALSE(too_small.ok());
  EXPECT_THAT(too_small.status().message(), HasSubstr("4296 bytes hold no KV block, expected"));
  int32_t num_slots = 0;
  {
    const auto file = Open();
    num_slots = (*file)->num_slots();
    Fill(**file);
    EXPECT_LE(Content().size(), size_t{1} << 16);
  }
  const auto file = Open('a', 4096 + 2 * 300);
  ASSERT_TRUE(file.ok());
  EXPECT_LT((*file)->num_slots(), num_slots);
  EXPECT_LE(Content().size(), size_t{4096 + 2 * 300});
}

TEST_F(BlockFileTest, AFullDiskIsLoggedOnceAndEndsTheWriting) {
  const auto file = Open();
  ASSERT_TRUE(file.ok());
  rlimit limit = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit lowered = {4096 + 100, limit.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &lowered), 0);
  EXPECT_FALSE((*file)->Write(0, {(*file)->first_serial(), 0, 0, {1, 2, 3, 4}}, Bytes(1)));
  EXPECT_FALSE((*file)->Write(1, {(*file)->first_serial(), 0, 0, {1, 2, 3, 4}}, Bytes(1)));
  ::setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE((*file)->has_failed());
  ASSERT_EQ(log_.size(), 1u);
  EXPECT_THAT(log_[0], HasSubstr("cannot write '" + path_ + "': File too large"));
}

}  // namespace
}  // namespace nereid::llm
