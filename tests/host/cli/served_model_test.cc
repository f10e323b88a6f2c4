#include "host/cli/served_model.h"

#include <gtest/gtest.h>

#include "tests/repo_templates/small_checkpoint.h"
#include "tests/support/test_folder.h"

namespace nereid::cli {
namespace {

using repo::WriteFile;

class ServedModelTest : public testing::Test {
 protected:
  ServedModelTest() {
    repo::WriteCheckpoint(folder_ / "one/model");
    repo::WriteCheckpoint(folder_ / "two/model");
  }
  Result<std::vector<ServedModel>> Find() {
    return FindModels(options_, folder_ / "root", progress_);
  }
  std::string ErrorText() {
    const auto models = Find();
    return models.ok() ? "" : models.status().message();
  }

  TestFolder folder_;
  std::FILE* const out_ = std::tmpfile();
  ProgressBar progress_{out_};
  ServeOptions options_;
};

TEST_F(ServedModelTest, IsNamedAfterItsFolder) {
  options_.checkpoints = {folder_ / "one/model/"};
  ASSERT_EQ(ErrorText(), "");
  EXPECT_EQ(Find()->at(0).name, "model");
  EXPECT_GT(Find()->at(0).checkpoint.weight_bytes, 0u);
  options_.names = {"other"};
  EXPECT_EQ(Find()->at(0).name, "other");
  options_.names = {"a/b"};
  EXPECT_NE(ErrorText().find("--name: 'a/b' cannot be the name of a model"), std::string::npos);
}

TEST_F(ServedModelTest, HasANameOfItsOwn) {
  options_.checkpoints = {folder_ / "one/model", folder_ / "two/model"};
  EXPECT_NE(ErrorText().find("two models would have the name 'model'"), std::string::npos);
  options_.names = {"a", "a_tensorrt_llm"};
  EXPECT_NE(ErrorText().find("'a_tensorrt_llm'"), std::string::npos);
  options_.names = {"a", "b"};
  EXPECT_EQ(ErrorText(), "");
}

TEST_F(ServedModelTest, IsNotFoundWhereThereIsNoCheckpoint) {
  options_.checkpoints = {folder_ / "absent"};
  EXPECT_NE(ErrorText().find("no such folder"), std::string::npos) << ErrorText();
  WriteFile(folder_ / "notes/README.md", "x");
  options_.checkpoints = {folder_ / "notes"};
  EXPECT_NE(ErrorText().find("notes/config.json': is missing; found: README.md"), std::string::npos)
      << ErrorText();
  options_.checkpoints = {folder_ / "notes/README.md"};
  EXPECT_NE(ErrorText().find("expected the checkpoint's folder, got a file"), std::string::npos);
  WriteFile(folder_ / "model.gguf", "GGUF");
  options_.checkpoints = {folder_ / "model.gguf"};
  EXPECT_NE(ErrorText().find("got a file of GGUF; a checkpoint has config.json"),
            std::string::npos);
  options_.checkpoints = {"demo"};
  EXPECT_NE(ErrorText().find("the demo model is not installed"), std::string::npos);
}

}  // namespace
}  // namespace nereid::cli
