#include "host/cli/file_hash.h"

#include <gtest/gtest.h>

#include "tests/repo_templates/small_checkpoint.h"
#include "tests/support/test_folder.h"

namespace nereid::cli {
namespace {

using repo::WriteFile;

TEST(FileHashTest, IsThatOfSha256AndOfGit) {
  const TestFolder folder;
  WriteFile(folder / "file", "abc");
  EXPECT_EQ(HashFile(folder / "file", HashKind::kSha256).value(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  // printf abc | git hash-object --stdin
  EXPECT_EQ(HashFile(folder / "file", HashKind::kGitBlob).value(),
            "f2ba8f84ab5c1bce84a7b441cb1959cfc7093b7f");
  EXPECT_EQ(HashFile(folder / "absent", HashKind::kSha256).status().code(), StatusCode::kNotFound);
}

TEST(FileHashTest, IsKnownByItsLength) {
  EXPECT_EQ(KindOfHash(std::string(64, 'a')), HashKind::kSha256);
  EXPECT_EQ(KindOfHash(std::string(40, '0')), HashKind::kGitBlob);
  EXPECT_EQ(KindOfHash(std::string(40, 'x')), HashKind::kNone);
  EXPECT_EQ(KindOfHash(""), HashKind::kNone);
}

}  // namespace
}  // namespace nereid::cli
