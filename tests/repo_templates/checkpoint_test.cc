#include "repo_templates/tool/checkpoint.h"

#include <gtest/gtest.h>

#include <regex>

#include "tests/repo_templates/small_checkpoint.h"
#include "tests/support/source_path.h"
#include "tests/support/test_folder.h"

namespace nereid::repo {
namespace {

namespace fs = std::filesystem;

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() { WriteCheckpoint(path_); }

  // The error message, with the folder's path replaced by DIR.
  std::string Failure() {
    std::string message = InspectCheckpoint(path_).status().message();
    const size_t at = message.find(path_);
    if (at != std::string::npos) message.replace(at, path_.size(), "DIR");
    return message;
  }

  TestFolder folder_;
  const std::string path_ = folder_ / "checkpoint";
};

TEST_F(CheckpointTest, ReadsArchitectureAndLengthsAndListsTheFiles) {
  const auto summary = InspectCheckpoint(path_);
  ASSERT_TRUE(summary.ok()) << summary.status().message();
  EXPECT_EQ(summary->architecture, "LlamaForCausalLM");
  EXPECT_EQ(summary->context_length, 128);
  EXPECT_EQ(summary->vocabulary_size, 32);
  EXPECT_TRUE(summary->sampling_defaults.empty());
  EXPECT_EQ(summary->tokenizer_file, "tokenizer.json");
  EXPECT_EQ(summary->files, (std::vector<std::string>{"config.json", "generation_config.json",
                                                      "model.safetensors", "tokenizer.json"}));
}

TEST_F(CheckpointTest, CountsTheWeightsAndNamesTheirType) {
  const auto summary = InspectCheckpoint(path_);
  EXPECT_EQ(summary->weight_bytes, 4u);
  EXPECT_EQ(summary->num_parameters, 4u);
  EXPECT_EQ(summary->data_type, "U8");
  WriteFile(fs::path(path_) / "config.json",
            R"({"model_type":"llama","quantization_config":{"quant_method":"awq"}})");
  const auto quantized = InspectCheckpoint(path_);
  EXPECT_EQ(quantized->num_parameters, 0u);
  EXPECT_EQ(quantized->data_type, "awq");
}

TEST_F(CheckpointTest, KnowsWhetherThereIsAChatTemplate) {
  EXPECT_FALSE(InspectCheckpoint(path_)->has_chat_template);
  WriteFile(fs::path(path_) / "tokenizer_config.json", R"({"chat_template":null})");
  EXPECT_FALSE(InspectCheckpoint(path_)->has_chat_template);
  WriteFile(fs::path(path_) / "tokenizer_config.json", R"({"chat_template":"x"})");
  EXPECT_TRUE(InspectCheckpoint(path_)->has_chat_template);
  fs::remove(fs::path(path_) / "tokenizer_config.json");
  WriteFile(fs::path(path_) / "chat_template.jinja", "x");
  EXPECT_TRUE(InspectCheckpoint(path_)->has_chat_template);
}

TEST_F(CheckpointTest, SaysWhatAFolderWithoutACheckpointHas) {
  fs::remove(fs::path(path_) / "config.json");
  EXPECT_EQ(Failure(),
            "'DIR/config.json': is missing; found: generation_config.json, model.safetensors, "
            "tokenizer.json");
}

TEST_F(CheckpointTest, NamesAnUnknownArchitecture) {
  WriteFile(fs::path(path_) / "config.json", R"({"model_type":"lama"})");
  EXPECT_EQ(Failure().find("'DIR/config.json': model_type 'lama' is not supported (did you mean "
                           "'llama'?); known: gemma2"),
            0u)
      << Failure();
}

TEST_F(CheckpointTest, RefusesQuantisationsThatTheEngineDoesNotKnow) {
  WriteFile(fs::path(path_) / "config.json",
            R"({"model_type":"llama","quantization_config":{"quant_method":"hqq"}})");
  EXPECT_NE(Failure().find("'quantization_config': quantisation 'hqq' is not supported"),
            std::string::npos)
      << Failure();
  WriteFile(fs::path(path_) / "config.json",
            R"({"model_type":"llama","quantization_config":{"quant_method":"awq"}})");
  EXPECT_EQ(Failure().find("'quantization_config'"), std::string::npos) << Failure();
}

TEST_F(CheckpointTest, NamesMissingFiles) {
  fs::remove(fs::path(path_) / "tokenizer.json");
  EXPECT_EQ(Failure(),
            "'DIR': has neither tokenizer.json nor tokenizer.model, spiece.model, tekken.json, "
            "tiktoken.model or a .tiktoken file");
  WriteFile(fs::path(path_) / "pytorch_model.bin", "x");
  fs::remove(fs::path(path_) / "model.safetensors");
  EXPECT_EQ(Failure(),
            "'DIR': has neither model.safetensors nor model.safetensors.index.json "
            "(pytorch_model.bin is not read: save it as safetensors)");
  fs::remove(fs::path(path_) / "config.json");
  EXPECT_EQ(Failure(),
            "'DIR/config.json': is missing; found: generation_config.json, pytorch_model.bin");
  fs::remove_all(path_);
  EXPECT_EQ(Failure(), "'DIR': no such checkpoint directory");
}

TEST_F(CheckpointTest, TakesEveryFormOfTokenizerWithItsSideFiles) {
  fs::remove(fs::path(path_) / "tokenizer.json");
  WriteFile(fs::path(path_) / "added_tokens.json", "{}");
  for (const char* name : {"qwen.tiktoken", "tiktoken.model", "tekken.json", "spiece.model"}) {
    WriteFile(fs::path(path_) / name, "x");
    const auto summary = InspectCheckpoint(path_);
    ASSERT_TRUE(summary.ok()) << summary.status().message();
    EXPECT_EQ(summary->tokenizer_file, name);
    EXPECT_EQ(summary->files,
              (std::vector<std::string>{"config.json", "generation_config.json",
                                        "added_tokens.json", "model.safetensors", name}));
  }
}

TEST_F(CheckpointTest, TakesATokenizersFileForItsFolder) {
  EXPECT_TRUE(FindTokenizer(path_ + "/tokenizer.json").ok());
  EXPECT_FALSE(FindTokenizer(path_ + "/absent.json").ok());
}

TEST_F(CheckpointTest, ReadsTensorRtLlmCheckpointsOfSeveralRanks) {
  fs::remove(fs::path(path_) / "model.safetensors");
  WriteFile(fs::path(path_) / "config.json",
            R"({"architecture":"LlamaForCausalLM","vocab_size":32,"max_position_embeddings":128,
                "mapping":{"world_size":2,"tp_size":2,"pp_size":1}})");
  WriteFile(fs::path(path_) / "rank0.safetensors", SafetensorsBytes(4, 4));
  EXPECT_EQ(Failure(), "'DIR/rank1.safetensors': cannot be opened");
  WriteFile(fs::path(path_) / "rank1.safetensors", SafetensorsBytes(4, 4));
  const auto summary = InspectCheckpoint(path_);
  ASSERT_TRUE(summary.ok()) << summary.status().message();
  EXPECT_EQ(summary->architecture, "LlamaForCausalLM");
  EXPECT_EQ(summary->files,
            (std::vector<std::string>{"config.json", "generation_config.json", "rank0.safetensors",
                                      "rank1.safetensors", "tokenizer.json"}));
}

TEST_F(CheckpointTest, SaysWhatToGiveInsteadOfATensorRtEngine) {
  fs::remove(fs::path(path_) / "model.safetensors");
  WriteFile(fs::path(path_) / "rank0.engine", "x");
  EXPECT_EQ(Failure().find("'DIR': holds a TensorRT engine ('rank0.engine'), which only TensorRT "
                           "runs; give the Hugging Face checkpoint directory"),
            0u)
      << Failure();
}

TEST_F(CheckpointTest, NamesAShardThatTheIndexListsAndIsNotThere) {
  WriteFile(fs::path(path_) / "model.safetensors.index.json",
            R"({"weight_map":{"a":"model.safetensors","b":"model-2.safetensors"}})");
  EXPECT_EQ(Failure(), "'DIR/model-2.safetensors': cannot be opened");
}

TEST_F(CheckpointTest, DetectsTruncatedWeights) {
  WriteFile(fs::path(path_) / "model.safetensors", SafetensorsBytes(100, 30));
  EXPECT_NE(Failure().find("'DIR/model.safetensors': is cut off: its header declares"),
            std::string::npos)
      << Failure();
  WriteFile(fs::path(path_) / "model.safetensors", "short");
  EXPECT_NE(Failure().find("expected a safetensors file, got 5 bytes"), std::string::npos);
  WriteFile(fs::path(path_) / "model.safetensors", std::string(64, '\x7f'));
  EXPECT_NE(Failure().find("is cut off: header of"), std::string::npos);
}

// The tool does not link the engine. This test keeps its list of architectures equal to the
// engine's.
TEST(SupportedModelTypesTest, AreThoseOfTheEngine) {
  const std::string table = ReadFile(SourcePath("backends/llm_core/model/architecture.cc"));
  const std::regex entry("\\{\"([a-z0-9_]+)\", \"[A-Za-z0-9]+\",\\s+Build");
  std::vector<std::string> types;
  for (std::sregex_iterator it(table.begin(), table.end(), entry), end; it != end; ++it) {
    types.push_back((*it)[1]);
  }
  EXPECT_EQ(types, SupportedModelTypes());
}

}  // namespace
}  // namespace nereid::repo
