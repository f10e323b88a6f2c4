// Copies the sample backend under another name.
#include "repo_templates/tool/new_backend.h"

#include <gtest/gtest.h>

#include "tests/repo_templates/small_checkpoint.h"
#include "tests/support/source_path.h"
#include "tests/support/test_folder.h"

namespace nereid::repo {
namespace {

namespace fs = std::filesystem;

const std::string kTemplate = SourcePath("backend_api/template");

TEST(NewBackendTest, RenamesFilesAndNames) {
  const TestFolder folder;
  const Status status = CopyBackendTemplate({"image_resizer", kTemplate, folder / "out"});
  ASSERT_TRUE(status.ok()) << status.message();
  const std::string source = ReadFile(folder / "out/image_resizer.cc");
  EXPECT_NE(source.find("NEREID_BACKEND(ImageResizerModel);"), std::string::npos);
  EXPECT_NE(ReadFile(folder / "out/CMakeLists.txt")
                .find("add_backend(image_resizer SOURCES "
                      "image_resizer.cc)"),
            std::string::npos);
  EXPECT_NE(ReadFile(folder / "out/config.pbtxt").find("backend: \"image_resizer\""),
            std::string::npos);
  for (const auto& entry : fs::directory_iterator(folder / "out")) {
    const std::string text = ReadFile(entry.path());
    EXPECT_EQ(text.find("my_backend"), std::string::npos) << entry.path();
    EXPECT_EQ(text.find("MyModel"), std::string::npos) << entry.path();
  }
}

TEST(NewBackendTest, RenamesTheClassesOfTheStreamingSample) {
  const TestFolder folder;
  const std::string sample = SourcePath("backend_api/stream_template");
  const Status status = CopyBackendTemplate({"word_stream", sample, folder / "out"});
  ASSERT_TRUE(status.ok()) << status.message();
  const std::string source = ReadFile(folder / "out/word_stream.cc");
  EXPECT_NE(source.find("NEREID_BACKEND(WordStreamModel, WordStreamInstance);"), std::string::npos);
  EXPECT_NE(source.find("class WordStreamInstance : public nereid::ModelInstance<WordStreamModel>"),
            std::string::npos);
  EXPECT_EQ(source.find("My"), std::string::npos);
}

TEST(NewBackendTest, RefusesNamesAndFolders) {
  const TestFolder folder;
  for (const char* name : {"", "1st", "a-b", "a/b", "../x"}) {
    EXPECT_FALSE(CopyBackendTemplate({name, kTemplate, folder / "out"}).ok()) << name;
  }
  EXPECT_FALSE(CopyBackendTemplate({"fine", folder / "absent", folder / "out"}).ok());
  EXPECT_FALSE(fs::exists(folder / "out"));
  WriteFile(folder / "out/file", "kept");
  EXPECT_FALSE(CopyBackendTemplate({"fine", kTemplate, folder / "out"}).ok());
  EXPECT_EQ(ReadFile(folder / "out/file"), "kept");
}

}  // namespace
}  // namespace nereid::repo
