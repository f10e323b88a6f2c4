// Directory listings that fail half-way.
#include <dirent.h>
#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "tests/host/core/repository/fake_models.h"

namespace nereid::core {
namespace {

// Number of further entries that readdir returns before it fails; below 0: it never fails. [the
// listing thread]
thread_local int entries_left = -1;

}  // namespace
}  // namespace nereid::core

// Replaces the C library's function in this program.
extern "C" [[gnu::visibility("default")]] dirent* readdir(DIR* folder) {
  static const auto system = reinterpret_cast<decltype(&readdir)>(dlsym(RTLD_NEXT, "readdir"));
  if (nereid::core::entries_left == 0) {
    errno = EIO;
    return nullptr;
  }
  if (nereid::core::entries_left > 0) --nereid::core::entries_left;
  return system(folder);
}

namespace nereid::core {
namespace {

class BrokenListingTest : public RepositoryTest {
 protected:
  static constexpr int kNumDots = 2;  // "." and ".." are listed, too

  ~BrokenListingTest() override { entries_left = -1; }

  template <typename List>
  static void ExpectFailure(const List& list, int num_entries, const std::string& folder) {
    for (entries_left = 0; entries_left <= num_entries; ++entries_left) {
      const int listed = entries_left;
      const auto listing = list();
      entries_left = listed;
      ASSERT_FALSE(listing.ok()) << listed;
      EXPECT_NE(listing.status().message().find(folder), std::string::npos);
    }
    entries_left = -1;
    EXPECT_TRUE(list().ok());
  }
};

TEST_F(BrokenListingTest, FailsTheRepositoryScan) {
  AddModel("a");
  AddModel("b");
  ExpectFailure([this] { return ScanRepositories({{repo(), {}}}); }, kNumDots + 2, repo());
}

TEST_F(BrokenListingTest, FailsTheModelScan) {
  AddModel("m", {1, 2});
  const std::string model = repo() + "/m";
  ExpectFailure([&] { return ScanVersions(model); }, kNumDots + 3, model);
  ExpectFailure([&] { return ScanModelFolder(model, ""); }, 3 * (kNumDots + 1), model);
}

TEST_F(BrokenListingTest, FailsThePollAndKeepsModelsServing) {
  AddModel("a");
  AddModel("b");
  AddModel("c");
  ASSERT_TRUE(repository_.LoadAll().ok());
  entries_left = kNumDots + 1;
  EXPECT_FALSE(repository_.Poll().ok());
  entries_left = -1;
  EXPECT_EQ(Index(true), "a:1 READY; b:1 READY; c:1 READY");
  EXPECT_TRUE(repository_.Poll().ok());
  EXPECT_EQ(loader_.order.size(), 3U);
}

TEST_F(BrokenListingTest, IgnoresUnreadableDirectories) {
  AddModel("m");
  std::filesystem::permissions(
      root_, std::filesystem::perms::all);  // mkdtemp creates a directory for its owner only
  std::filesystem::create_directories(root_ / "repo/m/secret");
  std::filesystem::permissions(root_ / "repo/m/secret", std::filesystem::perms::none);
  const uid_t user = geteuid();
  if (user == 0) ASSERT_EQ(seteuid(65534), 0);  // root may read every directory
  std::error_code refused;
  std::filesystem::directory_iterator(root_ / "repo/m/secret", refused);
  EXPECT_EQ(refused, std::errc::permission_denied);
  EXPECT_TRUE(ScanModelFolder(repo() + "/m", "").ok());
  EXPECT_EQ(seteuid(user), 0);
}

}  // namespace
}  // namespace nereid::core
