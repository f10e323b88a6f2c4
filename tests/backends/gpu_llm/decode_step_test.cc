// Fused decode steps against the same steps with separate kernels.
#include <latch>
#include <limits>
#include <string>
#include <thread>

#include "backends/gpu_llm/kernels/step/decode_step.h"
#include "tests/backends/gpu_llm/decode_step_fixture.h"

namespace nereid::gpu {
namespace {

// With biases of q, k and v, which the models with `has_biases` have already.
DecodeStepModel WithBiases(DecodeStepModel model) {
  model.has_biases = true;
  return model;
}
TEST_P(DecodeStepTest, LogitsEqualThoseOfSeparateKernels) {
  CompareLogits();
}

// What launches of one kernel have stored, separate kernels read.
TEST_P(DecodeStepTest, PromptsReadTheKeysAndValuesOfFusedSteps) {
  Steps fused(GetParam(), true), plain(GetParam(), false);
  ASSERT_TRUE(fused.ok() && plain.ok());
  for (Steps* steps : {&fused, &plain}) steps->Prefill();
  for (int32_t step = 0; step < 70; ++step) {
    fused.Decode(kNumSequences);
    plain.Decode(kNumSequences);
  }
  const std::vector<float> expected = plain.Continue(kNumSequences, 9);
  EXPECT_LT(Error(fused.Continue(kNumSequences, 9), expected, kNumSequences),
            Tolerance(kNumSequences));
}

// A chain's keys and values are computed by the step that reads them, in one KV block or two.
TEST_P(DecodeStepTest, DraftsHaveTheLogitsOfSingleSteps) {
  Steps fused(GetParam(), true), plain(GetParam(), false);
  ASSERT_TRUE(fused.ok() && plain.ok());
  for (Steps* steps : {&fused, &plain}) {
    steps->FillCache();
    steps->Prefill();
    if (GetParam().all_have_windows) steps->ReleaseBlocks(GetParam().window);
  }
  for (int32_t i = 0; i < kNumSequences; ++i) {
    for (const int32_t num_drafts : {7, 1, 4, 7, 3, 2, 6, 5}) {
      const std::vector<float> expected = plain.DecodeEach(i, num_drafts);
      EXPECT_LT(Error(fused.Verify(i, num_drafts), expected, 1 + num_drafts),
                Tolerance(1 + num_drafts))
          << num_drafts << " drafts behind " << kLengths[i] << " tokens";
      EXPECT_LT(Error(plain.Verify(i, num_drafts), expected, 1 + num_drafts),
                Tolerance(1 + num_drafts))
          << num_drafts << " drafts behind " << kLengths[i] << " tokens, separate kernels";
      if (HasFailure()) return;
    }
  }
}

TEST_P(DecodeStepTest, ValuesLeftByAnotherSequenceAreIgnored) {
  Steps fresh(GetParam(), true), used(GetParam(), true);
  ASSERT_TRUE(fresh.ok() && used.ok());
  used.FillCache();
  fresh.Prefill();
  used.Prefill();
  if (GetParam().all_have_windows) {
    fresh.ReleaseBlocks(GetParam().window);
    used.ReleaseBlocks(GetParam().window);
  }
  for (const int32_t num_rows :
       {8, 1}) {  // the two executors may have chosen different algorithms for prompts
    const std::vector<float> expected = fresh.Decode(num_rows);
    EXPECT_LT(Error(used.Decode(num_rows), expected, num_rows), Tolerance(num_rows))
        << num_rows << " rows";
  }
}

const DecodeStepModel kModels[] = {
    {"bf16", kBf16, 1024, 1408, 8, 2, 128},
    {"bf16_wide", kBf16, 5120, 2080, 40, 8, 128},
    {"bf16_deep", kBf16, 512, 9248, 16, 16, 64},
    {"bf16_biases_window", kBf16, 608, 1120, 14, 2, 64, true, false, 200},
    {"bf16_head_norms", kBf16, 1056, 512, 16, 8, 128, false, true, 64},
    {"bf16_heads_of_16", kBf16, 512, 544, 16, 2, 16},
    {"bf16_rope_of_a_quarter", kBf16, 512, 544, 8, 4, 128, true, true, 0, 32},
    // More context items than a block preloads, and more than there are blocks.
    {"bf16_many_heads", kBf16, 1024, 544, 40, 40, 64},
    {"bf16_released_blocks", kBf16, 512, 544, 8, 2, 128, false, false, 150, 0, true},
    {"fp8", kFp8, 1024, 1408, 8, 2, 128},
    {"fp8_wide", kFp8, 5120, 2112, 40, 8, 128},
    {"fp8_deep", kFp8, 1088, 9280, 8, 8, 64},
    {"fp8_window", kFp8, 576, 576, 32, 32, 64, false, false, 100, 0, true},
    {"fp8_large_residual", kFp8, 1024, 576, 8, 2, 128, false, false, 0, 0, false, 0x1p40f},
    {"int4", kInt4, 1024, 1408, 8, 2, 128},
    {"int4_wide", kInt4, 5120, 2080, 40, 8, 128},
    {"int4_deep", kInt4, 640, 9248, 16, 4, 64, true},
    {"int4_rope_of_16", kInt4, 640, 544, 32, 32, 64, true, false, 0, 16},
    // All experts, some of many, and more than a lane of the selecting warp has in its first words.
    {"bf16_all_experts", kBf16, 1024, 544, 8, 2, 128, false, false, 0, 0, false, 1.0f, 8, 8, 416},
    {"bf16_experts", kBf16, 1056, 512, 16, 8, 128, false, true, 64, 0, false, 1.0f, 40, 3, 736,
     false},
    {"bf16_many_experts", kBf16, 512, 544, 8, 4, 128, true, true, 0, 32, false, 1.0f, 144, 8, 1056},
    {"int4_all_experts", kInt4, 1024, 544, 8, 2, 128, false, false, 0, 0, false, 1.0f, 4, 4, 4096},
    {"int4_experts", kInt4, 640, 544, 8, 2, 128, false, false, 150, 0, true, 1.0f, 64, 8, 4096},
    // Products without experts that are deeper than the input in registers.
    {"bf16_experts_deep", kBf16, 1024, 9248, 40, 8, 128, false, false, 0, 0, false, 1.0f, 8, 2,
     416},
    {"fp8_experts", kFp8, 1088, 512, 16, 8, 128, false, true, 64, 0, false, 1.0f, 40, 3, 704,
     false},
    {"fp8_all_experts", kFp8, 640, 9280, 40, 8, 128, false, false, 150, 0, true, 1.0f, 8, 8, 4096},
    {"bf16_heads_of_96", kBf16, 768, 544, 8, 8, 96},
    {"int4_heads_of_96", kInt4, 768, 544, 8, 4, 96},
};
INSTANTIATE_TEST_SUITE_P(Models, DecodeStepTest, ::testing::ValuesIn(kModels),
                         [](const auto& info) { return std::string(info.param.name); });

// The one with an MLP of 33,856 columns has scales of more K tiles than a warp has at a time.
const DecodeStepModel kBlockScales[] = {
    WithBlockScales("fp8_blocks", kModels[9]),
    WithBlockScales("fp8_blocks_wide", kModels[10]),
    WithBlockScales("fp8_blocks_deep", kModels[11]),
    WithBlockScales("fp8_blocks_window", kModels[12]),
    WithBlockScales("fp8_blocks_deeper", {"", kFp8, 512, 33856, 8, 2, 64}),
    WithBlockScales("fp8_blocks_experts", kModels[24]),
    WithBlockScales("fp8_blocks_all_experts", kModels[25]),
};
INSTANTIATE_TEST_SUITE_P(BlockScales, DecodeStepTest, ::testing::ValuesIn(kBlockScales),
                         [](const auto& info) { return std::string(info.param.name); });

const DecodeStepModel kQuantizedCaches[] = {
    WithCache("fp8_cache", kModels[0], kFp8Cache),
    WithCache("int8_cache", kModels[0], kInt8Cache),
    WithCache("int8_cache_wide", kModels[1], kInt8Cache),
    WithCache("fp8_cache_biases_window", kModels[3], kFp8Cache),
    WithCache("int8_cache_head_norms", kModels[4], kInt8Cache),
    WithCache("int8_cache_rope_of_a_quarter", kModels[6], kInt8Cache),
    WithCache("fp8_cache_many_heads", kModels[7], kFp8Cache),
    WithCache("fp8_cache_released_blocks", kModels[8], kFp8Cache),
    WithCache("int8_cache_fp8", kModels[9], kInt8Cache),
    WithCache("int8_cache_fp8_window", kModels[12], kInt8Cache),
    WithCache("fp8_cache_int4", kModels[14], kFp8Cache),
    WithCache("int8_cache_int4_deep", kModels[16], kInt8Cache),
    WithCache("fp8_cache_experts", kModels[18], kFp8Cache),
    WithCache("int8_cache_int4_experts", kModels[22], kInt8Cache),
    WithCache("int8_cache_fp8_experts", kModels[24], kInt8Cache),
    WithCache("int8_cache_heads_of_96", kModels[26], kInt8Cache),
    WithCache("fp8_cache_int4_heads_of_96", kModels[27], kFp8Cache),
};
INSTANTIATE_TEST_SUITE_P(QuantizedCaches, DecodeStepTest, ::testing::ValuesIn(kQuantizedCaches),
                         [](const auto& info) { return std::string(info.param.name); });

// The same models, those without biases too, with random biases.
class DecodeStepBiasTest : public DecodeStepTest {};

TEST_P(DecodeStepBiasTest, LogitsEqualThoseOfSeparateKernels) {
  CompareLogits();
}

std::vector<DecodeStepModel> ModelsWithoutBiases() {
  std::vector<DecodeStepModel> models;
  for (const DecodeStepModel& model : kModels) {
    if (!model.has_biases) models.push_back(WithBiases(model));
  }
  return models;
}
INSTANTIATE_TEST_SUITE_P(Models, DecodeStepBiasTest, ::testing::ValuesIn(ModelsWithoutBiases()),
                         [](const auto& info) { return std::string(info.param.name); });

class DecodeStepOrderTest : public testing::GpuTest<::testing::Test> {};

TEST_F(DecodeStepOrderTest, OverlappedStepsSampleTheSameTokens) {
  for (const DecodeStepModel& model : {kModels[0], kModels[14]}) {
    Steps overlapping(model, true), plain(model, true);
    ASSERT_TRUE(overlapping.ok() && plain.ok());
    overlapping.Prefill();
    plain.Prefill();
    for (const int32_t num_rows : {5, 8, 1, 3}) {
      EXPECT_EQ(overlapping.Generate(num_rows, 12, true), plain.Generate(num_rows, 12, false))
          << model.name << ", " << num_rows << " rows";
    }
  }
}

// Words that are not ready are NaNs as well, with another bit pattern.
TEST_F(DecodeStepOrderTest, NanValuesDoNotBlockTheStep) {
  std::vector<DecodeStepModel> models(3, kModels[0]);
  models[1].format = kFp8;
  models[2].format = kInt4, models[2].cache = kFp8Cache;
  for (DecodeStepModel model : models) {
    model.embedding_scale = std::numeric_limits<float>::quiet_NaN();
    Steps steps(model, true);
    ASSERT_TRUE(steps.ok());
    steps.Prefill();
    for (const int32_t num_rows : {8, 1, 3}) {
      const std::vector<float> logits = steps.Decode(num_rows);
      EXPECT_TRUE(std::isnan(logits.front()) && std::isnan(logits.back())) << num_rows << " rows";
    }
  }
}

// Both models' launches need every multiprocessor, and a third model's kernels run between them.
TEST_F(DecodeStepOrderTest, ModelsThatShareADeviceSampleTheSameTokensAsAlone) {
  constexpr int32_t kRows = 5, kSteps = 600;
  const DecodeStepModel models[] = {kModels[0], kModels[14]};
  std::vector<int32_t> alone[2], together[2];
  for (int32_t i = 0; i < 2; ++i) {
    Steps steps(models[i], true);
    ASSERT_TRUE(steps.ok());
    steps.Prefill();
    alone[i] = steps.Generate(kRows, kSteps, true);
  }
  Steps first(models[0], true), second(models[1], true), other(models[0], false);
  ASSERT_TRUE(first.ok() && second.ok() && other.ok());
  std::latch ready(3);
  const auto run = [&](Steps& steps, std::vector<int32_t>* drawn) {
    steps.Prefill();
    ready.arrive_and_wait();
    const std::vector<int32_t> ids = steps.Generate(kRows, kSteps, true);
    if (drawn != nullptr) *drawn = ids;
  };
  std::thread threads[] = {std::thread([&] { run(first, &together[0]); }),
                           std::thread([&] { run(second, &together[1]); }),
                           std::thread([&] { run(other, nullptr); })};
  for (std::thread& thread : threads) thread.join();
  for (int32_t i = 0; i < 2; ++i) EXPECT_EQ(together[i], alone[i]) << models[i].name;
}

TEST_F(DecodeStepOrderTest, ATrialTellsWhetherTheDeviceStartsAllBlocks) {
  const DeviceMemory head = testing::ToDevice(std::vector<uint16_t>(16 * 512, 0));
  const DeviceMemory norm = testing::ToDevice(std::vector<uint16_t>(512, 0));
  const DeviceMemory state = testing::ToDevice(std::vector<DecodeStepState>(1));
  int processors = 0;
  ASSERT_EQ(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0), cudaSuccess);
  for (const WeightFormat format : {kBf16, kFp8, kInt4}) {
    DecodeStepParams params = {};
    params.format = format;
    params.scales_per_block = 1;
    params.hidden_size = params.inner_size = 512;
    params.num_heads = params.num_kv_heads = 8;
    params.head_dim = 64;
    params.num_layers = 7;  // not run
    params.head = head.as<__nv_bfloat16>();
    params.final_norm = norm.as<__nv_bfloat16>();
    params.head_outputs = 1008;
    params.state = state.as<DecodeStepState>();
    ASSERT_TRUE(FitsDecodeStep(SizesOf(params)));
    EXPECT_EQ(TryDecodeStep(params, processors, nullptr), cudaSuccess);
    EXPECT_EQ(TryDecodeStep(params, 10 * processors, nullptr), cudaErrorCooperativeLaunchTooLarge);
    EXPECT_EQ(TryDecodeStep(params, processors, nullptr), cudaSuccess);
    const DecodeStepState left = testing::ToHost<DecodeStepState>(state, 1)[0];
    EXPECT_EQ(left.num_ended, 0u);
    EXPECT_EQ(left.num_rows[0] + left.num_rows[1], 0u);
  }
}

}  // namespace
}  // namespace nereid::gpu
