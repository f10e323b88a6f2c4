// The ropes of a config.json: scalings, trained context, maximum positions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/backends/llm_core/small_llama.h"
#include "tests/support/test_folder.h"

namespace nereid::llm {
namespace {

using ::testing::HasSubstr;
using testing::LlamaTensors;
using testing::MessageOf;
using testing::ReadSpec;
using testing::SafetensorsBytes;
using testing::SpecOf;
using testing::TestTensor;
using testing::WithKey;

TEST(RopeSpecTest, LongRopeUsesTheShortFactorsForShortContexts) {
  TestFolder folder;
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

// A rope with one pair of dimensions, whose wavelength is 2 pi.
RopeSpec RopeOf(const std::string& pairs) {
  TestFolder folder;
  folder.Write("config.json", WithKey(pairs));
  folder.Write("model.safetensors", SafetensorsBytes(LlamaTensors()));
  const Result<DecoderSpec> spec = ReadSpec(folder);
  EXPECT_TRUE(spec.ok()) << spec.status().message();
  return spec.ok() ? spec->ropes[0] : RopeSpec{};
}

TEST(RopeSpecTest, TheConfigsOwnContextPrecedesThatOfTheScaling) {
  const std::string llama3 =
      R"("rope_scaling":{"rope_type":"llama3","factor":8,"high_freq_factor":8)";
  // A wavelength between the high frequencies (below context / 8) and the low ones (above context).
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
  TestFolder folder;
  folder.Write("config.json", WithKey(pairs));
  folder.Write("model.safetensors", SafetensorsBytes(LlamaTensors()));
  Result<DecoderSpec> spec = ReadSpec(folder);
  EXPECT_TRUE(spec.ok()) << spec.status().message();
  LimitPositions(*spec, asked);
  return spec->max_positions;
}

TEST(RopeSpecTest, AScalingRaisesTheMaximumPositionsByItsFactor) {
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
  EXPECT_EQ(LimitOf(of_eight, 1000), 48);  // based on the trained context
  EXPECT_EQ(LimitOf(R"("rope_theta":500)", 1000), 32);
  EXPECT_EQ(LimitOf(R"("rope_scaling":{"rope_type":"llama3","factor":8,)"
                    R"("original_max_position_embeddings":16})",
                    1000),
            32);
}

TEST(RopeSpecTest, ADynamicRopeIsPlainWithinTheTrainedContext) {
  TestFolder folder;
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
  // The second of two pairs: theta' ^ -1/2, theta' = 10000 (2 n / 32 - 1) ^ 2.
  float inv_freq[2];
  DynamicFrequencies(spec->ropes[0], 48, inv_freq);
  EXPECT_FLOAT_EQ(inv_freq[0], 1.0f);
  EXPECT_FLOAT_EQ(inv_freq[1], 0.01f / 2.0f);
}

// The values are those of transformers' modeling_rope_utils with torch in float32.
TEST(RopeSpecTest, ScaledFrequenciesEqualTheReferencesToTheLastBit) {
  const auto rope_of = [](const std::string& scaling) {
    return SpecOf(StrCat(R"({"model_type":"llama","vocab_size":8,"hidden_size":64,"head_dim":16,)",
                         R"("intermediate_size":64,"num_attention_heads":4,"num_hidden_layers":1,)",
                         R"("rope_theta":10000.0,"max_position_embeddings":256,)",
                         R"("rope_scaling":{"original_max_position_embeddings":64,)", scaling,
                         "}}"))
        .ropes[0];
  };
  const RopeSpec longrope =
      rope_of(R"("type":"longrope","short_factor":[1.0,1.1,1.3,1.2,1.7,1.4,1.9,2.0],)"
              R"("long_factor":[1.5,2.0,4.0,7.0,9.0,16.0,20.0,31.0])");
  EXPECT_EQ(longrope.inv_freq, (std::vector<float>{0x1.555556p-1f, 0x1.43d136p-3f, 0x1.99999ap-6f,
                                                   0x1.280fbcp-8f, 0x1.234568p-10f, 0x1.9e7c70p-13f,
                                                   0x1.a36e2ep-15f, 0x1.564908p-17f}));
  EXPECT_EQ(longrope.short_inv_freq,
            (std::vector<float>{0x1p+0f, 0x1.266118p-2f, 0x1.3b13b2p-4f, 0x1.afc19cp-6f,
                                0x1.818182p-8f, 0x1.280fbep-9f, 0x1.13f0e8p-11f, 0x1.4b96c0p-13f}));
  EXPECT_EQ(
      rope_of(R"("type":"yarn","factor":3.0)").inv_freq,
      (std::vector<float>{0x1p+0f, 0x1.f7b736p-3f, 0x1.c71c72p-5f, 0x1.5967b0p-7f, 0x1.b4e81cp-9f,
                          0x1.1452f6p-10f, 0x1.5d867cp-12f, 0x1.ba1e54p-14f}));
  EXPECT_EQ(
      rope_of(R"("type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0)")
          .inv_freq,
      (std::vector<float>{0x1p+0f, 0x1.f47fe8p-3f, 0x1.ab5e60p-7f, 0x1.030dc6p-8f, 0x1.47ae14p-10f,
                          0x1.9e7c70p-12f, 0x1.0624dep-13f, 0x1.4b96c0p-15f}));
}

TEST(RopeSpecTest, APhi3HasTheTrainedContextOfTheFamilyByDefault) {
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

// The family has used other names for longrope, and the scaling never contains the trained context.
TEST(RopeSpecTest, EveryScalingOfAPhi3IsLongropeWhateverItsName) {
  const auto spec_of = [](const std::string& kind) {
    return SpecOf(StrCat(
        R"({"model_type":"phi3","vocab_size":8,"hidden_size":64,"intermediate_size":64,)",
        R"("num_attention_heads":16,"num_hidden_layers":1,"max_position_embeddings":131072,)",
        R"("rope_scaling":{"type":")", kind, R"(","short_factor":[1.0,1.0],)",
        R"("original_max_position_embeddings":16,"long_factor":[2.0,4.0]}})"));
  };
  for (const char* kind : {"longrope", "su", "yarn"}) {
    EXPECT_EQ(spec_of(kind).ropes[0].short_positions, 4096) << kind;
    EXPECT_EQ(spec_of(kind).ropes[0].inv_freq, (std::vector<float>{0.5f, 0.0025f})) << kind;
  }
}

TEST(RopeSpecTest, AnOddNumberOfDimensionsIsRoundedUp) {
  const DecoderSpec spec =
      SpecOf(R"({"model_type":"gpt_neox","vocab_size":8,"hidden_size":40,"intermediate_size":64,)"
             R"("num_attention_heads":2,"num_hidden_layers":1,"max_position_embeddings":32,)"
             R"("rope_scaling":{"rope_type":"dynamic","factor":2}})");
  const RopeSpec& rope = spec.ropes[0];  // a quarter of 20 dimensions
  EXPECT_EQ(rope.dim, 6);
  ASSERT_EQ(rope.inv_freq.size(), 3u);
  EXPECT_FLOAT_EQ(rope.inv_freq[1], 0.025118864f);  // 10000 ^ -2/5
  EXPECT_FLOAT_EQ(rope.inv_freq[2], 6.3095734e-4f);
  float inv_freq[3];
  DynamicFrequencies(rope, 48, inv_freq);
  EXPECT_FLOAT_EQ(inv_freq[1], 0.025118864f * 0.62996052f);  // (2 x 48 / 32 - 1) ^ -2/3
}

TEST(RopeSpecTest, PartialRotaryAppliesOnlyToFamiliesThatUseIt) {
  const auto dim_of = [](const char* type, const std::string& pairs) {
    return SpecOf(StrCat(R"({"model_type":")", type, R"(","vocab_size":8,"hidden_size":64,)",
                         R"("intermediate_size":64,"num_attention_heads":4,"num_hidden_layers":1,)",
                         R"("num_key_value_heads":4,"sliding_window":8,)", pairs, "}"))
        .ropes[0]
        .dim;
  };
  for (const char* key : {"partial_rotary_factor", "rotary_pct"}) {
    const std::string half = StrCat("\"", key, "\":0.5");
    for (const char* type : {"llama", "mistral", "qwen2", "starcoder2"}) {
      EXPECT_EQ(dim_of(type, half), 16) << type;
    }
  }
  EXPECT_EQ(dim_of("phi3", R"("partial_rotary_factor":0.5)"), 8);
  EXPECT_EQ(dim_of("phi3", R"("rotary_pct":0.5)"), 16);
  EXPECT_EQ(dim_of("gpt_neox", R"("rotary_pct":0.5)"), 8);
  EXPECT_EQ(dim_of("gpt_neox", R"("rope_parameters":{"partial_rotary_factor":0.5})"), 8);
}

TEST(RopeSpecTest, TheOlderSpellingPrecedesTheNewerOne) {
  const std::string newer = R"("rope_parameters":{"rope_type":"linear","factor":2,"rope_theta":7})";
  EXPECT_FLOAT_EQ(RopeOf(newer).inv_freq[0], 0.5f);
  EXPECT_FLOAT_EQ(RopeOf(newer + R"(,"rope_scaling":{"type":"linear","factor":4})").inv_freq[0],
                  0.25f);
  EXPECT_FLOAT_EQ(RopeOf(newer + R"(,"rope_scaling":{})").inv_freq[0], 0.5f);
  EXPECT_FLOAT_EQ(RopeOf(newer + R"(,"rope_scaling":null)").inv_freq[0], 0.5f);
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

TEST(RopeSpecTest, ARopeOfSomeLayersUsesThePositionsOfAll) {
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

// Neither in the rope of a kind of layer nor in one for all layers.
TEST(RopeSpecTest, AGemma3RopeIgnoresTrainedPositionsOutsideIt) {
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

TEST(RopeSpecTest, AGemma3ReadsARopePerKindOfLayerAndNoneForAll) {
  const auto ropes_of = [](const std::string& pairs) {
    return SpecOf(StrCat(R"({"model_type":"gemma3_text","vocab_size":8,"hidden_size":64,)",
                         R"("head_dim":4,"intermediate_size":64,"num_attention_heads":4,)",
                         R"("num_hidden_layers":1,)", pairs, "}"))
        .ropes;
  };
  const auto expect = [&](const std::string& pairs, float global, float local) {
    const std::vector<RopeSpec> ropes = ropes_of(pairs);
    ASSERT_EQ(ropes.size(), 2u);
    EXPECT_FLOAT_EQ(ropes[0].inv_freq[1], global) << pairs;  // theta ^ -1/2, scaled
    EXPECT_FLOAT_EQ(ropes[1].inv_freq[1], local) << pairs;
  };
  expect(R"("rope_parameters":{"rope_type":"linear","factor":2,"rope_theta":100})", 1e-3f, 1e-2f);
  expect(R"("rope_theta":400,"rope_local_base_freq":100)", 0.05f, 0.1f);
  const std::string nested =
      R"("rope_parameters":{"full_attention":{"rope_theta":100},"sliding_attention":{}})";
  expect(nested, 0.1f, 1e-2f);
  expect(nested + R"(,"rope_scaling":{"rope_type":"linear","factor":4})", 0.025f, 1e-2f);
}

TEST(RopeSpecTest, MaximumPositionsFollowTheRopeOfTheGlobalLayers) {
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

}  // namespace
}  // namespace nereid::llm
