// Embeddings in the place of tokens, and attention sinks, against the CPU's executor. A row that
// equals a token's own embedding gives the logits of that token, bit for bit.
#include <cstring>
#include <numeric>

#include "backends/cpu_reference/cpu_executor.h"
#include "backends/gpu_llm/gpu_executor.h"
#include "backends/llm_core/prompt/prompt_embeddings.h"
#include "tests/backends/cpu_reference/golden.h"
#include "tests/backends/gpu_llm/gpu_test.h"

namespace nereid::gpu {
namespace {

using testing::RelativeError;

constexpr double kCpuTolerance = 8e-2;  // as in executor_test.cc

class LogitsTest : public testing::GpuTest<::testing::TestWithParam<const char*>> {
 protected:
  void SetUp() override {
    testing::GpuTest<::testing::TestWithParam<const char*>>::SetUp();
    if (IsSkipped()) return;
    const std::string directory = cpu::testing::FindTiny(GetParam());
    if (directory.empty()) GTEST_SKIP() << "no test data for " << GetParam();
    checkpoint_ = std::make_shared<const llm::Checkpoint>(*llm::Checkpoint::Open(directory));
  }
  // With the windows and sinks of the parameters max_attention_window_size and sink_token_length.
  void Load(const char* windows, int32_t num_sinks, CacheFormat format = CacheFormat::kBf16,
            bool is_batch_invariant = false) {
    GpuExecutorOptions options;
    options.max_num_sequences = 2;
    options.max_num_tokens = 256;
    options.max_positions = 320;
    options.cache_format = format;
    options.is_batch_invariant = is_batch_invariant;
    llm::DecoderModel model = *llm::ReadDecoder(*checkpoint_);
    ASSERT_TRUE(llm::LimitAttention(windows, num_sinks, model.spec).ok());
    auto gpu = GpuExecutor::Create(model, options);
    ASSERT_TRUE(gpu.ok()) << gpu.status().message();
    gpu_ = std::move(*gpu);
    cpu::CpuExecutorOptions of_cpu;
    of_cpu.num_threads = 2;
    of_cpu.max_num_sequences = 2;
    of_cpu.max_num_tokens = 256;
    of_cpu.max_positions = 320;
    cpu_ = *cpu::CpuExecutor::Create(checkpoint_, std::move(model), of_cpu);
  }

  // The logits of the last token of `ids`, in steps of at most `chunk` tokens.
  template <typename AnyExecutor>
  std::vector<float> Run(AnyExecutor& executor, const std::vector<int32_t>& ids,
                         const llm::PromptEmbeddings* embeddings, int32_t chunk) {
    const auto length = static_cast<int32_t>(ids.size());
    std::vector<int32_t> table(executor.limits().num_blocks);
    std::iota(table.rbegin(), table.rend(), 0);
    llm::SamplingParams greedy;
    for (int32_t first = 0; first < length; first += chunk) {
      llm::StepBatch batch;
      llm::BatchEntry& entry = batch.entries.emplace_back();
      entry.num_cached = first;
      entry.num_tokens = std::min(chunk, length - first);
      entry.num_logits = first + entry.num_tokens == length ? 1 : 0;
      entry.num_prompt = length;
      entry.samples = entry.num_logits == 1;
      if (entry.samples) entry.sampling = {&greedy, ids, length, {}};
      entry.block_table = table;
      entry.prompt_embeddings = embeddings;
      batch.token_ids.assign(ids.begin() + first, ids.begin() + first + entry.num_tokens);
      const Status submitted = executor.Submit(batch);
      EXPECT_TRUE(submitted.ok()) << submitted.message();
      const auto collected = executor.Collect();
      EXPECT_TRUE(collected.ok()) << collected.status().message();
      if (!submitted.ok() || !collected.ok())
        return std::vector<float>(executor.limits().vocab_size, NAN);
    }
    if constexpr (std::is_same_v<AnyExecutor, GpuExecutor>) {
      return *executor.ReadLogits();
    } else {
      return {executor.logits().begin(), executor.logits().end()};
    }
  }
  // The model's embedding of a token, as in the checkpoint.
  std::vector<float> EmbeddingOf(int32_t token) {
    for (const auto& [name, tensor] : checkpoint_->tensors()) {
      if (!name.ends_with("embed_tokens.weight") && !name.ends_with("wte.weight") &&
          !name.ends_with("embed_in.weight")) {
        continue;
      }
      std::vector<float> row(static_cast<size_t>(tensor.shape[1]));
      std::memcpy(row.data(), tensor.bytes.data() + row.size() * 4 * token, row.size() * 4);
      return row;
    }
    ADD_FAILURE() << "no embedding";
    return {};
  }

  std::shared_ptr<const llm::Checkpoint> checkpoint_;
  std::unique_ptr<GpuExecutor> gpu_;
  std::unique_ptr<cpu::CpuExecutor> cpu_;
};

class PromptRowsTest : public LogitsTest {};

TEST_P(PromptRowsTest, ARowLikeATokenHasTheLogitsOfTheToken) {
  Load("", 0, CacheFormat::kBf16, true);
  if (HasFatalFailure()) return;
  const llm::DecoderSpec& spec = gpu_->spec();
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 100; ++i) tokens.push_back(i * 7 % 31);
  llm::PromptEmbeddings embeddings;
  embeddings.vocab_size = spec.vocab_size;
  embeddings.hidden_size = spec.hidden_size;
  const std::vector<int32_t> replaced = {4, 7, 9, tokens.back()};
  embeddings.extra_ids.assign(replaced.size(), 0);
  for (const int32_t token : replaced) {
    const std::vector<float> row = EmbeddingOf(token);
    embeddings.rows.insert(embeddings.rows.end(), row.begin(), row.end());
  }
  std::vector<int32_t> ids = tokens;
  for (int32_t& id : ids) {
    const auto found = std::find(replaced.begin(), replaced.end(), id);
    const bool is_row = found != replaced.end();
    embeddings.row_of.push_back(is_row ? static_cast<int32_t>(found - replaced.begin())
                                       : llm::PromptEmbeddings::kNoRow);
    if (is_row) id = spec.vocab_size + 1000 + embeddings.row_of.back();
  }
  for (const int32_t chunk : {100, 33, 1}) {
    SCOPED_TRACE(chunk);
    EXPECT_EQ(Run(*gpu_, ids, &embeddings, chunk), Run(*gpu_, tokens, nullptr, chunk));
  }
  // Another row is another answer, and the CPU's.
  for (int32_t i = 0; i < spec.hidden_size; ++i) embeddings.rows[i] = 0.01f * float(i % 17 - 8);
  for (const bool is_table : {true, false}) {
    embeddings.is_table = is_table;
    const std::vector<float> changed = Run(*gpu_, ids, &embeddings, 33);
    EXPECT_NE(changed, Run(*gpu_, tokens, nullptr, 33));
    EXPECT_LT(RelativeError(changed, Run(*cpu_, ids, &embeddings, 33)), kCpuTolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, PromptRowsTest,
                         ::testing::Values("gemma2", "gemma3", "gpt2", "gpt_neox", "llama",
                                           "mistral-swa", "phi3", "qwen2", "qwen3"));

// Prompts in chunks, and then token by token.
class SinksTest : public LogitsTest {};

TEST_P(SinksTest, LogitsEqualTheCpusWithSinksAndWindowsOfEachLayer) {
  struct Limits {
    const char* windows;
    int32_t num_sinks;
  };
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 300; ++i) ids.push_back(i * i % 89 + i % 7);
  for (const CacheFormat format : {CacheFormat::kBf16, CacheFormat::kInt8}) {
    for (const Limits& limits :
         {Limits{"90,40", 4}, Limits{"150,1000", 70}, Limits{"100,33,77", 0}}) {
      SCOPED_TRACE(limits.windows);
      Load(limits.windows, limits.num_sinks, format);
      if (HasFatalFailure()) return;
      EXPECT_EQ(gpu_->limits().num_sink_tokens, limits.num_sinks);
      EXPECT_EQ(gpu_->limits().attention_window, cpu_->limits().attention_window);
      const std::vector<float> expected = Run(*cpu_, ids, nullptr, 256);
      for (const int32_t chunk : {256, 50, 1}) {
        EXPECT_LT(RelativeError(Run(*gpu_, ids, nullptr, chunk), expected), kCpuTolerance) << chunk;
      }
    }
    // The limits are seen in the logits.
    const std::vector<float> limited = Run(*gpu_, ids, nullptr, 256);
    Load("", 0, format);
    if (HasFatalFailure()) return;
    EXPECT_GT(RelativeError(limited, Run(*gpu_, ids, nullptr, 256)), kCpuTolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, SinksTest, ::testing::Values("llama", "qwen2"));

}  // namespace
}  // namespace nereid::gpu
