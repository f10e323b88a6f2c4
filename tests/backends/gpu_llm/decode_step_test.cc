// Decode steps in one launch against the same steps by a kernel an operation.
#include <string>

#include "gpu_llm/gpu_executor.h"
#include "gpu_test.h"

namespace nereid::gpu {
namespace {

using testing::RelativeError;

struct Model {
  const char* name;
  WeightFormat format;
  int32_t hidden, inner, num_heads, num_kv_heads, head_dim;
  bool has_biases, has_head_norms;
  int32_t window;
};

llm::DecoderModel Build(const Model& model) {
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
  llm::RopeSpec rope;
  rope.dim = model.head_dim;
  for (int32_t i = 0; i < rope.dim / 2; ++i)
    rope.inv_freq.push_back(
        std::pow(1e4f, -2.0f * static_cast<float>(i) / static_cast<float>(rope.dim)));
  spec.ropes = {rope};
  spec.layers.resize(3);
  spec.layers[1].sliding_window = model.window;
  return result;
}

constexpr int32_t kLengths[] = {1, 63, 64, 127, 130, 391, 700, 1500};
constexpr int32_t kNumSequences = 8, kBlocksEach = 25;

class Steps {
 public:
  Steps(const Model& model, bool fuses) {
    GpuExecutorOptions options;
    options.max_num_sequences = kNumSequences;
    options.max_num_tokens = 2048;
    options.max_cache_tokens = kNumSequences * kBlocksEach * 64;
    options.fuses_decode = fuses;
    options.dummy = DummyWeights{7, model.format};
    auto made = GpuExecutor::Create(Build(model), options);
    EXPECT_TRUE(made.ok()) << made.status().message();
    if (made.ok()) executor_ = std::move(*made);
    for (int32_t i = 0; i < kNumSequences; ++i) {
      for (int32_t b = 0; b < kBlocksEach; ++b) tables_[i].push_back(b * kNumSequences + i);
    }
  }
  bool ok() const { return executor_ != nullptr; }
  bool fuses() const { return executor_->fuses_decode(); }

  void Prefill() {
    for (int32_t i = 0; i < kNumSequences; ++i) {
      llm::Batch batch;
      Add(batch, i, kLengths[i]);
      Run(batch);
    }
  }
  // Logits of a token of each of the first sequences.
  std::vector<float> Decode(int32_t num_rows) {
    llm::Batch batch;
    for (int32_t i = 0; i < num_rows; ++i) Add(batch, i, 1);
    Run(batch);
    return *executor_->ReadLogits();
  }

 private:
  void Add(llm::Batch& batch, int32_t i, int32_t num_tokens) {
    llm::BatchSequence& sequence = batch.sequences.emplace_back();
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
  void Run(const llm::Batch& batch) {
    const Status submitted = executor_->Submit(batch);
    ASSERT_TRUE(submitted.ok()) << submitted.message();
    const auto collected = executor_->Collect();
    ASSERT_TRUE(collected.ok()) << collected.status().message();
  }

  std::unique_ptr<GpuExecutor> executor_;
  std::vector<int32_t> tables_[kNumSequences];
  int32_t num_cached_[kNumSequences] = {};
  llm::SamplingParams greedy_;
};

class DecodeStepTest : public testing::GpuTest<::testing::TestWithParam<Model>> {};

// Sums add up in another order: a few roundings to bf16 fall differently.
TEST_P(DecodeStepTest, LogitsAreThoseOfAKernelAnOperation) {
  Steps fused(GetParam(), true), plain(GetParam(), false);
  ASSERT_TRUE(fused.ok() && plain.ok());
  ASSERT_TRUE(fused.fuses() && !plain.fuses());
  fused.Prefill();
  plain.Prefill();
  for (const int32_t num_rows : {1, 8, 3, 2, 5, 8, 7, 4, 1, 8}) {  // 8 thrice: twice by a graph
    const std::vector<float> expected = plain.Decode(num_rows);
    EXPECT_LT(RelativeError(fused.Decode(num_rows), expected), 2e-2) << num_rows << " rows";
  }
}

constexpr Model kModels[] = {
    {"bf16", WeightFormat::kBf16, 1024, 1408, 8, 2, 128, false, false, 0},
    {"bf16_wide", WeightFormat::kBf16, 5120, 2080, 40, 8, 128, false, false, 0},
    {"bf16_deep", WeightFormat::kBf16, 512, 9248, 16, 16, 64, false, false, 0},
    {"bf16_biases_window", WeightFormat::kBf16, 608, 1120, 14, 2, 64, true, false, 200},
    {"bf16_head_norms", WeightFormat::kBf16, 1056, 512, 16, 8, 128, false, true, 64},
    {"fp8", WeightFormat::kFp8, 1024, 1408, 8, 2, 128, false, false, 0},
    {"fp8_deep", WeightFormat::kFp8, 1056, 9248, 8, 8, 64, false, false, 0},
    {"int4", WeightFormat::kInt4, 1024, 1408, 8, 2, 128, false, false, 0},
    {"int4_deep", WeightFormat::kInt4, 640, 9248, 16, 4, 64, true, false, 0},
};
INSTANTIATE_TEST_SUITE_P(Models, DecodeStepTest, ::testing::ValuesIn(kModels),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace nereid::gpu
