// Checks each folder of repositories/ and compares the findings with the text file of the same
// name.
#include "repo_templates/tool/check.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "repo_templates/tool/llm_tables.h"
#include "tests/repo_templates/temp_folder.h"

namespace nereid::repo {
namespace {

namespace fs = std::filesystem;

const fs::path kRepositories = fs::path(NEREID_SOURCE_DIR) / "tests/repo_templates/repositories";

std::set<std::string> Cases() {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(kRepositories)) {
    if (entry.is_directory()) names.insert(entry.path().filename().string());
  }
  return names;
}

void Replace(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
}

class CheckRepositoryTest : public testing::TestWithParam<std::string> {
 protected:
  CheckRepositoryTest() {
    for (const char* backend : {"identity", "tokenizer", "cpu_reference"}) {
      WriteFile(fs::path(backends_ / backend) / (std::string("libtriton_") + backend + ".so"), "");
    }
  }
  TempFolder backends_;
};

TEST_P(CheckRepositoryTest, SaysWhatIsExpected) {
  const fs::path repository = kRepositories / GetParam();
  const Findings findings = CheckRepository(repository.string(), {{backends_ / ""}});
  std::string text = ToText(findings);
  Replace(text, repository.string(), "REPO");
  Replace(text, backends_ / "", "BACKENDS");
  const std::string expected = ReadFile(kRepositories / (GetParam() + ".txt"));
  EXPECT_EQ(text, expected);
  EXPECT_EQ(HasError(findings), expected.find("error: ") != std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Repositories, CheckRepositoryTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param; });

TEST(CheckTest, NamesARepositoryWithoutModels) {
  const TempFolder folder;
  EXPECT_NE(ToText(CheckRepository(folder / "", {})).find("holds no model folder"),
            std::string::npos);
  EXPECT_TRUE(HasError(CheckRepository(folder / "absent", {})));
}

TEST(CheckTest, TheDocumentedTablesAreThoseOfTheCode) {
  EXPECT_EQ(ReadFile(fs::path(NEREID_SOURCE_DIR) / "docs/llm_tables.md"), EngineTablesPage())
      << "docs/llm_tables.md: write it with `nereid-repo tables`";
}

TEST(CheckTest, GivesTheSameFindingsAsJson) {
  const std::string repository = (kRepositories / "unknown_field").string();
  const auto json = nlohmann::json::parse(ToJson(CheckRepository(repository, {})));
  ASSERT_EQ(json.size(), 1u);
  EXPECT_EQ(json[0]["severity"], "error");
  EXPECT_EQ(json[0]["file"], repository + "/badconfig/config.pbtxt");
  EXPECT_EQ(json[0]["line"], 2);
  EXPECT_EQ(json[0]["key"], "max_batch_sizes");
}

}  // namespace
}  // namespace nereid::repo
