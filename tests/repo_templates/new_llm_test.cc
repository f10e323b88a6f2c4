#include "repo_templates/tool/new_repository.h"

#include <gtest/gtest.h>

#include <fstream>

#include "host/core/config/config_loader.h"
#include "repo_templates/tool/check.h"
#include "tests/repo_templates/small_checkpoint.h"
#include "tests/support/source_path.h"
#include "tests/support/test_folder.h"

namespace nereid::repo {
namespace {

namespace fs = std::filesystem;

class NewLlmTest : public testing::Test {
 protected:
  NewLlmTest() {
    options_.checkpoint = folder_ / "checkpoint";
    options_.out = folder_ / "repository";
    options_.templates = SourcePath("repo_templates/llm");
    WriteSoundCheckpoint(options_.checkpoint);
  }

  core::ModelConfig Config(const std::string& model) {
    core::config::ConfigSource folder;
    folder.name = model;
    folder.path = (fs::path(options_.out) / model).string();
    return core::config::ReadModelConfig(folder).value();
  }

  TestFolder folder_;
  NewLlmOptions options_;
};

TEST_F(NewLlmTest, WritesTheParserOfAnswers) {
  options_.chat_parser = "glm";
  ASSERT_TRUE(NewLlm(options_).ok());
  std::ifstream file(fs::path(options_.out) / "postprocessing/config.pbtxt");
  const std::string config{std::istreambuf_iterator<char>(file), {}};
  EXPECT_NE(config.find("\"chat_parser\"         value { string_value: \"glm\" }"),
            std::string::npos);
}

TEST_F(NewLlmTest, UsesAnotherTokenizerInPlaceOfThatOfTheCheckpoint) {
  const fs::path checkpoint = options_.checkpoint;
  fs::create_directories(folder_ / "tokenizer");
  fs::rename(checkpoint / "tokenizer.json", fs::path(folder_ / "tokenizer") / "tokenizer.json");
  EXPECT_FALSE(NewLlm(options_).ok());
  options_.tokenizer = folder_ / "tokenizer";
  for (const auto files : {NewLlmOptions::Files::kReference, NewLlmOptions::Files::kCopy}) {
    fs::remove_all(options_.out);
    options_.files = files;
    ASSERT_TRUE(NewLlm(options_).ok());
    EXPECT_EQ(ToText(CheckRepository(options_.out, {})), "");
    for (const char* model : {"preprocessing", "tensorrt_llm", "postprocessing"}) {
      EXPECT_EQ(Config(model).parameters.at("tokenizer_dir"), options_.tokenizer) << model;
    }
  }
}

TEST_F(NewLlmTest, CreatesARepositoryWithoutErrors) {
  ASSERT_TRUE(NewLlm(options_).ok());
  EXPECT_EQ(ToText(CheckRepository(options_.out, {})), "");
  for (const char* model : {"ensemble", "preprocessing", "tensorrt_llm", "postprocessing"}) {
    EXPECT_TRUE(fs::is_directory(fs::path(options_.out) / model / "1")) << model;
  }
  const core::ModelConfig engine = Config("tensorrt_llm");
  EXPECT_EQ(engine.backend, "tensorrtllm");
  EXPECT_FALSE(engine.decoupled);
  EXPECT_EQ(engine.max_batch_size, 64);
  EXPECT_EQ(engine.parameters.at("gpt_model_path"), fs::canonical(options_.checkpoint));
}

TEST_F(NewLlmTest, AppliesItsOptions) {
  options_.backend = "cpu_reference";
  options_.decoupled = true;
  options_.max_batch_size = 3;
  options_.max_queue_size = 5;
  ASSERT_TRUE(NewLlm(options_).ok());
  const core::ModelConfig engine = Config("tensorrt_llm");
  EXPECT_EQ(engine.backend, "cpu_reference");
  EXPECT_TRUE(engine.decoupled);
  EXPECT_EQ(engine.max_batch_size, 3);
  EXPECT_EQ(engine.dynamic_batching->default_queue_policy.max_queue_size, 5u);
  EXPECT_EQ(Config("ensemble").max_batch_size, 3);
}

TEST_F(NewLlmTest, TellsTheSamplingDefaultsOfTheCheckpoint) {
  WriteFile(fs::path(options_.checkpoint) / "generation_config.json",
            R"({"eos_token_id":2,"temperature":0.6,"top_k":20,"top_p":null,"min_p":"x"})");
  ASSERT_TRUE(NewLlm(options_).ok());
  const core::ModelConfig ensemble = Config("ensemble");
  EXPECT_EQ(ensemble.parameters.at("default_temperature"), "0.6");
  EXPECT_EQ(ensemble.parameters.at("default_top_k"), "20");
  for (const char* key : {"default_top_p", "default_min_p", "default_repetition_penalty"}) {
    EXPECT_EQ(ensemble.parameters.at(key), "") << key;
  }
}

TEST_F(NewLlmTest, CopiesTheCheckpointIntoARepositoryThatCanBeMoved) {
  options_.files = NewLlmOptions::Files::kCopy;
  ASSERT_TRUE(NewLlm(options_).ok());
  fs::remove_all(options_.checkpoint);
  const std::string moved = folder_ / "moved";
  fs::rename(options_.out, moved);
  EXPECT_EQ(ToText(CheckRepository(moved, {})), "");
  EXPECT_FALSE(fs::is_symlink(fs::path(moved) / "tensorrt_llm/1/model.safetensors"));
}

TEST_F(NewLlmTest, LinksTheCheckpoint) {
  options_.files = NewLlmOptions::Files::kLink;
  ASSERT_TRUE(NewLlm(options_).ok());
  EXPECT_EQ(fs::read_symlink(fs::path(options_.out) / "tensorrt_llm/1/model.safetensors"),
            fs::canonical(options_.checkpoint) / "model.safetensors");
  EXPECT_EQ(ToText(CheckRepository(options_.out, {})), "");
}

TEST_F(NewLlmTest, NamesTheModelsAfterTheOneThatClientsCall) {
  options_.model_name = "Llama-3.1_8B";
  options_.engine_parameters = {{"max_seq_len", "96"}};
  ASSERT_TRUE(NewLlm(options_).ok());
  EXPECT_EQ(ToText(CheckRepository(options_.out, {})), "");
  const LlmModelNames names = NamesOfLlmModels("Llama-3.1_8B");
  EXPECT_EQ(names.ensemble, "Llama-3.1_8B");
  const core::ModelConfig ensemble = Config(names.ensemble);
  EXPECT_EQ(ensemble.ensemble_scheduling->steps.at(1).model_name, names.engine);
  EXPECT_EQ(Config(names.engine).parameters.at("max_seq_len"), "96");
  EXPECT_FALSE(Config(names.preprocessing).parameters.contains("max_seq_len"));
}

TEST_F(NewLlmTest, RefusesNamesThatCannotBeModels) {
  for (const char* name : {".hidden", "-x", "a/b", "a b", "a\"b"}) {
    options_.model_name = name;
    EXPECT_EQ(NewLlm(options_).code(), StatusCode::kInvalidArg) << name;
  }
  EXPECT_EQ(CheckModelName("").code(), StatusCode::kInvalidArg);
  EXPECT_EQ(CheckModelName(std::string(129, 'a')).code(), StatusCode::kInvalidArg);
  EXPECT_FALSE(fs::exists(options_.out));
}

TEST_F(NewLlmTest, PutsAnotherChatTemplateBesideTheTokenizer) {
  WriteFile(fs::path(options_.checkpoint) / "chat_template.jinja", "theirs");
  options_.chat_template = folder_ / "own.jinja";
  WriteFile(options_.chat_template, "ours");
  EXPECT_EQ(NewLlm(options_).code(), StatusCode::kInvalidArg);  // by reference
  options_.files = NewLlmOptions::Files::kLink;
  ASSERT_TRUE(NewLlm(options_).ok());
  const fs::path files = fs::path(options_.out) / "tensorrt_llm/1";
  EXPECT_EQ(ReadFile(files / "chat_template.jinja"), "ours");
  EXPECT_TRUE(fs::is_symlink(files / "tokenizer.json"));
  EXPECT_EQ(ReadFile(fs::path(options_.checkpoint) / "chat_template.jinja"), "theirs");
}

TEST_F(NewLlmTest, LeavesNothingBehindWhenItFails) {
  options_.templates = folder_ / "templates";
  WriteFile(fs::path(options_.templates) / "ensemble/config.pbtxt", "a: 1\nb: ${nobody_knows}\n");
  const Status status = NewLlm(options_);
  EXPECT_NE(status.message().find("ensemble/config.pbtxt:2: no value for ${nobody_knows}"),
            std::string::npos)
      << status.message();
  EXPECT_FALSE(fs::exists(options_.out));
}

TEST_F(NewLlmTest, DoesNotWriteIntoAFolderThatIsInUse) {
  WriteFile(fs::path(options_.out) / "mine", "x");
  EXPECT_EQ(NewLlm(options_).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(ReadFile(fs::path(options_.out) / "mine"), "x");
}

TEST_F(NewLlmTest, RejectsInvalidOptions) {
  options_.backend = "vllm";
  EXPECT_EQ(NewLlm(options_).message(),
            "--backend: expected auto, gpu_llm or cpu_reference, got 'vllm'");
  options_.backend = "auto";
  options_.max_batch_size = 0;
  EXPECT_EQ(NewLlm(options_).message(), "--max-batch-size: expected 1 or more, got 0");
}

TEST(TemplateTest, FillsEveryPlaceholderAndEscapesQuotes) {
  const auto filled = FillTemplate("a: ${n}\nb: \"${s}\" ${n}", {{"n", "4"}, {"s", "x\"y\\"}}, "t");
  ASSERT_TRUE(filled.ok());
  EXPECT_EQ(*filled, "a: 4\nb: \"x\\\"y\\\\\" 4");
}

TEST(TemplateTest, NamesThePlaceholderWithoutAValue) {
  EXPECT_EQ(FillTemplate("a\nb: ${x}", {}, "t").status().message(), "t:2: no value for ${x}");
  EXPECT_EQ(FillTemplate("b: ${x", {}, "t").status().message(), "t:1: '${' without '}'");
}

}  // namespace
}  // namespace nereid::repo
