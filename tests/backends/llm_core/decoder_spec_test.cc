// The decoder spec of a config.json: the defaults of each family, and what is rejected by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/llm_core/checkpoint/trtllm_config.h"
#include "tests/backends/llm_core/small_llama.h"

namespace nereid::llm {
namespace {

using ::testing::HasSubstr;
using testing::MessageForConfig;
using testing::SpecOf;
using testing::WithKey;

// The defaults of `transformers`, for 64 heads over 256 columns.
struct FamilyDefaults {
  const char* type;
  int32_t num_kv_heads, head_dim, max_positions;
};

void PrintTo(const FamilyDefaults& family, std::ostream* out) {
  *out << family.type;
}

class FamilyDefaultsTest : public ::testing::TestWithParam<FamilyDefaults> {};

TEST_P(FamilyDefaultsTest, MissingKeysHaveTheDefaultsOfTheFamily) {
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
  // The trained context follows from max_position_embeddings.
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

TEST(DecoderSpecTest, QwenHasTheWindowOfTheFamilyByDefault) {
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

TEST(DecoderSpecTest, LayerTypesApplyOnlyToFamiliesThatUseThem) {
  const auto windows = [](const char* type) {
    const DecoderSpec spec =
        SpecOf(StrCat(R"({"model_type":")", type, R"(","vocab_size":8,"hidden_size":64,)",
                      R"("intermediate_size":64,"num_attention_heads":4,"num_hidden_layers":2,)",
                      R"("num_key_value_heads":4,"num_local_experts":4,"num_experts_per_tok":2,)",
                      R"("moe_intermediate_size":8,"sliding_window":7,"use_sliding_window":true,)",
                      R"("layer_types":["full_attention","sliding_attention"]})"));
    std::vector<int32_t> found;
    for (const LayerSpec& layer : spec.layers) found.push_back(layer.sliding_window);
    return found;
  };
  using Windows = std::vector<int32_t>;
  for (const char* type : {"mistral", "qwen2", "qwen3", "gemma2", "gemma3_text"}) {
    EXPECT_EQ(windows(type), (Windows{0, 7})) << type;
  }
  for (const char* type : {"mixtral", "qwen3_moe", "phi3", "starcoder2"}) {
    EXPECT_EQ(windows(type), (Windows{7, 7})) << type;
  }
  EXPECT_EQ(windows("llama"), (Windows{0, 0}));
}

TEST(DecoderSpecTest, AGptMayUseTheSizeKeysOfOtherFamilies) {
  for (const char* type : {"gpt2", "gpt_bigcode"}) {
    const DecoderSpec spec = SpecOf(StrCat(
        R"({"model_type":")", type, R"(","vocab_size":8,"hidden_size":64,)",
        R"("num_attention_heads":4,"num_hidden_layers":2,)", R"("max_position_embeddings":32})"));
    EXPECT_EQ(spec.hidden_size, 64);
    EXPECT_EQ(spec.num_heads, 4);
    EXPECT_EQ(spec.num_layers(), 2);
    EXPECT_EQ(spec.max_positions, 32);
  }
}

TEST(DecoderSpecTest, TheTextModelOfAVisionModelHasTheDefaultsOfTheFamily) {
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
  EXPECT_TRUE(spec.tied_embeddings);  // only the outer config counts for it
  EXPECT_EQ(spec.end_ids, (std::vector<int32_t>{1, 106}));
  const DecoderSpec outer = spec_of(R"("tie_word_embeddings":false,"eos_token_id":5,)", said);
  EXPECT_FALSE(outer.tied_embeddings);
  EXPECT_EQ(outer.end_ids, (std::vector<int32_t>{5}));
}

TEST(DecoderSpecTest, OnlyPhi3OfTensorRtLlmMayRotateAPartOfEachHead) {
  const auto message = [](const std::string& pairs) {
    return ReadTrtLlmConfig(StrCat("{", pairs, R"(,"vocab_size":8,"hidden_size":4,
        "intermediate_size":6,"num_attention_heads":2,"num_hidden_layers":1,
        "max_position_embeddings":32})"))
        .status()
        .message();
  };
  for (const char* pairs : {R"("architecture":"LlamaForCausalLM")",
                            R"("architecture":"GPTForCausalLM","gpt_variant":"starcoder2")"}) {
    EXPECT_THAT(message(StrCat(pairs, R"(,"rotary_pct":0.5)")),
                HasSubstr("'rotary_pct' is 0.5, which is not supported"))
        << pairs;
    EXPECT_EQ(message(StrCat(pairs, R"(,"rotary_pct":1.0)")), "") << pairs;
    EXPECT_EQ(message(pairs), "");
  }
  EXPECT_EQ(message(R"("architecture":"Phi3ForCausalLM","rotary_pct":0.5)"), "");
}

TEST(DecoderSpecTest, RejectsByName) {
  EXPECT_THAT(MessageForConfig(R"({"model_type":"mamba"})"), HasSubstr("model_type 'mamba'"));
  EXPECT_THAT(MessageForConfig(R"({})"), HasSubstr("model_type ''"));
  EXPECT_THAT(MessageForConfig("[1"), HasSubstr("config.json: line 1: not valid JSON at byte 3"));
  EXPECT_THAT(MessageForConfig("[1]"),
              HasSubstr("config.json: not a JSON object, but of type array"));
  EXPECT_THAT(MessageForConfig(WithKey(R"("quantization_config":{"quant_method":"awq"})")),
              HasSubstr("quantized weights are not supported by this backend"));
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
                HasSubstr("does not fit its config.json"));  // those are the tensors of Llama
  }
}

std::string Nested(size_t depth, const std::string& open, const std::string& close) {
  std::string text;
  for (size_t i = 0; i < depth; ++i) text += open;
  text += "1";
  for (size_t i = 0; i < depth; ++i) text += close;
  return text;
}

TEST(DecoderSpecTest, RejectsValuesThatAreNestedTooDeep) {
  const std::string lists = Nested(40'000, "[", "]"), objects = Nested(40'000, "{\"a\":", "}");
  for (const char* key : {"vocab_size", "eos_token_id", "rope_scaling", "architectures"}) {
    for (const std::string& value : {lists, objects}) {
      EXPECT_THAT(MessageForConfig(WithKey(StrCat("\"", key, "\":", value))),
                  HasSubstr(StrCat("config.json: line 3: '", key,
                                   "' is nested 40001 levels deep, limit 64")));
    }
  }
  const std::string config = WithKey(R"("vocab_size":8)");
  const Checkpoint checkpoint =
      Checkpoint::FromParts("somewhere", config, StrCat("{\"eos_token_id\":\n", lists, "}"), {});
  EXPECT_THAT(ReadDecoderSpec(checkpoint, true).status().message(),
              HasSubstr("generation_config.json: line 2: 'eos_token_id' is nested 40001 levels"));
}

TEST(DecoderSpecTest, CutsOffLongValuesInMessages) {
  const std::string list = "[" + Nested(50'000, "1,", "") + "]";
  for (const char* key : {"vocab_size", "rope_scaling", "rms_norm_eps", "hidden_act"}) {
    const std::string message = MessageForConfig(WithKey(StrCat("\"", key, "\":", list)));
    EXPECT_THAT(message, HasSubstr(StrCat("'", key, "' is [1,1,1")));
    EXPECT_LT(message.size(), 500U);
  }
  EXPECT_THAT(MessageForConfig(WithKey(StrCat("\"hidden_act\":\"", std::string(5000, 'x'), "\""))),
              HasSubstr("'hidden_act' has 5000 bytes, limit 4096"));
}

TEST(DecoderSpecTest, RejectsAClassThatContradictsTheModelType) {
  EXPECT_EQ(MessageForConfig(WithKey(R"("architectures":["LlamaForCausalLM"])")), "");
  EXPECT_EQ(MessageForConfig(WithKey(R"("architectures":null)")), "");
  EXPECT_EQ(MessageForConfig(WithKey(R"("architectures":[])")), "");
  EXPECT_THAT(MessageForConfig(WithKey(R"("architectures":["LlamaForSequenceClassification"])")),
              HasSubstr(R"('architectures' is ["LlamaForSequenceClassification"], but model_type )"
                        R"('llama' is 'LlamaForCausalLM')"));
  EXPECT_THAT(MessageForConfig(WithKey(R"("architectures":[5])")),
              HasSubstr("'architectures' holds 5"));
}

TEST(DecoderSpecTest, NamesTheInvalidKey) {
  EXPECT_THAT(MessageForConfig(R"({"model_type":"llama"})"), HasSubstr("'vocab_size' is missing"));
  EXPECT_THAT(MessageForConfig(WithKey(R"("hidden_size":-4)")), HasSubstr("'hidden_size' is -4"));
  EXPECT_THAT(MessageForConfig(WithKey(R"("hidden_size":"4")")),
              HasSubstr("'hidden_size' is \"4\""));
  EXPECT_THAT(MessageForConfig(WithKey(R"("num_attention_heads":0)")),
              HasSubstr("is 0, expected 1"));
  EXPECT_THAT(MessageForConfig(WithKey(R"("num_key_value_heads":3)")),
              HasSubstr("not a multiple of 3"));
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
              HasSubstr("hidden_size 4 is not a multiple of num_attention_heads 3"));
  EXPECT_THAT(MessageForConfig(std::string(100000, '[')),
              HasSubstr("config.json: line 1: nested 100000 levels deep, limit 64"));
  EXPECT_THAT(MessageForConfig(WithKey(R"("head_dim":3)")), HasSubstr("rope of 3 of 3"));
  EXPECT_THAT(MessageForConfig(WithKey(R"("rope_theta":0)")), HasSubstr("rope_theta 0"));
  EXPECT_THAT(MessageForConfig(WithKey(R"("rms_norm_eps":-1)")),
              HasSubstr("'rms_norm_eps' is -1, expected 0 to 1"));
  EXPECT_THAT(MessageForConfig(WithKey(R"("rms_norm_eps":1e39)")),
              HasSubstr("'rms_norm_eps' is 1e+39, expected 0 to 1"));
  EXPECT_THAT(MessageForConfig(WithKey(R"("rope_scaling":5)")),
              HasSubstr("'rope_scaling' is 5, expected an object"));
  EXPECT_THAT(MessageForConfig(WithKey(R"("partial_rotary_factor":9e9,)"
                                       R"("rope_scaling":{"rope_type":"linear","factor":2})")),
              HasSubstr("rope of 1.8e+10 of 2 dimensions"));
  EXPECT_THAT(MessageForConfig(WithKey(R"("eos_token_id":"end")")), HasSubstr("'eos_token_id'"));
  EXPECT_THAT(MessageForConfig(WithKey(R"("model_type":"mixtral","num_local_experts":9999999)")),
              HasSubstr("'num_local_experts' is 9999999, limit 1024"));
  EXPECT_THAT(MessageForConfig(WithKey(R"("model_type":"mixtral","num_local_experts":1024,)"
                                       R"("num_hidden_layers":1024)")),
              HasSubstr("'num_local_experts' is 1024, limit 64"));
}

}  // namespace
}  // namespace nereid::llm
