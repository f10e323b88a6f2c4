// LoRA adapters, rows of embeddings in prompts, and attention sinks on two GPUs, against one GPU.
#include "backends/gpu_llm/sharded_executor.h"
#include "backends/llm_core/prompt/prompt_embeddings.h"
#include "tests/backends/cpu_reference/golden.h"
#include "tests/backends/gpu_llm/adapter_parts.h"
#include "tests/backends/gpu_llm/gpu_test.h"

namespace nereid::gpu {
namespace {

using testing::AdapterPointer;
using testing::LogitsOf;
using testing::MakeAdapter;
using testing::Part;
using testing::RelativeError;

// bf16 with one more rounding for each all-reduce; and what the limits of a test must change.
constexpr double kShardedTolerance = 8e-2;

class ShardedFeaturesTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!testing::HasPair()) GTEST_SKIP() << "no two GPUs that reach each other's memory";
    const std::string directory = cpu::testing::FindTiny(GetParam());
    if (directory.empty()) GTEST_SKIP() << "no test data for " << GetParam();
    checkpoint_ = std::make_shared<const llm::Checkpoint>(*llm::Checkpoint::Open(directory));
    options_.max_num_sequences = 8;
    options_.max_num_tokens = 512;
    options_.max_cache_tokens = 8 * 256;
    options_.max_positions = 320;
    options_.steps_before_recording = 1;
  }
  llm::DecoderModel Model(const char* windows = "", int32_t num_sinks = 0) const {
    llm::DecoderModel model = *llm::ReadDecoder(*checkpoint_, true);
    EXPECT_TRUE(llm::LimitAttention(windows, num_sinks, model.spec).ok());
    return model;
  }
  std::unique_ptr<GpuExecutor> LoadOne(const llm::DecoderModel& model) const {
    auto executor = GpuExecutor::Create(model, options_);
    EXPECT_TRUE(executor.ok()) << executor.status().message();
    return executor.ok() ? std::move(*executor) : nullptr;
  }
  std::unique_ptr<ShardedExecutor> LoadTwo(const llm::DecoderModel& model) const {
    auto executor = ShardedExecutor::Create(model, options_, testing::kPair);
    EXPECT_TRUE(executor.ok()) << executor.status().message();
    return executor.ok() ? std::move(*executor) : nullptr;
  }
  // The logits of the last token of `ids`, in steps of at most `chunk` tokens.
  static std::vector<float> Run(llm::Executor& executor, const std::vector<int32_t>& ids,
                                const llm::PromptEmbeddings* embeddings, int32_t chunk) {
    const auto length = static_cast<int32_t>(ids.size());
    std::vector<int32_t> table(executor.limits().num_blocks);
    std::iota(table.rbegin(), table.rend(), 0);
    llm::SamplingParams greedy;
    std::vector<float> logits;
    for (int32_t first = 0; first < length; first += chunk) {
      llm::StepBatch batch;
      llm::BatchEntry& entry = batch.entries.emplace_back();
      entry.num_cached = first;
      entry.num_tokens = std::min(chunk, length - first);
      entry.num_logits = first + entry.num_tokens == length ? 1 : 0;
      entry.num_prompt = length;
      entry.samples = entry.returns_logits = entry.num_logits == 1;
      if (entry.samples) entry.sampling = {&greedy, ids, length, {}};
      entry.block_table = table;
      entry.prompt_embeddings = embeddings;
      batch.token_ids.assign(ids.begin() + first, ids.begin() + first + entry.num_tokens);
      const Status submitted = executor.Submit(batch);
      EXPECT_TRUE(submitted.ok()) << submitted.message();
      auto collected = executor.Collect();
      EXPECT_TRUE(collected.ok()) << collected.status().message();
      if (!submitted.ok() || !collected.ok()) return {};
      if (entry.samples) logits = std::move(collected->logits[0]);
    }
    return logits;
  }

  std::shared_ptr<const llm::Checkpoint> checkpoint_;
  GpuExecutorOptions options_;
};

TEST_P(ShardedFeaturesTest, AdaptersHaveTheLogitsOfOneGpu) {
  options_.adapter_memory_bytes = int64_t{8} << 20;
  const llm::DecoderModel model = Model();
  const auto one = LoadOne(model);
  const auto two = LoadTwo(model);
  ASSERT_TRUE(one && two);
  ASSERT_TRUE(two->features().adapters);
  const AdapterPointer first = MakeAdapter(model, 3, false, 1);
  const AdapterPointer second = MakeAdapter(model, 8, true, 1000);
  const AdapterPointer third = MakeAdapter(model, 37, false, 2000);
  ASSERT_TRUE(first && second && third);
  EXPECT_LT(*two->AdapterBytes(*third), *one->AdapterBytes(*third));
  std::vector<int32_t> tokens(60);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 37 % 89);
  const std::vector<int32_t> short_tokens(tokens.begin(), tokens.begin() + 30);
  std::vector<Part> parts = {{tokens, first},
                             {tokens, nullptr},
                             {short_tokens, second},
                             {tokens, third},
                             {short_tokens, first}};
  const auto wanted = LogitsOf(*one, parts), got = LogitsOf(*two, parts);
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < parts.size(); ++i)
    EXPECT_LT(RelativeError(got[i], wanted[i]), kShardedTolerance) << "part " << i;
  EXPECT_GT(RelativeError(wanted[0], wanted[1]), 2 * kShardedTolerance);
  for (int32_t step = 0; step < 6; ++step) {  // decode steps, most of which are recorded
    for (Part& part : parts) {
      part.num_cached += static_cast<int32_t>(part.tokens.size());
      part.tokens = {5 + step};
    }
    const auto wanted_rows = LogitsOf(*one, parts, 1), got_rows = LogitsOf(*two, parts, 1);
    ASSERT_EQ(got_rows.size(), wanted_rows.size());
    for (size_t i = 0; i < parts.size(); ++i)
      EXPECT_LT(RelativeError(got_rows[i], wanted_rows[i]), kShardedTolerance) << step << " " << i;
  }
  EXPECT_GT(two->counts().num_recorded_steps, 0);
}

// While other adapters come and go in memory for two.
TEST_P(ShardedFeaturesTest, AdaptersThatTakeTurnsKeepTheirBits) {
  options_.adapter_memory_bytes = int64_t{8} << 20;
  const llm::DecoderModel model = Model();
  std::vector<AdapterPointer> adapters = {nullptr};
  for (uint32_t i = 1; i <= 5; ++i)
    adapters.push_back(MakeAdapter(model, i % 2 == 0 ? 4 : 20, false, 500 * i));
  const auto sized = LoadTwo(model);
  ASSERT_NE(sized, nullptr);
  options_.adapter_memory_bytes = 2 * *sized->AdapterBytes(*adapters[1]);
  options_.is_batch_invariant = true;
  const auto two = LoadTwo(model);
  ASSERT_NE(two, nullptr);
  std::vector<int32_t> tokens(33);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 31 % 97);
  std::vector<std::vector<float>> alone;
  for (const AdapterPointer& adapter : adapters)
    alone.push_back(LogitsOf(*two, {{tokens, adapter}})[0]);
  for (const auto& [i, j] : {std::pair{1, 2}, {3, 4}, {5, 1}, {2, 3}}) {
    const auto mixed =
        LogitsOf(*two, {{tokens, adapters[i]}, {tokens, nullptr}, {tokens, adapters[j]}});
    EXPECT_EQ(mixed[0], alone[i]);
    EXPECT_EQ(mixed[1], alone[0]);
    EXPECT_EQ(mixed[2], alone[j]);
  }
}

// Steps with more and more such rows, for which each GPU needs more pinned memory.
TEST_P(ShardedFeaturesTest, RowsOfEmbeddingsHaveTheLogitsOfOneGpu) {
  const llm::DecoderModel model = Model();
  const auto one = LoadOne(model);
  const auto two = LoadTwo(model);
  ASSERT_TRUE(one && two);
  ASSERT_TRUE(two->features().prompt_embeddings);
  const llm::DecoderSpec& spec = one->spec();
  llm::PromptEmbeddings embeddings;
  embeddings.vocab_size = spec.vocab_size;
  embeddings.hidden_size = spec.hidden_size;
  embeddings.extra_ids.assign(1, 0);
  for (int32_t i = 0; i < spec.hidden_size; ++i)
    embeddings.rows.push_back(0.01f * static_cast<float>(i % 17 - 8));
  std::vector<int32_t> ids(240), tokens;
  for (int32_t i = 0; i < 240; ++i) {
    tokens.push_back(i * 7 % 31);
    const bool is_row = i % 5 < 3;
    embeddings.row_of.push_back(is_row ? 0 : llm::PromptEmbeddings::kNoRow);
    ids[i] = is_row ? spec.vocab_size + 1000 : tokens[i];
  }
  const std::vector<float> expected = Run(*one, ids, &embeddings, 240);
  for (const int32_t chunk : {7, 33, 100, 240})
    EXPECT_LT(RelativeError(Run(*two, ids, &embeddings, chunk), expected), kShardedTolerance)
        << chunk;
  EXPECT_GT(RelativeError(Run(*two, tokens, nullptr, 240), expected), kShardedTolerance);
}

TEST_P(ShardedFeaturesTest, SinksHaveTheLogitsOfOneGpu) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 300; ++i) ids.push_back(i * i % 89 + i % 7);
  const llm::DecoderModel model = Model("90,40", 4);
  const auto one = LoadOne(model);
  const auto two = LoadTwo(model);
  ASSERT_TRUE(one && two);
  EXPECT_EQ(two->limits().num_sink_tokens, 4);
  EXPECT_EQ(two->limits().attention_window, one->limits().attention_window);
  const std::vector<float> expected = Run(*one, ids, nullptr, 256);
  for (const int32_t chunk : {256, 50, 1})
    EXPECT_LT(RelativeError(Run(*two, ids, nullptr, chunk), expected), kShardedTolerance) << chunk;
  const auto unlimited = LoadTwo(Model());
  ASSERT_NE(unlimited, nullptr);
  EXPECT_GT(RelativeError(Run(*unlimited, ids, nullptr, 256), expected), kShardedTolerance);
}

TEST_P(ShardedFeaturesTest, WeightsInHostMemoryGiveTheSameBits) {
  options_.is_batch_invariant = true;
  const llm::DecoderModel model = Model();
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 100; ++i) ids.push_back(i * i % 89 + i % 7);
  std::vector<std::vector<float>> wanted;
  for (const double fraction : {1.0, 0.5, 0.0}) {
    options_.resident_weights_fraction = fraction;
    const auto two = LoadTwo(model);
    ASSERT_NE(two, nullptr);
    std::vector<Part> parts = {{ids, nullptr}};
    std::vector<std::vector<float>> got = {LogitsOf(*two, parts)[0]};
    for (int32_t step = 0; step < 5; ++step) {  // decode steps, most of which are recorded
      parts[0].num_cached += static_cast<int32_t>(parts[0].tokens.size());
      parts[0].tokens = {3 + step};
      got.push_back(LogitsOf(*two, parts, 1)[0]);
    }
    if (wanted.empty()) wanted = got;
    EXPECT_EQ(got, wanted) << fraction;
    EXPECT_GT(two->counts().num_recorded_steps, 0);
    if (fraction == 0.0 && model.spec.num_layers() > WeightStream::kNumBuffers) {
      EXPECT_GT(two->rank(1).streamed_bytes(), 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, ShardedFeaturesTest, ::testing::Values("llama", "qwen2", "gemma2"));

}  // namespace
}  // namespace nereid::gpu
