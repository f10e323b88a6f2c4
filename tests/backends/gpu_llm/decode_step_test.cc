// Fused decode steps against the same steps with separate kernels.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <latch>
#include <limits>
#include <string>
#include <thread>

#include "backends/gpu_llm/gpu_executor.h"
#include "backends/gpu_llm/kernels/step/decode_step.h"
#include "tests/backends/gpu_llm/gpu_test.h"

namespace nereid::gpu {
namespace {

using testing::RelativeError;

struct DecodeStepModel {
  const char* name = "";
  WeightFormat format = WeightFormat::kBf16;
  int32_t hidden = 0, inner = 0, num_heads = 0, num_kv_heads = 0, head_dim = 0;
  bool has_biases = false, has_head_norms = false;
  int32_t window = 0;    // of the middle one of three layers
  int32_t rope_dim = 0;  // 0: the whole head
  bool all_have_windows = false;
  float embedding_scale = 1.0f;
  // Of the first and the last layer.
  int32_t num_experts = 0, experts_per_token = 0, expert_inner = 0;
  bool normalizes_experts = true;
  CacheFormat cache = CacheFormat::kBf16;
  bool has_block_scales = false;  // fp8
};

DecodeStepModel WithCache(const char* name, DecodeStepModel model, CacheFormat cache) {
  model.name = name;
  model.cache = cache;
  return model;
}
DecodeStepModel WithBlockScales(const char* name, DecodeStepModel model) {
  model.name = name;
  model.has_block_scales = true;
  return model;
}
// With biases of q, k and v, which the models with `has_biases` have already.
DecodeStepModel WithBiases(DecodeStepModel model) {
  model.has_biases = true;
  return model;
}
// One launch never quantizes inputs, so that separate kernels do so only where they must: experts
// in fp8 are stored as bf16 otherwise.
bool QuantizesInput(const DecodeStepModel& model) {
  return model.format == WeightFormat::kFp8 && model.num_experts > 0;
}
llm::DecoderModel Build(const DecodeStepModel& model) {
  llm::DecoderModel result;
  llm::DecoderSpec& spec = result.spec;
  spec.architecture = "test";
  spec.vocab_size = 1008;
  spec.hidden_size = model.hidden;
  spec.intermediate_size = model.inner;
  spec.num_heads = model.num_heads;
  spec.num_kv_heads = model.num_kv_heads;
  spec.head_dim = model.head_dim;
  spec.max_positions = 2048;
  spec.norm.epsilon = 1e-5f;
  spec.attention_scale = 1.0f / std::sqrt(static_cast<float>(model.head_dim));
  spec.qkv_bias = model.has_biases;
  spec.qk_norm = model.has_head_norms;
  spec.embedding_scale = model.embedding_scale;
  llm::RopeSpec rope;
  rope.dim = model.rope_dim > 0 ? model.rope_dim : model.head_dim;
  for (int32_t i = 0; i < rope.dim / 2; ++i)
    rope.inv_freq.push_back(
        std::pow(1e4f, -2.0f * static_cast<float>(i) / static_cast<float>(rope.dim)));
  spec.ropes = {rope};
  spec.layers.resize(3);
  for (int32_t i = 0; i < 3; ++i) {
    if (i == 1 || model.all_have_windows) spec.layers[i].sliding_window = model.window;
    spec.layers[i].is_moe = i != 1 && model.num_experts > 0;
  }
  spec.moe.num_experts = model.num_experts;
  spec.moe.experts_per_token = model.experts_per_token;
  spec.moe.intermediate_size = model.expert_inner;
  spec.moe.normalize_top_k = model.normalizes_experts;
  return result;
}

constexpr int32_t kLengths[] = {1, 63, 64, 127, 130, 391, 700, 1500};
constexpr int32_t kNumSequences = 8, kBlocksEach = 25;
constexpr float kBiasBound = 0.5f;  // queries, keys and values have a deviation of about 1

class Steps {
 public:
  Steps(const DecodeStepModel& model, bool fuses) {
    GpuExecutorOptions options;
    options.max_num_sequences = kNumSequences;
    options.max_num_tokens = 2048;
    options.max_cache_tokens = kNumSequences * kBlocksEach * 64;
    options.fuses_decode = fuses;
    options.cache_format = model.cache;
    options.dummy = DummyWeights{.seed = 7,
                                 .format = model.format,
                                 .quantizes_input = QuantizesInput(model),
                                 .has_block_scales = model.has_block_scales,
                                 .bias_bound = kBiasBound};
    cache_ = model.cache;
    auto made = GpuExecutor::Create(Build(model), options);
    EXPECT_TRUE(made.ok()) << made.status().message();
    if (made.ok()) executor_ = std::move(*made);
    for (int32_t i = 0; i < kNumSequences; ++i) {
      for (int32_t b = 0; b < kBlocksEach;
           ++b)  // the last entry, block 0, is not used by a sequence
        tables_[i].push_back((b * kNumSequences + i + 1) % (kBlocksEach * kNumSequences));
    }
  }
  bool ok() const { return executor_ != nullptr; }
  bool fuses() const { return executor_->fuses_decode(); }

  // Fills the cache with NaN, as another model's sequences may leave it. Codes are never NaN:
  // quantized caches get large codes with a scale of 8e37.
  void FillCache() {
    EXPECT_TRUE(executor_->FillCache(cache_ == CacheFormat::kBf16 ? 0xff : 0x7e).ok());
  }
  void Prefill() {
    for (int32_t i = 0; i < kNumSequences; ++i) {
      llm::StepBatch batch;
      Add(batch, i, kLengths[i]);
      Submit(batch);
      Collect();
    }
  }
  // From now on block table entries that no layer can see any more name block 0.
  void ReleaseBlocks(int32_t window) { releases_ = window; }
  // Returns the logits of one token of each of the first sequences.
  std::vector<float> Decode(int32_t num_rows) {
    llm::StepBatch batch;
    for (int32_t i = 0; i < num_rows; ++i) Add(batch, i, 1);
    Submit(batch);
    Collect();
    return *executor_->ReadLogits();
  }
  // Returns the last logits of each of the first sequences, to which it adds a prompt. Separate
  // kernels run.
  std::vector<float> Continue(int32_t num_rows, int32_t num_tokens) {
    llm::StepBatch batch;
    for (int32_t i = 0; i < num_rows; ++i) Add(batch, i, num_tokens);
    Submit(batch);
    Collect();
    return *executor_->ReadLogits();
  }
  // Returns the logits of the newest token of a sequence and of `num_drafts` tokens behind it, in
  // one step. The sequence stays as it is.
  std::vector<float> Verify(int32_t i, int32_t num_drafts) {
    llm::StepBatch batch;
    const int32_t num_cached = num_cached_[i];
    Add(batch, i, 1 + num_drafts);
    batch.entries[0].num_draft_tokens = num_drafts;
    batch.entries[0].num_logits = 1 + num_drafts;
    Submit(batch);
    Collect();
    num_cached_[i] = num_cached;
    return *executor_->ReadLogits();
  }
  // The same in single steps.
  std::vector<float> DecodeEach(int32_t i, int32_t num_drafts) {
    std::vector<float> all;
    const int32_t num_cached = num_cached_[i];
    const std::vector<int32_t> table = tables_[i];
    for (int32_t step = 0; step <= num_drafts; ++step) {
      llm::StepBatch batch;
      Add(batch, i, 1);
      Submit(batch);
      Collect();
      const std::vector<float> logits = *executor_->ReadLogits();
      all.insert(all.end(), logits.begin(), logits.end());
    }
    num_cached_[i] = num_cached;
    tables_[i] = table;  // with the blocks that the last steps released
    return all;
  }
  // Returns the tokens that the first sequences sample, each from the previous one. `overlaps`: a
  // step is submitted while the previous one runs.
  std::vector<int32_t> Generate(int32_t num_rows, int32_t num_steps, bool overlaps) {
    std::vector<int32_t> drawn;
    for (int32_t step = 0; step < num_steps; ++step) {
      llm::StepBatch batch;
      for (int32_t i = 0; i < num_rows; ++i) {
        Add(batch, i, 1);
        if (step > 0)
          batch.token_ids[i] =
              overlaps ? llm::PendingTokenId(i) : drawn[drawn.size() - num_rows + i];
      }
      Submit(batch);
      if (step > 0 || !overlaps) Append(Collect(), drawn);
    }
    if (overlaps) Append(Collect(), drawn);
    return drawn;
  }

 private:
  void Add(llm::StepBatch& batch, int32_t i, int32_t num_tokens) {
    for (int32_t b = 0; releases_ > 0 && b < (num_cached_[i] + 1 - releases_) / 64; ++b)
      tables_[i][b] = 0;
    llm::BatchEntry& sequence = batch.entries.emplace_back();
    sequence.first_token = static_cast<int32_t>(batch.token_ids.size());
    sequence.num_tokens = num_tokens;
    sequence.num_cached = num_cached_[i];
    sequence.block_table = tables_[i];
    sequence.slot = i;
    sequence.num_logits = 1;
    sequence.samples = true;
    sequence.sampling = {&greedy_, {}, 0, {}};
    for (int32_t t = 0; t < num_tokens; ++t)
      batch.token_ids.push_back((num_cached_[i] + t) * 37 % 991 + i);
    num_cached_[i] += num_tokens;
  }
  void Submit(const llm::StepBatch& batch) {
    const Status submitted = executor_->Submit(batch);
    ASSERT_TRUE(submitted.ok()) << submitted.message();
  }
  llm::StepResult Collect() {
    auto collected = executor_->Collect();
    EXPECT_TRUE(collected.ok()) << collected.status().message();
    return collected.ok() ? std::move(*collected) : llm::StepResult();
  }
  static void Append(const llm::StepResult& result, std::vector<int32_t>& drawn) {
    for (const llm::SampledToken& token : result.tokens) drawn.push_back(token.id);
  }

  std::unique_ptr<GpuExecutor> executor_;
  CacheFormat cache_ = CacheFormat::kBf16;
  std::vector<int32_t> tables_[kNumSequences];
  int32_t num_cached_[kNumSequences] = {};
  int32_t releases_ = 0;
  llm::SamplingParams greedy_;
};

// The median over the rows of the error of a row: where two experts have nearly equal scores, a
// rounding decides which one a row gets.
float MedianError(const std::vector<float>& actual, const std::vector<float>& expected,
                  int32_t num_rows) {
  const size_t width = expected.size() / num_rows;
  std::vector<float> errors;
  for (int32_t row = 0; row < num_rows; ++row) {
    const auto part = [&](const std::vector<float>& all) {
      return std::vector<float>(all.begin() + static_cast<std::ptrdiff_t>(row * width),
                                all.begin() + static_cast<std::ptrdiff_t>((row + 1) * width));
    };
    errors.push_back(static_cast<float>(RelativeError(part(actual), part(expected))));
  }
  std::sort(errors.begin(), errors.end());
  return errors[errors.size() / 2];
}

class DecodeStepTest : public testing::GpuTest<::testing::TestWithParam<DecodeStepModel>> {
 protected:
  // The order of additions differs, so that some roundings to bf16 differ.
  static void CompareLogits() {
    Steps fused(GetParam(), true), plain(GetParam(), false);
    ASSERT_TRUE(fused.ok() && plain.ok());
    ASSERT_TRUE(fused.fuses() && !plain.fuses());
    fused.Prefill();
    plain.Prefill();
    if (GetParam().all_have_windows) fused.ReleaseBlocks(GetParam().window);
    for (const int32_t num_rows : {1, 8, 3, 2, 5, 6, 8, 7, 4, 1, 8}) {  // 8 often: also by a graph
      const std::vector<float> expected = plain.Decode(num_rows);
      EXPECT_LT(Error(fused.Decode(num_rows), expected, num_rows), Tolerance(num_rows))
          << num_rows << " rows";
    }
  }
  static bool Selects() { return GetParam().experts_per_token < GetParam().num_experts; }
  static float Error(const std::vector<float>& actual, const std::vector<float>& expected,
                     int32_t num_rows) {
    return Selects() ? MedianError(actual, expected, num_rows)
                     : static_cast<float>(RelativeError(actual, expected));
  }
  // Of few rows the median may be that of a row with another expert, which is still one of nearly
  // equal score. The weights of experts are applied before a rounding, not after it.
  static float Tolerance(int32_t num_rows) {
    if (Selects() && num_rows < 5) return QuantizesInput(GetParam()) ? 0.4f : 0.2f;
    if (QuantizesInput(GetParam())) return 0.1f;
    return GetParam().num_experts > 0 ? 3e-2f : 2e-2f;
  }
};

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

constexpr auto kBf16 = WeightFormat::kBf16, kFp8 = WeightFormat::kFp8, kInt4 = WeightFormat::kInt4;
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
    {"fp8_heads_of_16", kFp8, 576, 576, 32, 32, 16, false, false, 100, 0, true},
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
    WithBlockScales("fp8_blocks_heads_of_16", kModels[12]),
    WithBlockScales("fp8_blocks_deeper", {"", kFp8, 512, 33856, 8, 2, 64}),
    WithBlockScales("fp8_blocks_experts", kModels[24]),
    WithBlockScales("fp8_blocks_all_experts", kModels[25]),
};
INSTANTIATE_TEST_SUITE_P(BlockScales, DecodeStepTest, ::testing::ValuesIn(kBlockScales),
                         [](const auto& info) { return std::string(info.param.name); });

constexpr auto kFp8Cache = CacheFormat::kFp8, kInt8Cache = CacheFormat::kInt8;
const DecodeStepModel kQuantizedCaches[] = {
    WithCache("fp8_cache", kModels[0], kFp8Cache),
    WithCache("int8_cache", kModels[0], kInt8Cache),
    WithCache("int8_cache_wide", kModels[1], kInt8Cache),
    WithCache("fp8_cache_biases_window", kModels[3], kFp8Cache),
    WithCache("int8_cache_head_norms", kModels[4], kInt8Cache),
    WithCache("fp8_cache_heads_of_16", kModels[5], kFp8Cache),
    WithCache("int8_cache_rope_of_a_quarter", kModels[6], kInt8Cache),
    WithCache("fp8_cache_many_heads", kModels[7], kFp8Cache),
    WithCache("fp8_cache_released_blocks", kModels[8], kFp8Cache),
    WithCache("int8_cache_fp8", kModels[9], kInt8Cache),
    WithCache("int8_cache_fp8_heads_of_16", kModels[12], kInt8Cache),
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
  for (const WeightFormat format : {kBf16, kFp8, kInt4}) {
    DecodeStepModel model = kModels[0];
    model.format = format;
    if (format == kInt4) model.cache = kFp8Cache;
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
