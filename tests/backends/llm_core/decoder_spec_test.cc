// Checkpoint directories, whole and broken: what the load says about each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint_files.h"
#include "llm_core/model/architecture.h"

namespace nereid::llm {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::SafetensorsBytes;
using testing::TempFolder;
using testing::TestTensor;

constexpr const char* kConfig = R"({"model_type":"llama","vocab_size":8,"hidden_size":4,
  "intermediate_size":6,"num_attention_heads":2,"num_key_value_heads":1,"num_hidden_layers":1,
  "max_position_embeddings":32,"tie_word_embeddings":true,"eos_token_id":3})";

std::vector<TestTensor> LlamaTensors() {
  return {{"model.embed_tokens.weight", {8, 4}},
          {"model.norm.weight", {4}},
          {"model.layers.0.input_layernorm.weight", {4}},
          {"model.layers.0.post_attention_layernorm.weight", {4}},
          {"model.layers.0.self_attn.q_proj.weight", {4, 4}},
          {"model.layers.0.self_attn.k_proj.weight", {2, 4}},
          {"model.layers.0.self_attn.v_proj.weight", {2, 4}},
          {"model.layers.0.self_attn.o_proj.weight", {4, 4}},
          {"model.layers.0.mlp.gate_proj.weight", {6, 4}},
          {"model.layers.0.mlp.up_proj.weight", {6, 4}},
          {"model.layers.0.mlp.down_proj.weight", {4, 6}}};
}

Result<DecoderSpec> ReadSpec(const TempFolder& folder) {
  NEREID_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(folder.path()));
  NEREID_ASSIGN_OR_RETURN(const DecoderModel model, ReadDecoder(checkpoint));
  return model.spec;
}

std::string MessageOf(const TempFolder& folder) {
  const Result<DecoderSpec> spec = ReadSpec(folder);
  return spec.ok() ? "" : spec.status().message();
}

std::string MessageForConfig(const std::string& config) {
  TempFolder folder;
  folder.Write("config.json", config);
  folder.Write("model.safetensors", SafetensorsBytes(LlamaTensors()));
  return MessageOf(folder);
}

std::string WithKey(const std::string& pair) {
  std::string config = kConfig;
  return config.substr(0, config.rfind('}')) + "," + pair + "}";
}

TEST(CheckpointTest, AShapeNeedsNoWeights) {
  TempFolder folder;
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

TEST(CheckpointTest, ReadsAWholeLlama) {
  TempFolder folder;
  folder.Write("config.json", kConfig);
  folder.Write("model.safetensors", SafetensorsBytes(LlamaTensors()));
  const Result<DecoderSpec> spec = ReadSpec(folder);
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_EQ(spec->num_layers(), 1);
  EXPECT_EQ(spec->head_dim, 2);
  EXPECT_EQ(spec->end_ids, std::vector<int32_t>{3});
}

TEST(CheckpointTest, TakesEndIdsFromTheGenerationConfig) {
  TempFolder folder;
  folder.Write("config.json", kConfig);
  folder.Write("generation_config.json", R"({"eos_token_id":[5,6]})");
  folder.Write("model.safetensors", SafetensorsBytes(LlamaTensors()));
  EXPECT_EQ(ReadSpec(folder)->end_ids, (std::vector<int32_t>{5, 6}));
}

TEST(CheckpointTest, TakesSamplingDefaultsFromTheGenerationConfig) {
  TempFolder folder;
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

TEST(DecoderSpecTest, LongRopeServesShortContextsWithTheShortFactors) {
  TempFolder folder;
  folder.Write("config.json",
               WithKey(R"("original_max_position_embeddings":8,"rope_scaling":{"type":"longrope",)"
                       R"("short_factor":[2.0],"long_factor":[4.0]})"));
  folder.Write("model.safetensors", SafetensorsBytes(LlamaTensors()));
  DecoderSpec spec = *ReadSpec(folder);
  EXPECT_FLOAT_EQ(spec.ropes[0].inv_freq[0], 0.25f);     // of 1.0
  EXPECT_FLOAT_EQ(spec.ropes[0].magnitude, 1.2909944f);  // sqrt(1 + log(32 / 8) / log(8))
  LimitPositions(spec, 9);
  EXPECT_FLOAT_EQ(spec.ropes[0].inv_freq[0], 0.25f);
  LimitPositions(spec, 8);
  EXPECT_FLOAT_EQ(spec.ropes[0].inv_freq[0], 0.5f);
  EXPECT_EQ(spec.max_positions, 8);
  folder.Write("config.json",
               WithKey(R"("rope_scaling":{"type":"longrope","short_factor":[2.0]})"));
  EXPECT_THAT(MessageOf(folder), HasSubstr("'long_factor' has 0 factors, expected 1"));
}

// Of one pair of dimensions, whose wave is 2 pi long.
RopeSpec RopeOf(const std::string& pairs) {
  TempFolder folder;
  folder.Write("config.json", WithKey(pairs));
  folder.Write("model.safetensors", SafetensorsBytes(LlamaTensors()));
  const Result<DecoderSpec> spec = ReadSpec(folder);
  EXPECT_TRUE(spec.ok()) << spec.status().message();
  return spec.ok() ? spec->ropes[0] : RopeSpec{};
}

TEST(DecoderSpecTest, TheConfigsOwnContextCountsBeforeItsScalings) {
  const std::string llama3 =
      R"("rope_scaling":{"rope_type":"llama3","factor":8,"high_freq_factor":8)";
  // Between the short waves, of less than context / 8, and the long ones, of more than context.
  EXPECT_FLOAT_EQ(RopeOf(llama3 + "}").inv_freq[0], 0.63661977f);  // of 32 positions
  const std::string scaled = llama3 + R"(,"original_max_position_embeddings":64})";
  EXPECT_FLOAT_EQ(RopeOf(scaled).inv_freq[0], 1.0f);
  EXPECT_FLOAT_EQ(RopeOf(R"("original_max_position_embeddings":32,)" + scaled).inv_freq[0],
                  0.63661977f);
  const std::string yarn = R"("rope_scaling":{"rope_type":"yarn","beta_fast":0,)"
                           R"("original_max_position_embeddings":8})";
  EXPECT_FLOAT_EQ(RopeOf(yarn).magnitude, 1.1386294f);  // 1 + 0.1 log(32 / 8)
  EXPECT_FLOAT_EQ(RopeOf(R"("original_max_position_embeddings":16,)" + yarn).magnitude, 1.0693147f);
}

int32_t LimitOf(const std::string& pairs, int32_t asked) {
  TempFolder folder;
  folder.Write("config.json", WithKey(pairs));
  folder.Write("model.safetensors", SafetensorsBytes(LlamaTensors()));
  Result<DecoderSpec> spec = ReadSpec(folder);
  EXPECT_TRUE(spec.ok()) << spec.status().message();
  LimitPositions(*spec, asked);
  return spec->max_positions;
}

TEST(DecoderSpecTest, TheLimitOfAStretchedRopeMayBeRaisedByItsFactor) {
  for (const char* kind : {"linear", "dynamic", "yarn"}) {
    const std::string pairs =
        StrCat(R"("rope_scaling":{"rope_type":")", kind, R"(","factor":2.5})");
    EXPECT_EQ(LimitOf(pairs, 0), 32) << kind;
    EXPECT_EQ(LimitOf(pairs, 20), 20) << kind;
    EXPECT_EQ(LimitOf(pairs, 50), 50) << kind;
    EXPECT_EQ(LimitOf(pairs, 1000), 80) << kind;
  }
  const std::string of_eight = R"("rope_scaling":{"rope_type":"yarn","factor":3,)"
                               R"("original_max_position_embeddings":16})";
  EXPECT_EQ(LimitOf(of_eight, 1000), 48);  // from what it was trained on
  EXPECT_EQ(LimitOf(R"("rope_theta":500)", 1000), 32);
  EXPECT_EQ(LimitOf(R"("rope_scaling":{"rope_type":"llama3","factor":8,)"
                    R"("original_max_position_embeddings":16})",
                    1000),
            32);
}

TEST(DecoderSpecTest, ADynamicRopeIsAPlainOneWhereNothingIsLongerThanItsTraining) {
  TempFolder folder;
  folder.Write("config.json",
               WithKey(R"("rope_scaling":{"rope_type":"dynamic","factor":2},"head_dim":4)"));
  std::vector<TestTensor> tensors = LlamaTensors();
  tensors[4].shape = {8, 4};
  tensors[5].shape = tensors[6].shape = {4, 4};
  tensors[7].shape = {4, 8};
  folder.Write("model.safetensors", SafetensorsBytes(tensors));
  Result<DecoderSpec> spec = ReadSpec(folder);
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  DecoderSpec plain = *spec;
  LimitPositions(plain, 0);
  EXPECT_EQ(plain.ropes[0].trained_positions, 0);
  LimitPositions(*spec, 64);
  ASSERT_EQ(spec->ropes[0].trained_positions, 32);
  // The second pair of four: theta' ^ -1/2, theta' = 10000 (2 n / 32 - 1) ^ 2.
  float inv_freq[2];
  DynamicFrequencies(spec->ropes[0], 48, inv_freq);
  EXPECT_FLOAT_EQ(inv_freq[0], 1.0f);
  EXPECT_FLOAT_EQ(inv_freq[1], 0.01f / 2.0f);
}

// What `transformers` fills in, for 64 heads over 256 columns.
struct FamilyDefaults {
  const char* type;
  int32_t num_kv_heads, head_dim, max_positions;
};

void PrintTo(const FamilyDefaults& family, std::ostream* out) {
  *out << family.type;
}

class FamilyDefaultsTest : public ::testing::TestWithParam<FamilyDefaults> {};

DecoderSpec SpecOf(const std::string& config) {
  TempFolder folder;
  folder.Write("config.json", config);
  const auto checkpoint = Checkpoint::OpenConfig(folder.path());
  const auto model = ReadDecoderSpec(*checkpoint);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? model->spec : DecoderSpec{};
}

TEST_P(FamilyDefaultsTest, WhatAConfigLeavesOutIsItsFamilys) {
  const std::string config =
      StrCat(R"({"model_type":")", GetParam().type, R"(","vocab_size":8,"hidden_size":256,)",
             R"("intermediate_size":64,"num_attention_heads":64,"num_hidden_layers":1,)",
             R"("num_local_experts":2,"num_experts":2,"num_experts_per_tok":1,)",
             R"("moe_intermediate_size":16,)");
  const DecoderSpec spec = SpecOf(config + R"("rope_theta":500})");
  EXPECT_EQ(spec.num_kv_heads, GetParam().num_kv_heads);
  EXPECT_EQ(spec.head_dim, GetParam().head_dim);
  EXPECT_EQ(spec.max_positions, GetParam().max_positions);
  EXPECT_EQ(SpecOf(config + R"("num_key_value_heads":null})").num_kv_heads, 64);
  // What a rope was trained on follows.
  const DecoderSpec dynamic = SpecOf(config + R"("head_dim":8,"rope_scaling":{)"
                                              R"("rope_type":"dynamic","factor":2}})");
  EXPECT_EQ(dynamic.head_dim, 8);
  EXPECT_EQ(dynamic.ropes[0].trained_positions, GetParam().max_positions);
  EXPECT_EQ(dynamic.extended_positions, 2 * GetParam().max_positions);
}

INSTANTIATE_TEST_SUITE_P(, FamilyDefaultsTest,
                         ::testing::Values(FamilyDefaults{"llama", 64, 4, 2048},
                                           FamilyDefaults{"mistral", 8, 4, 131072},
                                           FamilyDefaults{"mixtral", 8, 4, 131072},
                                           FamilyDefaults{"qwen2", 32, 4, 32768},
                                           FamilyDefaults{"qwen3", 32, 128, 32768},
                                           FamilyDefaults{"qwen3_moe", 4, 4, 32768},
                                           FamilyDefaults{"phi3", 64, 4, 4096},
                                           FamilyDefaults{"starcoder2", 2, 4, 4096},
                                           FamilyDefaults{"gemma2", 4, 256, 8192},
                                           FamilyDefaults{"gemma3_text", 4, 256, 131072}));

TEST(DecoderSpecTest, APhi3WasTrainedOnItsFamilysPositionsUnlessItSaysOthers) {
  const auto spec_of = [](const std::string& pairs) {
    return SpecOf(StrCat(
        R"({"model_type":"phi3","vocab_size":8,"hidden_size":64,"intermediate_size":64,)",
        R"("num_attention_heads":16,"num_hidden_layers":1,"max_position_embeddings":131072,)",
        pairs, R"("rope_scaling":{"type":"longrope","short_factor":[1.0,1.0],)",
        R"("long_factor":[2.0,4.0]}})"));
  };
  EXPECT_EQ(spec_of("").ropes[0].short_positions, 4096);
  EXPECT_FLOAT_EQ(spec_of("").ropes[0].magnitude, 1.1902381f);  // sqrt(1 + log(32) / log(4096))
  EXPECT_EQ(spec_of(R"("original_max_position_embeddings":8192,)").ropes[0].short_positions, 8192);
}

TEST(DecoderSpecTest, QwensWindowIsTheFamilysUnlessItSaysAnother) {
  const auto windows = [](const char* type, const std::string& pairs) {
    const DecoderSpec spec =
        SpecOf(StrCat(R"({"model_type":")", type, R"(","vocab_size":8,"hidden_size":64,)",
                      R"("intermediate_size":64,"num_attention_heads":16,"num_hidden_layers":2,)",
                      R"("num_key_value_heads":4,"num_experts":4,"num_experts_per_tok":2,)",
                      R"("moe_intermediate_size":8)", pairs, "}"));
    std::vector<int32_t> found;
    for (const LayerSpec& layer : spec.layers) found.push_back(layer.sliding_window);
    return found;
  };
  using Windows = std::vector<int32_t>;
  const std::string slides = R"(,"use_sliding_window":true)";
  for (const char* type : {"qwen2", "qwen3"}) {
    EXPECT_EQ(windows(type, R"(,"sliding_window":7,"max_window_layers":0)"), (Windows{0, 0}));
    EXPECT_EQ(windows(type, slides), (Windows{0, 0}));  // from layer 28 on
    EXPECT_EQ(windows(type, slides + R"(,"max_window_layers":0)"), (Windows{4096, 4096}));
    EXPECT_EQ(windows(type, slides + R"(,"max_window_layers":1,"sliding_window":7)"),
              (Windows{0, 7}));
    EXPECT_EQ(windows(type, slides + R"(,"max_window_layers":0,"sliding_window":null)"),
              (Windows{0, 0}));
  }
  EXPECT_EQ(windows("qwen3_moe", slides), (Windows{4096, 4096}));
  EXPECT_EQ(windows("qwen3_moe", slides + R"(,"sliding_window":7)"), (Windows{7, 7}));
  EXPECT_EQ(windows("qwen3_moe", slides + R"(,"sliding_window":null)"), (Windows{0, 0}));
}

// A Gemma 3 whose global layers have this rope.
DecoderSpec NestedSpec(const std::string& rope, const std::string& pairs = "") {
  return SpecOf(
      StrCat(R"({"model_type":"gemma3_text","vocab_size":8,"hidden_size":64,"head_dim":4,)",
             R"("intermediate_size":64,"num_attention_heads":4,"num_hidden_layers":1,)", pairs,
             R"("rope_parameters":{"sliding_attention":{"rope_theta":10000},"full_attention":)",
             rope, "}}"));
}

RopeSpec NestedRope(const std::string& rope, const std::string& pairs = "") {
  const DecoderSpec spec = NestedSpec(rope, pairs);
  EXPECT_EQ(spec.ropes.size(), 2u);
  return spec.ropes.empty() ? RopeSpec{} : spec.ropes[0];
}

TEST(DecoderSpecTest, ARopeOfSomeLayersKnowsThePositionsOfAll) {
  const std::string dynamic = R"({"rope_type":"dynamic","factor":2})";
  EXPECT_EQ(NestedRope(dynamic).trained_positions, 131072);
  EXPECT_EQ(NestedRope(dynamic, R"("max_position_embeddings":4096,)").trained_positions, 4096);
  const std::string pairs =
      R"("max_position_embeddings":32768,"original_max_position_embeddings":4096,)";
  const RopeSpec longrope = NestedRope(
      R"({"rope_type":"longrope","short_factor":[1.0,1.0],"long_factor":[2.0,4.0]})", pairs);
  EXPECT_EQ(longrope.short_positions, 32768);
  EXPECT_FLOAT_EQ(longrope.magnitude, 1.0f);
  const RopeSpec yarn =
      NestedRope(R"({"rope_type":"yarn","original_max_position_embeddings":8192})", pairs);
  EXPECT_FLOAT_EQ(yarn.magnitude, 1.1386294f);  // 1 + 0.1 log(32768 / 8192)
}

// Neither a rope of some layers nor one for all.
TEST(DecoderSpecTest, AGemma3RopeKnowsNoTrainedPositionsFromBesideIt) {
  const std::string pairs =
      R"("max_position_embeddings":64,"original_max_position_embeddings":16,)";
  const std::string yarn = R"({"rope_type":"yarn","factor":4)";
  const DecoderSpec nested = NestedSpec(yarn + "}", pairs);
  const DecoderSpec flat =
      SpecOf(StrCat(R"({"model_type":"gemma3_text","vocab_size":8,"hidden_size":64,"head_dim":4,)",
                    R"("intermediate_size":64,"num_attention_heads":4,"num_hidden_layers":1,)",
                    pairs, R"("rope_scaling":)", yarn, "}}"));
  const DecoderSpec own = NestedSpec(yarn + R"(,"original_max_position_embeddings":16})", pairs);
  EXPECT_EQ(nested.extended_positions, 256);
  EXPECT_EQ(flat.extended_positions, 256);
  EXPECT_EQ(own.extended_positions, 64);
  ASSERT_EQ(flat.ropes.size(), 2u);
  EXPECT_EQ(flat.ropes[0].inv_freq, nested.ropes[0].inv_freq);
}

TEST(DecoderSpecTest, TheTextModelBesidePicturesIsTheFamilysUnlessItSaysOtherwise) {
  const auto spec_of = [](const std::string& pairs, const std::string& text) {
    return SpecOf(StrCat(R"({"model_type":"gemma3",)", pairs, R"("text_config":{)", text, "}}"));
  };
  const DecoderSpec usual = spec_of("", "");
  EXPECT_EQ(usual.vocab_size, 262208);
  EXPECT_EQ(usual.hidden_size, 2304);
  EXPECT_EQ(usual.intermediate_size, 9216);
  EXPECT_EQ(usual.num_layers(), 26);
  EXPECT_EQ(usual.num_heads, 8);
  EXPECT_TRUE(usual.tied_embeddings);
  const std::string said =
      R"("num_hidden_layers":7,"eos_token_id":[1,106],"tie_word_embeddings":false)";
  const DecoderSpec spec = spec_of("", said);
  EXPECT_EQ(spec.num_layers(), 7);
  EXPECT_TRUE(spec.tied_embeddings);  // for which the outer config alone counts
  EXPECT_EQ(spec.end_ids, (std::vector<int32_t>{1, 106}));
  const DecoderSpec outer = spec_of(R"("tie_word_embeddings":false,"eos_token_id":5,)", said);
  EXPECT_FALSE(outer.tied_embeddings);
  EXPECT_EQ(outer.end_ids, (std::vector<int32_t>{5}));
}

TEST(DecoderSpecTest, TheLimitFollowsTheRopeOfTheGlobalLayers) {
  const std::string pairs = R"("max_position_embeddings":4096,)";
  const auto limit_of = [&](const std::string& rope, int32_t asked) {
    DecoderSpec spec = NestedSpec(rope, pairs);
    LimitPositions(spec, asked);
    return std::pair(spec.max_positions, spec.ropes[0].trained_positions);
  };
  const std::string dynamic = R"({"rope_type":"dynamic","factor":2})";
  EXPECT_EQ(limit_of(dynamic, 0), std::pair(4096, 0));
  EXPECT_EQ(limit_of(dynamic, 6000), std::pair(6000, 4096));
  EXPECT_EQ(limit_of(dynamic, 100000), std::pair(8192, 4096));
  EXPECT_EQ(limit_of(R"({"rope_type":"linear","factor":8})", 100000), std::pair(32768, 0));
  EXPECT_EQ(limit_of(R"({"rope_theta":1000000})", 100000), std::pair(4096, 0));
}

TEST(CheckpointTest, ReadsShards) {
  const std::vector<TestTensor> tensors = LlamaTensors();
  TempFolder folder;
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

TEST(CheckpointTest, NamesFilesOfAnIndexThatLeaveTheFolderInOneMessage) {
  TempFolder folder;
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

TEST(CheckpointTest, NamesAllShardsThatCanNotBeReadInOneMessage) {
  TempFolder folder;
  folder.Write("config.json", kConfig);
  folder.Write("one.safetensors", SafetensorsBytes({{"a", {4}}, {"b", {4}}}));
  folder.Write("two.safetensors", SafetensorsBytes({{"b", {4}}}));
  folder.Write("short.safetensors", "x");
  folder.Write("model.safetensors.index.json",
               IndexOf(R"("a":"one.safetensors","b":"two.safetensors","c":"short.safetensors",)"
                       R"("d":"absent.safetensors","e":"absent.safetensors")"));
  const std::string message = MessageOf(folder);
  EXPECT_THAT(message, HasSubstr("files that can not be read (2): "));
  EXPECT_THAT(message, HasSubstr("absent.safetensors"));
  EXPECT_THAT(message, HasSubstr("short.safetensors': 1 bytes are too few"));
  EXPECT_THAT(message, HasSubstr("in two files (1): 'b'"));
}

TEST(CheckpointTest, NamesWhatAnIndexPromisesWithAllElseThatDoesNotFit) {
  std::vector<TestTensor> tensors = LlamaTensors();
  tensors[5].shape = {4, 4};
  tensors.pop_back();
  tensors.push_back({"spare", {4}});
  TempFolder folder;
  folder.Write("config.json", kConfig);
  folder.Write("one.safetensors", SafetensorsBytes(tensors));
  folder.Write("model.safetensors.index.json",
               IndexOf(R"("model.norm.weight":"one.safetensors","lost":"one.safetensors",)"
                       R"("model.layers.0.mlp.down_proj.weight":"one.safetensors")"));
  const std::string message = MessageOf(folder);
  EXPECT_THAT(message, HasSubstr("missing (1): 'model.layers.0.mlp.down_proj.weight' [4, 6]"));
  EXPECT_THAT(message, HasSubstr("misshapen (1): 'model.layers.0.self_attn.k_proj.weight'"));
  EXPECT_THAT(message, HasSubstr("extra (1): 'spare'"));
  EXPECT_THAT(message, HasSubstr("in the index, but not in its file (2): 'lost' in "
                                 "'one.safetensors', 'model.layers.0.mlp.down_proj.weight' in"));
}

TEST(CheckpointTest, SaysWhatToGiveInsteadOfOtherFolders) {
  TempFolder folder;
  EXPECT_THAT(Checkpoint::Open(folder.path() + "/nowhere").status().message(),
              HasSubstr("does not exist: give the path of a Hugging Face checkpoint"));
  EXPECT_THAT(Checkpoint::Open(folder.path()).status().message(),
              HasSubstr("expected config.json and model.safetensors"));
  folder.Write("pytorch_model.bin", "x");
  EXPECT_THAT(Checkpoint::Open(folder.path()).status().message(), HasSubstr("pickled weights"));
  folder.Write("rank0.engine", "x");
  std::filesystem::remove(folder.path() + "/pytorch_model.bin");
  EXPECT_THAT(Checkpoint::Open(folder.path()).status().message(), HasSubstr("TensorRT engine"));
}

TEST(CheckpointTest, NamesMissingExtraAndMisshapenTensorsInOneMessage) {
  std::vector<TestTensor> tensors = LlamaTensors();
  tensors[5].shape = {4, 4};
  tensors[6].dtype = "I32";
  tensors.pop_back();
  tensors.push_back({"model.layers.1.mlp.up_proj.weight", {6, 4}});
  TempFolder folder;
  folder.Write("config.json", kConfig);
  folder.Write("model.safetensors", SafetensorsBytes(tensors));
  const std::string message = MessageOf(folder);
  EXPECT_THAT(message, HasSubstr("missing (1): 'model.layers.0.mlp.down_proj.weight' [4, 6]"));
  EXPECT_THAT(message, HasSubstr("misshapen (1): 'model.layers.0.self_attn.k_proj.weight' "
                                 "expected [2, 4], got [4, 4]"));
  EXPECT_THAT(message, HasSubstr("'model.layers.0.self_attn.v_proj.weight' I32"));
  EXPECT_THAT(message, HasSubstr("extra (1): 'model.layers.1.mlp.up_proj.weight'"));
}

TEST(CheckpointTest, NamesSomeHundredTensorsOfAKindAndCountsTheRest) {
  std::vector<TestTensor> tensors = LlamaTensors();
  for (int i = 1000; i < 1512; ++i) tensors.push_back({StrCat("spare.", i), {1}});
  TempFolder folder;
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

TEST(CheckpointTest, IgnoresATiedHeadThatWasSavedAnyway) {
  std::vector<TestTensor> tensors = LlamaTensors();
  tensors.push_back({"lm_head.weight", {8, 4}});
  TempFolder folder;
  folder.Write("config.json", kConfig);
  folder.Write("model.safetensors", SafetensorsBytes(tensors));
  EXPECT_EQ(MessageOf(folder), "");
}

TEST(DecoderSpecTest, RefusesByName) {
  EXPECT_THAT(MessageForConfig(R"({"model_type":"mamba"})"), HasSubstr("model_type 'mamba'"));
  EXPECT_THAT(MessageForConfig(R"({})"), HasSubstr("model_type ''"));
  EXPECT_THAT(MessageForConfig("[1"), HasSubstr("config.json is not a JSON object"));
  EXPECT_THAT(MessageForConfig(WithKey(R"("quantization_config":{"quant_method":"awq"})")),
              HasSubstr("quantised weights are not supported by this backend"));
  EXPECT_THAT(MessageForConfig(WithKey(R"("quantization_config":{"quant_method":"hqq"})")),
              HasSubstr("'quantization_config' (hqq) is not supported"));
  EXPECT_THAT(MessageForConfig(WithKey(R"("rope_scaling":{"rope_type":"spiral"})")),
              HasSubstr("rope type 'spiral'"));
  EXPECT_THAT(MessageForConfig(WithKey(R"("hidden_act":"mish")")), HasSubstr("'mish'"));
  for (const char* type : {"gemma2", "gemma3_text"}) {
    const std::string pairs = StrCat(R"("model_type":")", type, R"(","sliding_window":8,)");
    EXPECT_THAT(MessageForConfig(WithKey(pairs + R"("use_bidirectional_attention":true)")),
                HasSubstr("'use_bidirectional_attention' is true"));
    EXPECT_THAT(MessageForConfig(WithKey(pairs + R"("use_bidirectional_attention":false)")),
                HasSubstr("does not fit its config.json"));  // Llama's tensors
  }
}

TEST(DecoderSpecTest, RefusesAClassThatContradictsTheModelType) {
  EXPECT_EQ(MessageForConfig(WithKey(R"("architectures":["LlamaForCausalLM"])")), "");
  EXPECT_EQ(MessageForConfig(WithKey(R"("architectures":null)")), "");
  EXPECT_EQ(MessageForConfig(WithKey(R"("architectures":[])")), "");
  EXPECT_THAT(MessageForConfig(WithKey(R"("architectures":["LlamaForSequenceClassification"])")),
              HasSubstr(R"('architectures' is ["LlamaForSequenceClassification"], but model_type )"
                        R"('llama' is 'LlamaForCausalLM')"));
  EXPECT_THAT(MessageForConfig(WithKey(R"("architectures":[5])")),
              HasSubstr("'architectures' holds 5"));
}

TEST(DecoderSpecTest, NamesTheKeyThatMakesNoSense) {
  EXPECT_THAT(MessageForConfig(R"({"model_type":"llama"})"), HasSubstr("'vocab_size' is missing"));
  EXPECT_THAT(MessageForConfig(WithKey(R"("hidden_size":-4)")), HasSubstr("'hidden_size' is -4"));
  EXPECT_THAT(MessageForConfig(WithKey(R"("hidden_size":"4")")),
              HasSubstr("'hidden_size' is \"4\""));
  EXPECT_THAT(MessageForConfig(WithKey(R"("num_attention_heads":0)")),
              HasSubstr("is 0, expected 1"));
  EXPECT_THAT(MessageForConfig(WithKey(R"("num_key_value_heads":3)")),
              HasSubstr("no multiple of 3"));
  EXPECT_THAT(MessageForConfig(WithKey(R"("num_hidden_layers":100000)")), HasSubstr("limit 1024"));
  for (const char* key :
       {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings"}) {
    for (const char* value : {"-1", "0", "1.5", "\"8\"", "4611686018427387904", "1e300", "[]"}) {
      const std::string pair = StrCat('"', key, "\":", value);
      EXPECT_THAT(MessageForConfig(WithKey(pair)), HasSubstr(key)) << pair;
    }
  }
  EXPECT_THAT(MessageForConfig(WithKey(R"("num_attention_heads":3,"num_key_value_heads":3)")),
              HasSubstr("hidden_size 4 is no multiple of num_attention_heads 3"));
  EXPECT_THAT(MessageForConfig(std::string(100000, '[')), HasSubstr("is not a JSON object"));
  EXPECT_THAT(MessageForConfig(WithKey(R"("head_dim":3)")), HasSubstr("rope of 3 of 3"));
  EXPECT_THAT(MessageForConfig(WithKey(R"("rope_theta":0)")), HasSubstr("rope_theta 0"));
  EXPECT_THAT(MessageForConfig(WithKey(R"("eos_token_id":"end")")), HasSubstr("'eos_token_id'"));
  EXPECT_THAT(MessageForConfig(WithKey(R"("model_type":"mixtral","num_local_experts":9999999)")),
              HasSubstr("'num_local_experts' is 9999999, limit 1024"));
  EXPECT_THAT(MessageForConfig(WithKey(R"("model_type":"mixtral","num_local_experts":1024,)"
                                       R"("num_hidden_layers":1024)")),
              HasSubstr("'num_local_experts' is 1024, limit 64"));
}

}  // namespace
}  // namespace nereid::llm
