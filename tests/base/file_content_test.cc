#include "base/file_content.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/test_folder.h"

namespace nereid {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class FileContentTest : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return parent_ / name; }
  std::string Write(const std::string& name, const std::string& content) const {
    parent_.Write(name, content);
    return Path(name);
  }

  const TestFolder parent_;
  const fs::path folder_ = parent_.path();
};

TEST_F(FileContentTest, ReadsAFileUpToItsLimit) {
  const std::string path = Write("a", "12345");
  EXPECT_EQ(ReadFile(path, 5).value(), "12345");
  EXPECT_EQ(ReadFile(path, 4).status().message(),
            "cannot read '" + path + "': expected at most 4 bytes, got 5");
  EXPECT_EQ(ReadFileBeginning(path, 3).value(), "123");
  EXPECT_EQ(ReadFileBeginning(path, 30).value(), "12345");
  EXPECT_EQ(ReadFile(Write("empty", ""), 0).value(), "");
}

TEST_F(FileContentTest, ReadsAFileWhoseSizeIsNotKnown) {
  EXPECT_THAT(ReadFile("/proc/self/status", 1 << 20).value(), HasSubstr("Pid:"));
  EXPECT_THAT(ReadFile("/proc/self/status", 10).status().message(), HasSubstr("at most 10 bytes"));
}

TEST_F(FileContentTest, RefusesWhatIsNoRegularFile) {
  ASSERT_EQ(::mkfifo(Path("fifo").c_str(), 0600), 0);
  EXPECT_EQ(ReadFile(Path("fifo"), 10).status().message(),
            "cannot read '" + Path("fifo") + "': expected a regular file, got a FIFO");
  fs::create_symlink("/dev/zero", Path("endless"));
  EXPECT_EQ(ReadFile(Path("endless"), 10).status().message(),
            "cannot read '" + Path("endless") + "': expected a regular file, got a device");
  EXPECT_THAT(ReadFile(folder_.string(), 10).status().message(), HasSubstr("got a directory"));
  EXPECT_EQ(ReadFile(Path("none"), 10).status().code(), StatusCode::kNotFound);
  fs::create_symlink(Path("loop"), Path("loop"));
  EXPECT_EQ(ReadFile(Path("loop"), 10).status().code(), StatusCode::kNotFound);
}

TEST_F(FileContentTest, ReadsOnlyTheBeginningOfASparseFile) {
  const std::string path = Write("sparse", "abc");
  fs::resize_file(path, uint64_t{1} << 40);
  EXPECT_EQ(ReadFileBeginning(path, 3).value(), "abc");
  EXPECT_THAT(ReadFile(path, 100).status().message(), HasSubstr("got 1099511627776"));
}

TEST_F(FileContentTest, KeepsPathsInsideOfTheirFolder) {
  fs::create_directories(folder_ / "model" / "data");
  Write("secret", "x");
  Write("model/plain", "x");
  const std::string model = Path("model");
  EXPECT_EQ(PathInside(model, "plain").value(), model + "/plain");
  EXPECT_EQ(PathInside(model, "data/none").value(), model + "/data/none");
  EXPECT_EQ(PathInside(model, "data..x").value(), model + "/data..x");
  for (const char* name : {"", "/etc/passwd", "../secret", "data/../../secret", ".."}) {
    EXPECT_THAT(PathInside(model, name).status().message(),
                HasSubstr("expected a path inside of '" + model + "'"))
        << name;
  }
}

TEST_F(FileContentTest, FollowsLinksOnlyInsideOfTheFolder) {
  fs::create_directories(folder_ / "model");
  Write("secret", "x");
  Write("model/plain", "x");
  const std::string model = Path("model");
  fs::create_symlink("plain", model + "/inside");
  fs::create_symlink("../secret", model + "/outside");
  fs::create_symlink("..", model + "/parent");
  fs::create_symlink("loop", model + "/loop");
  EXPECT_TRUE(PathInside(model, "inside").ok());
  EXPECT_THAT(PathInside(model, "outside").status().message(), HasSubstr("a link to"));
  EXPECT_FALSE(PathInside(model, "parent/secret").ok());
  EXPECT_FALSE(PathInside(model, "loop").ok());
  fs::create_symlink(model, Path("link_to_model"));  // the folder itself may be a link
  EXPECT_TRUE(PathInside(Path("link_to_model"), "plain").ok());
}

}  // namespace
}  // namespace nereid
