// What the log says about failed loads.
#include "host/core/repository/folders.h"

#include <atomic>

#include "host/core/observe/log.h"
#include "tests/host/core/repository/fake_models.h"

namespace nereid::core {
namespace {

using FailureLogTest = RepositoryTest;

// Counts the log's errors that contain `text`, from now on.
class LoggedErrors {
 public:
  explicit LoggedErrors(std::string text) : text_(std::move(text)) {
    log::SetCallback([this](log::Level level, std::string_view, int, std::string_view message) {
      if (level == log::Level::kError && message.find(text_) != std::string_view::npos) ++count_;
    });
  }
  ~LoggedErrors() { log::SetCallback(nullptr); }
  int count() const { return count_; }

 private:
  const std::string text_;
  std::atomic<int> count_ = 0;
};

TEST_F(FailureLogTest, AFailureAtTheStartIsLoggedOnce) {
  AddModel("typo", {1}, "backendd: 'b'");
  AddModel("broken");
  AddEnsemble("ens", {"broken"});
  loader_.Fail("broken:1", InternalError("no backend"));
  const LoggedErrors errors("");
  EXPECT_FALSE(repository_.LoadAll().ok());
  EXPECT_EQ(errors.count(), 3) << "one for each model";
}

TEST_F(FailureLogTest, APollLogsABrokenConfigurationOnceUntilItChanges) {
  AddModel("typo", {1}, "backendd: 'b'");
  const LoggedErrors errors("typo");
  EXPECT_FALSE(repository_.LoadAll().ok());
  EXPECT_EQ(errors.count(), 1);
  EXPECT_FALSE(repository_.Poll().ok());
  EXPECT_FALSE(repository_.Poll().ok());
  EXPECT_EQ(errors.count(), 1);
  AddModel("typo", {1}, "backendd: 'other'");
  EXPECT_FALSE(repository_.Poll().ok());
  EXPECT_FALSE(repository_.Poll().ok());
  EXPECT_EQ(errors.count(), 2);
  EXPECT_FALSE(repository_.Load("typo", {}).ok());
  EXPECT_EQ(errors.count(), 3) << "a client's call is news";
}

TEST_F(FailureLogTest, APollLogsAModelThatDoesNotLoadOnceUntilItHasLoaded) {
  AddModel("m");
  loader_.Fail("m:1", InternalError("no backend"));
  const LoggedErrors errors("no backend");
  EXPECT_FALSE(repository_.LoadAll().ok());
  EXPECT_FALSE(repository_.Poll().ok());
  EXPECT_EQ(errors.count(), 1);
  loader_.ClearFailures();
  EXPECT_TRUE(repository_.Poll().ok());
  loader_.Fail("m:1", InternalError("no backend"));
  Write("repo/m/1/model.bin", "changed");
  EXPECT_FALSE(repository_.Poll().ok());
  EXPECT_EQ(errors.count(), 2);
}

TEST_F(FailureLogTest, AnEmptyModelFolderIsNamed) {
  std::filesystem::create_directories(root_ / "repo/empty");
  EXPECT_NE(repository_.LoadAll().message().find(
                StrCat("model folder '", repo(), "/empty' is empty: expected config.pbtxt and a")),
            std::string::npos);
}

}  // namespace
}  // namespace nereid::core
