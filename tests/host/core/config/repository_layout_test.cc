// Paths that are no repository, each with the path or command to use instead.
#include "host/core/config/repository_layout.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/support/test_folder.h"

namespace nereid::core {
namespace {

namespace fs = std::filesystem;

class RepositoryLayoutTest : public testing::Test {
 protected:
  RepositoryLayoutTest() {
    Write("repo/m/config.pbtxt");
    fs::create_directories(root_ / "repo/m/1");
  }

  void Write(const std::string& name) { folder_.Write(name, "x"); }
  std::string At(const std::string& name) const { return folder_ / name; }

  const TestFolder folder_;
  const fs::path root_ = folder_.path();
};

TEST_F(RepositoryLayoutTest, ARepositoryPasses) {
  EXPECT_TRUE(CheckRepositoryLayout(At("repo")).ok());
  EXPECT_FALSE(HasNoModelFolder(At("repo")));
  fs::create_directories(root_ / "none");
  EXPECT_TRUE(CheckRepositoryLayout(At("none")).ok());
  EXPECT_TRUE(HasNoModelFolder(At("none")));
}

TEST_F(RepositoryLayoutTest, APathTooHighOrTooLowIsNamedWithTheRightOne) {
  EXPECT_EQ(CheckRepositoryLayout(root_.string()).message(),
            StrCat("model repository '", root_.string(), "' holds no model, but '", At("repo"),
                   "' does ('m'): pass '", At("repo"), "'"));
  EXPECT_EQ(CheckRepositoryLayout(At("repo/m/")).message(),
            StrCat("model repository '", At("repo/m/"), "' is the folder of one model: pass '",
                   At("repo"), "', the folder that contains it"));
  EXPECT_EQ(CheckRepositoryLayout(At("repo/m/1")).message(),
            StrCat("model repository '", At("repo/m/1"), "' is a version folder of the model 'm': ",
                   "pass '", At("repo"), "', the folder that contains the model's"));
}

TEST_F(RepositoryLayoutTest, ACheckpointIsNamedWithTheCommandThatServesIt) {
  Write("llama/config.json");
  EXPECT_NE(CheckRepositoryLayout(At("llama"))
                .message()
                .find(StrCat("is a checkpoint: `nereid serve ", At("llama"), "` serves it")),
            std::string::npos);
}

}  // namespace
}  // namespace nereid::core
