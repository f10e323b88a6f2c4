// Checks each folder of repositories/ and compares the findings with the text file of the same
// name.
#include "repo_templates/tool/check.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "repo_templates/tool/llm_tables.h"
#include "repo_templates/tool/new_repository.h"
#include "tests/repo_templates/small_checkpoint.h"
#include "tests/support/source_path.h"
#include "tests/support/test_folder.h"

namespace nereid::repo {
namespace {

namespace fs = std::filesystem;

const fs::path kRepositories = SourcePath("tests/repo_templates/repositories");

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
    for (const char* backend : {"identity", "tokenizer", "cpu_reference", "bls"}) {
      WriteFile(fs::path(backends_ / backend) / (std::string("libtriton_") + backend + ".so"), "");
    }
  }
  TestFolder backends_;
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
  const TestFolder folder;
  EXPECT_NE(ToText(CheckRepository(folder / "", {})).find("holds no model folder"),
            std::string::npos);
  EXPECT_TRUE(HasError(CheckRepository(folder / "absent", {})));
}

TEST(CheckTest, APathOneFolderTooLowIsOneError) {
  const TestFolder folder;
  WriteFile(fs::path(folder / "models/m/config.pbtxt"), "backend: \"identity\"\n");
  fs::create_directories(folder / "models/m/1");
  EXPECT_EQ(ToText(CheckRepository(folder / "models/m", {})),
            StrCat("error: model repository '", folder / "models/m",
                   "' is the folder of one model: pass '", folder / "models",
                   "', the folder that contains it\n"));
  EXPECT_EQ(CountModels(folder / "models/m"), 0u);
}

TEST(CheckTest, TheDocumentedTablesAreThoseOfTheCode) {
  EXPECT_EQ(ReadFile(SourcePath("docs/llm_tables.md")), EngineTablesPage())
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

TEST(CheckTest, CountsModelsAndFaults) {
  EXPECT_EQ(Summarize(3, {}), "3 models, no faults");
  Finding error;
  Finding warning;
  warning.is_warning = true;
  EXPECT_EQ(Summarize(1, {error, warning, warning}), "1 model, 1 error, 2 warnings");
  EXPECT_EQ(CountModels((kRepositories / "sound").string()), 2u);
}

// ---- GPUs

std::string CheckWithGpus(const std::string& config, std::vector<int32_t> gpus) {
  const TestFolder folder;
  WriteFile(folder / "model/config.pbtxt", config);
  WriteFile(folder / "model/1/.keep", "");
  CheckOptions options;
  options.gpus = std::move(gpus);
  std::string text = ToText(CheckRepository(folder / "", options));
  Replace(text, folder / "", "");
  return text;
}

TEST(CheckTest, NamesGpusOfAnInstanceGroupThatAreNotThere) {
  const std::string config =
      "backend: \"x\"\ninstance_group [\n  { kind: KIND_GPU\n    gpus: [ 0, 9 ] }\n]\n";
  EXPECT_EQ(CheckWithGpus(config, {0, 1}),
            "error: model/config.pbtxt:4:5: instance_group[0].gpus: GPU 9 is not there: this "
            "machine has 0, 1\n");
  EXPECT_EQ(CheckWithGpus(config, {0, 9}), "");
  const std::string any = "backend: \"x\"\ninstance_group [ { kind: KIND_GPU } ]\n";
  EXPECT_NE(CheckWithGpus(any, {}).find("KIND_GPU needs a GPU, but this machine has none"),
            std::string::npos);
  EXPECT_EQ(CheckWithGpus(any, {0}), "");
}

TEST(CheckTest, NamesGpusOfAnEngineThatAreNotThere) {
  const auto check = [](const std::string& backend, const std::vector<int32_t>& gpus) {
    return CheckWithGpus(StrCat("backend: \"", backend,
                                "\"\nparameters { key: \"gpu_device_ids\" value { string_value: "
                                "\"0, 3\" } }\n"),
                         gpus);
  };
  EXPECT_NE(check("gpu_llm", {0})
                .find("error: model/config.pbtxt:2:14: "
                      "parameters[\"gpu_device_ids\"]: GPU 3 is not there"),
            std::string::npos);
  EXPECT_NE(check("gpu_llm", {}).find("backend 'gpu_llm' needs a GPU"), std::string::npos);
  EXPECT_NE(check("tensorrtllm", {}).find("warning: model/config.pbtxt:2:14: "), std::string::npos);
  EXPECT_EQ(check("cpu_reference", {}).find("is not there"), std::string::npos);
  EXPECT_EQ(check("gpu_llm", {0, 3}).find("is not there"), std::string::npos);
}

// ---- checkpoints

// A repository of a tiny checkpoint, whose files a test changes. `new llm` writes it.
class CheckCheckpointTest : public testing::Test {
 protected:
  CheckCheckpointTest() {
    WriteSoundCheckpoint(folder_ / "checkpoint");
    WriteTokenizer(32, "");
    NewLlmOptions options;
    options.checkpoint = folder_ / "checkpoint";
    options.out = folder_ / "repository";
    options.backend = "cpu_reference";
    options.templates = SourcePath("repo_templates/llm");
    const Status status = NewLlm(options);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  std::string Check() const { return ToText(CheckRepository(folder_ / "repository", {})); }
  // A tokenizer with this number of ordinary tokens, and this special token behind them.
  void WriteTokenizer(int num_tokens, const std::string& special) const {
    auto vocab = nlohmann::json::object();
    for (int id = 0; id < num_tokens; ++id) vocab[StrCat("t", id)] = id;
    auto added = nlohmann::json::array();
    if (!special.empty()) {
      added.push_back({{"id", num_tokens}, {"content", special}, {"special", true}});
      for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized"}) {
        added.back()[flag] = false;
      }
    }
    const nlohmann::json tokenizer = {
        {"version", "1.0"},
        {"added_tokens", added},
        {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}}}};
    WriteFile(File("tokenizer.json"), tokenizer.dump());
  }
  std::string File(const std::string& name) const { return folder_ / ("checkpoint/" + name); }

  TestFolder folder_;
};

TEST_F(CheckCheckpointTest, PassesASoundOne) {
  EXPECT_EQ(Check(), "");
}

TEST_F(CheckCheckpointTest, NamesTensorsThatAreMissing) {
  std::string weights = ReadFile(File("model.safetensors"));
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  const size_t at = weights.find(name);
  ASSERT_NE(at, std::string::npos);
  weights[at + 6] = 'k';  // model.kayers, which no architecture has
  WriteFile(File("model.safetensors"), weights);
  const std::string text = Check();
  EXPECT_NE(text.find("parameters[\"gpt_model_path\"]"), std::string::npos) << text;
  EXPECT_NE(text.find("missing (1): '" + name), std::string::npos) << text;
}

TEST_F(CheckCheckpointTest, NamesATokenizerWithMoreTokensThanTheVocabulary) {
  WriteTokenizer(32, "<|extra|>");
  std::string text = Check();
  EXPECT_EQ(text.find("error: "), std::string::npos) << text;
  EXPECT_NE(text.find("the checkpoint's vocab_size is 32: 0 ordinary and 1 special tokens"),
            std::string::npos)
      << text;
  WriteTokenizer(33, "");
  text = Check();
  EXPECT_NE(
      text.find("the tokenizer has ids up to 32, the checkpoint's vocab_size is 32: 1 "
                "ordinary and 0 special tokens have no embedding; put the tokenizer that belongs "
                "to config.json into '"),
      std::string::npos)
      << text;
  for (const char* model : {"preprocessing", "tensorrt_llm", "postprocessing"}) {
    EXPECT_NE(text.find(StrCat("error: ", folder_ / "repository/", model, "/config.pbtxt:")),
              std::string::npos)
        << text;
  }
}

}  // namespace
}  // namespace nereid::repo
