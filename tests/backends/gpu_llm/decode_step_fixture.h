// The fixture of tests of fused decode steps: made-up models, and executors that run their steps
// fused or with separate kernels.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "backends/gpu_llm/gpu_executor.h"
#include "tests/backends/gpu_llm/gpu_test.h"

namespace nereid::gpu {

constexpr auto kBf16 = WeightFormat::kBf16, kFp8 = WeightFormat::kFp8, kInt4 = WeightFormat::kInt4;
constexpr auto kFp8Cache = CacheFormat::kFp8, kInt8Cache = CacheFormat::kInt8;

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
  void (*change)(llm::DecoderSpec&) = nullptr;
};

inline DecodeStepModel WithCache(const char* name, DecodeStepModel model, CacheFormat cache) {
  model.name = name;
  model.cache = cache;
  return model;
}
inline DecodeStepModel WithBlockScales(const char* name, DecodeStepModel model) {
  model.name = name;
  model.has_block_scales = true;
  return model;
}
// One launch never quantizes inputs, so that separate kernels do so only where they must: experts
// in fp8 are stored as bf16 otherwise.
inline bool QuantizesInput(const DecodeStepModel& model) {
  return model.format == WeightFormat::kFp8 && model.num_experts > 0;
}
inline llm::DecoderModel Build(const DecodeStepModel& model) {
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
  if (model.change != nullptr) model.change(spec);
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
inline float MedianError(const std::vector<float>& actual, const std::vector<float>& expected,
                         int32_t num_rows) {
  const size_t width = expected.size() / num_rows;
  std::vector<float> errors;
  for (int32_t row = 0; row < num_rows; ++row) {
    const auto part = [&](const std::vector<float>& all) {
      return std::vector<float>(all.begin() + static_cast<std::ptrdiff_t>(row * width),
                                all.begin() + static_cast<std::ptrdiff_t>((row + 1) * width));
    };
    errors.push_back(static_cast<float>(testing::RelativeError(part(actual), part(expected))));
  }
  std::sort(errors.begin(), errors.end());
  return errors[errors.size() / 2];
}

class DecodeStepTest : public testing::GpuTest<::testing::TestWithParam<DecodeStepModel>> {
 protected:
  // The order of additions differs, so that some roundings to bf16 differ.
  static void CompareLogits(float least_tolerance = 0.0f) {
    Steps fused(GetParam(), true), plain(GetParam(), false);
    ASSERT_TRUE(fused.ok() && plain.ok());
    ASSERT_TRUE(fused.fuses() && !plain.fuses());
    fused.Prefill();
    plain.Prefill();
    if (GetParam().all_have_windows) fused.ReleaseBlocks(GetParam().window);
    for (const int32_t num_rows : {1, 8, 3, 2, 5, 6, 8, 7, 4, 1, 8}) {  // 8 often: also by a graph
      const std::vector<float> expected = plain.Decode(num_rows);
      EXPECT_LT(Error(fused.Decode(num_rows), expected, num_rows),
                std::max(Tolerance(num_rows), least_tolerance))
          << num_rows << " rows";
    }
  }
  static bool Selects() { return GetParam().experts_per_token < GetParam().num_experts; }
  static float Error(const std::vector<float>& actual, const std::vector<float>& expected,
                     int32_t num_rows) {
    return Selects() ? MedianError(actual, expected, num_rows)
                     : static_cast<float>(testing::RelativeError(actual, expected));
  }
  // Of few rows the median may be that of a row with another expert, which is still one of nearly
  // equal score. The weights of experts are applied before a rounding, not after it.
  static float Tolerance(int32_t num_rows) {
    if (Selects() && num_rows < 5) return QuantizesInput(GetParam()) ? 0.4f : 0.2f;
    if (QuantizesInput(GetParam())) return 0.1f;
    return GetParam().num_experts > 0 ? 3e-2f : 2e-2f;
  }
};

}  // namespace nereid::gpu
