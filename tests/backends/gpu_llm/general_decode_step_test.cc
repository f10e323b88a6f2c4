// Fused decode steps of StepLayers::kGeneral against separate kernels.
#include <algorithm>
#include <limits>

#include "tests/backends/gpu_llm/decode_step_fixture.h"

namespace nereid::gpu {
namespace {

DecodeStepModel With(const char* name, DecodeStepModel model, void (*change)(llm::DecoderSpec&)) {
  model.name = name;
  model.change = change;
  return model;
}
void AddLayerNormsAndBiases(llm::DecoderSpec& spec) {
  spec.norm.kind = llm::NormKind::kLayer;
  spec.norm.has_bias = spec.qkv_bias = spec.attention_out_bias = spec.mlp_bias = true;
  spec.mlp = llm::MlpKind::kPlain;
  spec.activation = llm::Activation::kGeluTanh;
}
void AddParallelResiduals(llm::DecoderSpec& spec) {
  AddLayerNormsAndBiases(spec);
  spec.activation = llm::Activation::kGelu;
  spec.parallel_residual = true;
}
void LearnPositions(llm::DecoderSpec& spec) {
  AddLayerNormsAndBiases(spec);
  spec.position = llm::PositionKind::kLearned;
  spec.ropes.clear();
}
void AddPostNorms(llm::DecoderSpec& spec) {
  spec.post_norms = true;
  spec.activation = llm::Activation::kGeluTanh;
}
void AddPostNormsAndSoftCap(llm::DecoderSpec& spec) {
  AddPostNorms(spec);
  spec.attention_soft_cap = 2.0f;  // of scores with a deviation of about 1
  spec.logit_soft_cap = 1.0f;
}
void AddBiases(llm::DecoderSpec& spec) {
  spec.attention_out_bias = spec.mlp_bias = true;
}

class GeneralDecodeStepTest : public DecodeStepTest {
 protected:
  // The codes of an fp8 cache have four significant bits, so that it changes the logits of these
  // models by up to 6 %. Where a key differs in its last bit, its code may be the next one.
  static float Tolerance(int32_t num_rows) {
    const float tolerance = DecodeStepTest::Tolerance(num_rows);
    return GetParam().cache == kFp8Cache ? std::max(tolerance, 4e-2f) : tolerance;
  }
};

TEST_P(GeneralDecodeStepTest, LogitsEqualThoseOfSeparateKernels) {
  CompareLogits(Tolerance(8));
}

// Steps with drafts run in one launch, but not with heads of 256 columns (FusedSteps::has_chains).
TEST_P(GeneralDecodeStepTest, DraftsHaveTheLogitsOfSingleSteps) {
  Steps fused(GetParam(), true), plain(GetParam(), false);
  ASSERT_TRUE(fused.ok() && plain.ok());
  for (Steps* steps : {&fused, &plain}) {
    steps->FillCache();
    steps->Prefill();
  }
  for (int32_t i = 0; i < kNumSequences; ++i) {
    for (const int32_t num_drafts : {7, 2}) {
      const std::vector<float> expected = plain.DecodeEach(i, num_drafts);
      EXPECT_LT(Error(fused.Verify(i, num_drafts), expected, 1 + num_drafts),
                Tolerance(1 + num_drafts))
          << num_drafts << " drafts behind " << kLengths[i] << " tokens";
    }
  }
}

TEST_P(GeneralDecodeStepTest, EachRowHasTheLogitsOfSeparateKernels) {
  Steps fused(GetParam(), true), plain(GetParam(), false);
  ASSERT_TRUE(fused.ok() && plain.ok());
  ASSERT_TRUE(fused.fuses() && !plain.fuses());
  for (Steps* steps : {&fused, &plain}) {
    steps->FillCache();
    steps->Prefill();
    if (GetParam().all_have_windows) steps->ReleaseBlocks(GetParam().window);
  }
  for (int32_t i = 0; i < kNumSequences; ++i) {
    const std::vector<float> expected = plain.DecodeEach(i, 5);
    EXPECT_LT(Error(fused.DecodeEach(i, 5), expected, 6), Tolerance(6)) << "sequence " << i;
  }
}

TEST_P(GeneralDecodeStepTest, PromptsReadTheKeysAndValuesOfFusedSteps) {
  Steps fused(GetParam(), true), plain(GetParam(), false);
  ASSERT_TRUE(fused.ok() && plain.ok());
  for (Steps* steps : {&fused, &plain}) {
    steps->Prefill();
    for (int32_t step = 0; step < 70; ++step) steps->Decode(1);
  }
  const std::vector<float> expected = plain.Continue(1, 9);
  EXPECT_LT(Error(fused.Continue(1, 9), expected, 1), Tolerance(1));
}

const DecodeStepModel kGeneralModels[] = {
    With("int4_layer_norms", {"", kInt4, 1056, 2080, 24, 2, 128, true, false, 200},
         AddLayerNormsAndBiases),
    With("int4_layer_norms_wide", {"", kInt4, 5120, 9248, 48, 4, 128}, AddLayerNormsAndBiases),
    With("int4_parallel", {"", kInt4, 768, 2080, 8, 8, 96, true, false, 0, 24},
         AddParallelResiduals),
    With("int4_learned_positions", {"", kInt4, 768, 3072, 8, 8, 96}, LearnPositions),
    With("int4_post_norms", {"", kInt4, 2304, 9248, 8, 4, 256, false, false, 200},
         AddPostNormsAndSoftCap),
    With("int4_post_norms_head_norms",
         {"", kInt4, 1152, 1056, 4, 1, 256, false, true, 100, 0, true}, AddPostNorms),
    With("int4_biases", {"", kInt4, 512, 544, 16, 1, 128}, AddBiases),
    With("int4_many_heads", {"", kInt4, 1024, 544, 32, 2, 128}, nullptr),
    With("int4_multi_query", {"", kInt4, 768, 1056, 40, 1, 128}, LearnPositions),
    With("fp8_layer_norms", {"", kFp8, 1088, 2112, 24, 2, 128, true, false, 200},
         AddLayerNormsAndBiases),
    With("fp8_parallel", {"", kFp8, 768, 2112, 8, 8, 96, true, false, 0, 24}, AddParallelResiduals),
    With("fp8_post_norms", {"", kFp8, 2304, 9280, 8, 4, 256, false, false, 200},
         AddPostNormsAndSoftCap),
    With("bf16_layer_norms", {"", kBf16, 1056, 2080, 24, 2, 128, true, false, 200},
         AddLayerNormsAndBiases),
    With("bf16_parallel", {"", kBf16, 5120, 2080, 8, 8, 96, true, false, 0, 24},
         AddParallelResiduals),
    With("bf16_post_norms", {"", kBf16, 2304, 9248, 8, 4, 256, false, true, 200},
         AddPostNormsAndSoftCap),
    With("fp8_post_norms_heads_of_128", {"", kFp8, 4608, 1088, 32, 16, 128},
         AddPostNormsAndSoftCap),
};
INSTANTIATE_TEST_SUITE_P(Models, GeneralDecodeStepTest, ::testing::ValuesIn(kGeneralModels),
                         [](const auto& info) { return std::string(info.param.name); });

const DecodeStepModel kGeneralOthers[] = {
    WithCache("fp8_cache_int4_layer_norms", kGeneralModels[0], kFp8Cache),
    WithCache("int8_cache_int4_parallel", kGeneralModels[2], kInt8Cache),
    WithCache("int8_cache_int4_learned_positions", kGeneralModels[3], kInt8Cache),
    WithCache("int8_cache_fp8_layer_norms", kGeneralModels[9], kInt8Cache),
    WithCache("int8_cache_int4_multi_query", kGeneralModels[8], kInt8Cache),
    WithCache("fp8_cache_int4_post_norms", kGeneralModels[4], kFp8Cache),
    WithCache("int8_cache_int4_post_norms", kGeneralModels[4], kInt8Cache),
    WithCache("fp8_cache_int4_post_norms_head_norms", kGeneralModels[5], kFp8Cache),
    WithCache("int8_cache_fp8_post_norms", kGeneralModels[11], kInt8Cache),
    WithCache("fp8_cache_bf16_post_norms", kGeneralModels[14], kFp8Cache),
    WithCache("fp8_cache_fp8_post_norms_heads_of_128", kGeneralModels[15], kFp8Cache),
    WithBlockScales("fp8_blocks_layer_norms", kGeneralModels[9]),
    WithBlockScales("fp8_blocks_post_norms", kGeneralModels[11]),
};
INSTANTIATE_TEST_SUITE_P(Others, GeneralDecodeStepTest, ::testing::ValuesIn(kGeneralOthers),
                         [](const auto& info) { return std::string(info.param.name); });

class GeneralDecodeStepOrderTest : public testing::GpuTest<::testing::Test> {};

TEST_F(GeneralDecodeStepOrderTest, NanValuesDoNotBlockTheStep) {
  for (DecodeStepModel model : {kGeneralModels[0], kGeneralModels[4]}) {
    model.embedding_scale = std::numeric_limits<float>::quiet_NaN();
    Steps steps(model, true);
    ASSERT_TRUE(steps.ok());
    steps.Prefill();
    const std::vector<float> logits = steps.Decode(1);
    EXPECT_TRUE(std::isnan(logits.front()) && std::isnan(logits.back())) << model.name;
  }
}

}  // namespace
}  // namespace nereid::gpu
