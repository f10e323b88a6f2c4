// The tokenizer cache: the same files share one tokenizer until they change.
#include "backends/tokenizer/lib/shared_tokenizer.h"

#include <thread>

#include "tests/backends/tokenizer/test_tokenizers.h"

namespace nereid::tokenizer {
namespace {

class SharedTokenizerTest : public TokenizerFolderTest {
 protected:
  std::shared_ptr<const Tokenizer> Shared(const std::filesystem::path& path) {
    const auto loaded = LoadShared(path.string());
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    return loaded.ok() ? *loaded : nullptr;
  }
};

TEST_F(SharedTokenizerTest, SharesTokenizerOfSameFiles) {
  Write("tokenizer.json", ByteLevelSpec({}).dump());
  const auto first = Shared(folder_);
  EXPECT_EQ(Shared(folder_ / "."), first);
  EXPECT_EQ(Shared(folder_ / "tokenizer.json")->vocab_size(), first->vocab_size());
}

TEST_F(SharedTokenizerTest, UnusedTokenizerIsFreed) {
  Write("tokenizer.json", ByteLevelSpec({}).dump());
  const std::weak_ptr<const Tokenizer> gone = Shared(folder_);
  EXPECT_TRUE(gone.expired());
  EXPECT_NE(Shared(folder_), nullptr);
}

TEST_F(SharedTokenizerTest, ReloadsChangedFiles) {
  Write("tokenizer.json", ByteLevelSpec({}).dump());
  const auto first = Shared(folder_);
  Write("tokenizer_config.json", R"({"eos_token": "E"})");
  const auto second = Shared(folder_);
  EXPECT_NE(second, first);
  EXPECT_EQ(second->special_ids().eos, 'E');
  EXPECT_EQ(Shared(folder_), second);
  Write("tokenizer.json", ByteLevelSpec({"h e"}).dump());
  EXPECT_NE(Shared(folder_), second);
}

TEST_F(SharedTokenizerTest, LinkUsesSideFilesOfItsOwnFolder) {
  Write("tokenizer.json", ByteLevelSpec({}).dump());
  for (const char* name : {"one", "two"}) {
    std::filesystem::create_directory(folder_ / name);
    std::filesystem::create_symlink(folder_ / "tokenizer.json", folder_ / name / "tokenizer.json");
  }
  Write("one/tokenizer_config.json", R"({"eos_token": "O"})");
  Write("two/tokenizer_config.json", R"({"eos_token": "T"})");
  const auto one = Shared(folder_ / "one/tokenizer.json");
  EXPECT_EQ(one->special_ids().eos, 'O');
  EXPECT_EQ(Shared(folder_ / "two/tokenizer.json")->special_ids().eos, 'T');
  EXPECT_EQ(Shared(folder_ / "one/tokenizer.json"), one);
}

TEST_F(SharedTokenizerTest, FailedLoadIsRetried) {
  Write("tokenizer.json", "{");
  EXPECT_FALSE(LoadShared(folder_.string()).ok());
  EXPECT_FALSE(LoadShared((folder_ / "absent").string()).ok());
  Write("tokenizer.json", ByteLevelSpec({}).dump());
  EXPECT_NE(Shared(folder_), nullptr);
}

TEST_F(SharedTokenizerTest, ConcurrentLoadsShareOneTokenizer) {
  Write("tokenizer.json", ByteLevelSpec().dump());
  std::vector<std::shared_ptr<const Tokenizer>> got(4);
  {
    std::vector<std::jthread> threads;
    for (auto& one : got) threads.emplace_back([&] { one = Shared(folder_); });
  }
  EXPECT_NE(got[0], nullptr);
  for (const auto& one : got) EXPECT_EQ(one, got[0]);
}

}  // namespace
}  // namespace nereid::tokenizer
