// Valid and broken checkpoint directories, and the error message for each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/backends/llm_core/small_llama.h"
#include "tests/support/test_folder.h"

namespace nereid::llm {
namespace {

using ::testing::HasSubstr;
using testing::kConfig;
using testing::LlamaTensors;
using testing::MessageOf;
using ::testing::Not;
using testing::ReadSpec;
using testing::SafetensorsBytes;
using testing::TestTensor;

TEST(CheckpointTest, OpenConfigNeedsNoWeights) {
  TestFolder folder;
  EXPECT_THAT(Checkpoint::OpenConfig(folder.path()).status().message(),
              HasSubstr("has no config.json"));
  folder.Write("config.json", kConfig);
  EXPECT_FALSE(Checkpoint::Open(folder.path()).ok());
  const auto checkpoint = Checkpoint::OpenConfig(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  const auto model = ReadDecoderSpec(*checkpoint);
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->spec.hidden_size, 4);
  EXPECT_EQ(model->spec.end_ids, TokenIds{3});
  EXPECT_FALSE(ReadDecoder(*checkpoint).ok());
}

TEST(CheckpointTest, ReadsALlamaCheckpoint) {
  TestFolder folder;
  folder.Write("config.json", kConfig);
  folder.Write("model.safetensors", SafetensorsBytes(LlamaTensors()));
  const Result<DecoderSpec> spec = ReadSpec(folder);
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_EQ(spec->num_layers(), 1);
  EXPECT_EQ(spec->head_dim, 2);
  EXPECT_EQ(spec->end_ids, std::vector<int32_t>{3});
}

TEST(CheckpointTest, TakesEndIdsFromTheGenerationConfig) {
  TestFolder folder;
  folder.Write("config.json", kConfig);
  folder.Write("generation_config.json", R"({"eos_token_id":[5,6]})");
  folder.Write("model.safetensors", SafetensorsBytes(LlamaTensors()));
  EXPECT_EQ(ReadSpec(folder)->end_ids, (std::vector<int32_t>{5, 6}));
}

TEST(CheckpointTest, TakesSamplingDefaultsFromTheGenerationConfig) {
  TestFolder folder;
  folder.Write("config.json", kConfig);
  folder.Write("model.safetensors", SafetensorsBytes(LlamaTensors()));
  EXPECT_TRUE(ReadSpec(folder)->sampling_defaults.is_greedy());
  folder.Write("generation_config.json", R"({"temperature":0.6,"top_p":0.9,"do_sample":false})");
  EXPECT_TRUE(ReadSpec(folder)->sampling_defaults.is_greedy());
  folder.Write("generation_config.json",
               R"({"temperature":0.6,"top_p":0.9,"top_k":5,"do_sample":true})");
  const SamplingParams sampling = ReadSpec(folder)->sampling_defaults;
  EXPECT_FLOAT_EQ(sampling.temperature, 0.6f);
  EXPECT_FLOAT_EQ(sampling.top_p, 0.9f);
  EXPECT_EQ(sampling.top_k, 5);
  folder.Write("generation_config.json", R"({"top_p":1.5,"do_sample":true})");
  EXPECT_THAT(MessageOf(folder), HasSubstr("generation_config.json: 'runtime_top_p' is 1.5"));
  folder.Write("generation_config.json", R"({"temperature":"hot","do_sample":true})");
  EXPECT_THAT(MessageOf(folder), HasSubstr("generation_config.json: 'temperature' is \"hot\""));
}

TEST(CheckpointTest, ReadsShards) {
  const std::vector<TestTensor> tensors = LlamaTensors();
  TestFolder folder;
  folder.Write("config.json", kConfig);
  folder.Write("one.safetensors", SafetensorsBytes({tensors.begin(), tensors.begin() + 5}));
  folder.Write("two.safetensors", SafetensorsBytes({tensors.begin() + 5, tensors.end()}));
  std::string map;
  for (size_t i = 0; i < tensors.size(); ++i) {
    map += (i > 0 ? ",\"" : "\"") + tensors[i].name + (i < 5 ? "\":\"one" : "\":\"two") +
           ".safetensors\"";
  }
  folder.Write("model.safetensors.index.json", "{\"weight_map\":{" + map + "}}");
  EXPECT_EQ(MessageOf(folder), "");
}

std::string IndexOf(const std::string& entries) {
  return "{\"weight_map\":{" + entries + "}}";
}

TEST(CheckpointTest, OneMessageNamesAllIndexedFilesOutsideTheFolder) {
  TestFolder folder;
  folder.Write("config.json", kConfig);
  const auto message_for = [&](const std::string& index) {
    folder.Write("model.safetensors.index.json", index);
    return MessageOf(folder);
  };
  for (const char* name : {R"("../../etc/passwd")", R"("/etc/passwd")", R"("sub/one.safetensors")",
                           R"("")", R"(".")", R"("..")", "5", "null"}) {
    EXPECT_THAT(message_for(IndexOf(StrCat(R"("a":)", name))),
                HasSubstr(StrCat("not in a file of this folder (1): 'a' is in ", name)));
  }
  EXPECT_THAT(message_for(IndexOf(R"("a":"/b","c":"one.safetensors","d":7)")),
              HasSubstr(R"(not in a file of this folder (2): 'a' is in "/b", 'd' is in 7)"));
  EXPECT_THAT(message_for(R"({"weight_map":["one.safetensors"]})"),
              HasSubstr("no object 'weight_map'"));
}

TEST(CheckpointTest, OneMessageNamesAllUnreadableShards) {
  TestFolder folder;
  folder.Write("config.json", kConfig);
  folder.Write("one.safetensors", SafetensorsBytes({{"a", {4}}, {"b", {4}}}));
  folder.Write("two.safetensors", SafetensorsBytes({{"b", {4}}}));
  folder.Write("short.safetensors", "x");
  folder.Write("model.safetensors.index.json",
               IndexOf(R"("a":"one.safetensors","b":"two.safetensors","c":"short.safetensors",)"
                       R"("d":"absent.safetensors","e":"absent.safetensors")"));
  const std::string message = MessageOf(folder);
  EXPECT_THAT(message, HasSubstr("files that cannot be read (2): "));
  EXPECT_THAT(message, HasSubstr("absent.safetensors"));
  EXPECT_THAT(message, HasSubstr("short.safetensors': 1 bytes are too few"));
  EXPECT_THAT(message, HasSubstr("in two files (1): 'b'"));
}

TEST(CheckpointTest, ReportsIndexedTensorsThatAreMissingWithTheOtherErrors) {
  std::vector<TestTensor> tensors = LlamaTensors();
  tensors[5].shape = {4, 4};
  tensors.pop_back();
  tensors.push_back({"spare", {4}});
  TestFolder folder;
  folder.Write("config.json", kConfig);
  folder.Write("one.safetensors", SafetensorsBytes(tensors));
  folder.Write("model.safetensors.index.json",
               IndexOf(R"("model.norm.weight":"one.safetensors","lost":"one.safetensors",)"
                       R"("model.layers.0.mlp.down_proj.weight":"one.safetensors")"));
  const std::string message = MessageOf(folder);
  EXPECT_THAT(message, HasSubstr("missing (1): 'model.layers.0.mlp.down_proj.weight' [4, 6]"));
  EXPECT_THAT(message, HasSubstr("of a wrong shape (1): 'model.layers.0.self_attn.k_proj.weight'"));
  EXPECT_THAT(message, HasSubstr("extra (1): 'spare'"));
  EXPECT_THAT(message, HasSubstr("in the index, but not in its file (2): 'lost' in "
                                 "'one.safetensors', 'model.layers.0.mlp.down_proj.weight' in"));
}

TEST(CheckpointTest, DescribesTheExpectedFolderForOtherFolders) {
  TestFolder folder;
  EXPECT_THAT(Checkpoint::Open(folder / "nowhere").status().message(),
              HasSubstr("does not exist: give the path of a Hugging Face checkpoint"));
  EXPECT_THAT(Checkpoint::Open(folder.path()).status().message(),
              HasSubstr("expected config.json and model.safetensors"));
  folder.Write("pytorch_model.bin", "x");
  EXPECT_THAT(Checkpoint::Open(folder.path()).status().message(), HasSubstr("pickled weights"));
  folder.Write("rank0.engine", "x");
  std::filesystem::remove(folder / "pytorch_model.bin");
  EXPECT_THAT(Checkpoint::Open(folder.path()).status().message(), HasSubstr("TensorRT engine"));
}

TEST(CheckpointTest, OneMessageNamesMissingExtraAndMisshapenTensors) {
  std::vector<TestTensor> tensors = LlamaTensors();
  tensors[5].shape = {4, 4};
  tensors[6].dtype = "I32";
  tensors.pop_back();
  tensors.push_back({"model.layers.1.mlp.up_proj.weight", {6, 4}});
  TestFolder folder;
  folder.Write("config.json", kConfig);
  folder.Write("model.safetensors", SafetensorsBytes(tensors));
  const std::string message = MessageOf(folder);
  EXPECT_THAT(message, HasSubstr("missing (1): 'model.layers.0.mlp.down_proj.weight' [4, 6]"));
  EXPECT_THAT(message, HasSubstr("of a wrong shape (1): 'model.layers.0.self_attn.k_proj.weight' "
                                 "expected [2, 4], got [4, 4]"));
  EXPECT_THAT(message, HasSubstr("'model.layers.0.self_attn.v_proj.weight' I32"));
  EXPECT_THAT(message, HasSubstr("extra (1): 'model.layers.1.mlp.up_proj.weight'"));
}

TEST(CheckpointTest, NamesUpTo512TensorsOfAKindAndCountsTheRest) {
  std::vector<TestTensor> tensors = LlamaTensors();
  for (int i = 1000; i < 1512; ++i) tensors.push_back({StrCat("spare.", i), {1}});
  TestFolder folder;
  folder.Write("config.json", kConfig);
  folder.Write("model.safetensors", SafetensorsBytes(tensors));
  const std::string message = MessageOf(folder);
  EXPECT_THAT(message, HasSubstr("extra (512): 'spare.1000', "));
  EXPECT_THAT(message, HasSubstr("'spare.1511'"));
  EXPECT_THAT(message, Not(HasSubstr("more")));
  tensors.push_back({"spare.1512", {1}});
  folder.Write("model.safetensors", SafetensorsBytes(tensors));
  EXPECT_THAT(MessageOf(folder), HasSubstr("'spare.1511' and 1 more"));
}

TEST(CheckpointTest, IgnoresASavedCopyOfATiedHead) {
  std::vector<TestTensor> tensors = LlamaTensors();
  tensors.push_back({"lm_head.weight", {8, 4}});
  TestFolder folder;
  folder.Write("config.json", kConfig);
  folder.Write("model.safetensors", SafetensorsBytes(tensors));
  EXPECT_EQ(MessageOf(folder), "");
}

// The config of such a checkpoint is wrong.
TEST(CheckpointTest, UsesAHeadThatDiffersFromItsTiedEmbedding) {
  std::vector<TestTensor> tensors = LlamaTensors();
  tensors.push_back({"lm_head.weight", {8, 4}});
  std::string bytes = SafetensorsBytes(tensors);
  TestFolder folder;
  folder.Write("config.json", kConfig);
  const auto read = [&]() -> DecoderModel {
    folder.Write("model.safetensors", bytes);
    const Result<Checkpoint> checkpoint = Checkpoint::Open(folder.path());
    Result<DecoderModel> model = ReadDecoder(*checkpoint);
    EXPECT_TRUE(model.ok()) << model.status().message();
    return model.ok() ? std::move(*model) : DecoderModel{};
  };
  const WeightKey head = {kNoLayer, WeightKind::kLmHead, kNoExpert};
  const DecoderModel tied = read();
  EXPECT_TRUE(tied.spec.tied_embeddings);
  EXPECT_FALSE(tied.weights.contains(head));
  bytes.back() = 1;  // of the head, the last tensor
  const DecoderModel untied = read();
  EXPECT_FALSE(untied.spec.tied_embeddings);
  ASSERT_TRUE(untied.weights.contains(head));
  EXPECT_EQ(untied.weights.at(head).source.tensor, "lm_head.weight");
}

TEST(CheckpointTest, UsesADifferentHeadOfADecoderWithinALargerModel) {
  const auto head_of = [](const std::string& prefix, const std::string& head) -> std::string {
    std::vector<TestTensor> tensors = {{prefix + "model.norm.weight", {4}},
                                       {prefix + "model.embed_tokens.weight", {8, 4}}};
    const std::string layer = prefix + "model.layers.0.";
    for (const char* norm : {"input_layernorm", "post_attention_layernorm",
                             "pre_feedforward_layernorm", "post_feedforward_layernorm"}) {
      tensors.push_back({StrCat(layer, norm, ".weight"), {4}});
    }
    for (const char* norm : {"q_norm", "k_norm"}) {
      tensors.push_back({StrCat(layer, "self_attn.", norm, ".weight"), {2}});
    }
    for (const TestTensor& tensor : LlamaTensors()) {
      if (tensor.name.ends_with("_proj.weight")) {
        tensors.push_back({prefix + tensor.name, tensor.shape});
      }
    }
    tensors.push_back({head, {8, 4}});
    std::string bytes = SafetensorsBytes(tensors);
    bytes.back() = 1;  // of the head
    TestFolder folder;
    folder.Write("config.json", R"({"model_type":"gemma3","text_config":{"vocab_size":8,
      "hidden_size":4,"intermediate_size":6,"num_attention_heads":2,"num_key_value_heads":1,
      "head_dim":2,"num_hidden_layers":1,"max_position_embeddings":32}})");
    folder.Write("model.safetensors", bytes);
    const Result<Checkpoint> checkpoint = Checkpoint::Open(folder.path());
    const Result<DecoderModel> model = ReadDecoder(*checkpoint);
    EXPECT_TRUE(model.ok()) << model.status().message();
    if (!model.ok() || model->spec.tied_embeddings) return "";
    const ResolvedWeight& weight = model->weights.at({kNoLayer, WeightKind::kLmHead, kNoExpert});
    EXPECT_EQ(weight.tensor.bytes.back(), 1);
    return weight.source.tensor;
  };
  const std::string prefix = "language_model.";
  EXPECT_EQ(head_of(prefix, prefix + "lm_head.weight"), prefix + "lm_head.weight");
  EXPECT_EQ(head_of(prefix, "lm_head.weight"), "lm_head.weight");
  EXPECT_EQ(head_of("", "lm_head.weight"), "lm_head.weight");
}

TEST(CheckpointTest, AHeadWithoutEmbeddingIsAlsoTheTiedEmbedding) {
  std::vector<TestTensor> tensors = LlamaTensors();
  tensors[0].name = "lm_head.weight";
  TestFolder folder;
  folder.Write("config.json", kConfig);
  folder.Write("model.safetensors", SafetensorsBytes(tensors));
  const Result<DecoderSpec> spec = ReadSpec(folder);
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_TRUE(spec->tied_embeddings);
  tensors[0].shape = {8, 2};
  folder.Write("model.safetensors", SafetensorsBytes(tensors));
  EXPECT_THAT(MessageOf(folder), HasSubstr("missing (1): 'model.embed_tokens.weight' [8, 4]"));
}

}  // namespace
}  // namespace nereid::llm
