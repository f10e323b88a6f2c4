// Checks of models in Python: what their interpreter lacks and what does not compile.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "repo_templates/tool/check.h"
#include "tests/repo_templates/small_checkpoint.h"
#include "tests/support/test_folder.h"

namespace nereid::repo {
namespace {

namespace fs = std::filesystem;

// A repository whose models bring an environment: its interpreter is python3 without packages.
class CheckPythonTest : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("python3 -c '' 2>/dev/null") != 0) GTEST_SKIP() << "no python3";
    const fs::path interpreter = folder_ / "env/bin/python3";
    WriteFile(interpreter, "#!/bin/sh\nexec python3 -S -I \"$@\"\n");
    fs::permissions(interpreter, fs::perms::owner_all);
  }

  fs::path Add(const std::string& name, const std::string& code, const std::string& env = "env") {
    WriteFile(folder_ / ("repo/" + name + "/config.pbtxt"),
              "backend: \"python\"\n"
              "input { name: \"A\" data_type: TYPE_FP32 dims: 1 }\n"
              "output { name: \"B\" data_type: TYPE_FP32 dims: 1 }\n"
              "parameters { key: \"EXECUTION_ENV_PATH\" value { string_value: \"" +
                  (folder_ / env) + "\" } }\n");
    const fs::path file = folder_ / ("repo/" + name + "/1/model.py");
    WriteFile(file, code);
    return file;
  }

  std::string Check(bool runs_interpreters = true) {
    CheckOptions options;
    options.runs_interpreters = runs_interpreters;
    return ToText(CheckRepository(folder_ / "repo", options));
  }

  TestFolder folder_;
};

TEST_F(CheckPythonTest, NamesWhatDoesNotCompileAndAnInterpreterWithoutNumPy) {
  Add("good", "import nosuch\nraise SystemExit(3)\n");
  const fs::path bad = Add("bad", "class A:\n  def execute(self:\n    pass\n");
  const std::string text = Check();
  EXPECT_NE(text.find("error: " + bad.string() + ":2:"), std::string::npos) << text;
  EXPECT_NE(text.find("SyntaxError: "), std::string::npos) << text;
  EXPECT_NE(text.find("def execute(self:"), std::string::npos) << text;
  for (const char* model : {"good", "bad"}) {
    const std::string config = folder_ / ("repo/" + std::string(model) + "/config.pbtxt");
    EXPECT_NE(text.find("error: " + config + ":1:1: backend: no NumPy is installed for "),
              std::string::npos)
        << text;
  }
  EXPECT_NE(text.find("-m pip install numpy"), std::string::npos) << text;
  EXPECT_EQ(text.find("good/1/model.py"), std::string::npos) << text;
  EXPECT_EQ(Check(/*runs_interpreters=*/false), "");
}

TEST_F(CheckPythonTest, NamesAnEnvironmentThatIsMissing) {
  Add("lost", "pass\n", "absent");
  EXPECT_NE(Check().find("EXECUTION_ENV_PATH: '" + (folder_ / "absent") + "' is neither a folder"),
            std::string::npos)
      << Check();
}

}  // namespace
}  // namespace nereid::repo
