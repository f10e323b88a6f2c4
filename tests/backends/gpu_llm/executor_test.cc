// The GPU executor against the CPU's on the tiny checkpoints, and its release of memory.
#include "backends/gpu_llm/gpu_executor.h"

#include <bit>
#include <list>

#include "backends/llm_core/model/integer_weight_rows.h"
#include "tests/backends/gpu_llm/single_sequence.h"
#include "tests/backends/gpu_llm/tiny_model.h"

namespace nereid::gpu {
namespace {

using cpu::testing::FindTiny;
using cpu::testing::GoldenPrompt;
using cpu::testing::ReadGolden;
using testing::RelativeError;
using testing::RunSequence;

class ExecutorTest : public testing::TinyModelTest {
 protected:
  std::unique_ptr<GpuExecutor> Load(bool uses_graphs = true) const {
    GpuExecutorOptions options = SmallOptions();
    options.uses_graphs = uses_graphs;
    options.steps_before_recording = 1;
    return LoadGpu(Model(), options);
  }
  std::unique_ptr<cpu::CpuExecutor> LoadCpu() const { return TinyModelTest::LoadCpu(Model()); }

  bool HasExperts() const {
    return std::string_view(GetParam()) == "mixtral" || std::string_view(GetParam()) == "qwen3_moe";
  }
};

// bf16 weights, activations and cache against float: 2^-9 relative for each rounding, about thirty
// roundings in three layers, and rows of only 64 values to average over.
constexpr double kExecutorLogitTolerance = 8e-2;
// If scores of experts are nearly equal, rounding sends a token to another expert, which also
// affects later tokens. Single results may be far off, most are not.
constexpr double kExpertTolerance = 3e-1;

TEST_P(ExecutorTest, LogitsEqualTheCpusWithinBf16) {
  const std::unique_ptr<GpuExecutor> gpu = Load();
  ASSERT_NE(gpu, nullptr);
  const std::unique_ptr<cpu::CpuExecutor> cpu = LoadCpu();
  int64_t compared = 0, equal = 0, close = 0;
  for (const GoldenPrompt& prompt : ReadGolden(directory_)) {
    const auto length = static_cast<int32_t>(prompt.ids.size());
    const int32_t rows = std::min(length, 100);
    const auto expected = RunSequence(*cpu, prompt.ids, 0, rows);
    const double error = RelativeError(RunSequence(*gpu, prompt.ids, 0, rows), expected);
    EXPECT_LT(error, HasExperts() ? kExpertTolerance : kExecutorLogitTolerance)
        << "prompt of " << length;
    // In two chunks, then token by token along the recorded answer.
    const std::span<const int32_t> ids = prompt.ids;
    if (length > 40) {
      RunSequence(*gpu, ids.first(37), 0, 0);
      RunSequence(*gpu, ids.subspan(37), 37, 1);
    }
    for (size_t step = 0; step + 1 < prompt.greedy.size(); ++step) {
      const std::span<const int32_t> token =
          std::span<const int32_t>(prompt.greedy).subspan(step, 1);
      const auto at = length + static_cast<int32_t>(step);
      const auto wanted = RunSequence(*cpu, token, at, 1);
      const auto got = RunSequence(*gpu, token, at, 1);
      ASSERT_EQ(got.size(), wanted.size());
      const double step_error = RelativeError(got, wanted);
      EXPECT_LT(step_error, HasExperts() ? 2.0 : kExecutorLogitTolerance) << "step " << step;
      ++compared;
      close += step_error < kExecutorLogitTolerance;
      equal += llm::ArgMax(got) == prompt.greedy[step + 1];
    }
  }
  // Near ties may be resolved differently.
  EXPECT_GE(equal, compared * 9 / 10) << "of " << compared;
  EXPECT_GE(close, compared / 2) << "of " << compared;
  EXPECT_GT(gpu->num_graph_steps(), 0);
}

// The newest token and its drafts in one step, against a step for each of them.
TEST_P(ExecutorTest, DraftsHaveTheLogitsOfSingleSteps) {
  const std::unique_ptr<GpuExecutor> gpu = Load();
  ASSERT_NE(gpu, nullptr);
  constexpr int32_t kDrafts = 5, kRows = kDrafts + 1;
  std::vector<int32_t> table(gpu->limits().num_blocks);
  std::iota(table.rbegin(), table.rend(), 0);
  const llm::SamplingParams greedy;
  for (const GoldenPrompt& prompt : ReadGolden(directory_)) {
    const auto length = static_cast<int32_t>(prompt.ids.size());
    if (prompt.greedy.size() < kRows) continue;
    RunSequence(*gpu, prompt.ids, 0, 1);
    std::vector<std::vector<float>> expected;
    for (int32_t step = 0; step < kRows; ++step) {
      expected.push_back(
          RunSequence(*gpu, std::span(prompt.greedy).subspan(step, 1), length + step, 1));
    }
    for (int round = 0; round < 3; ++round) {  // the last one by a graph
      llm::StepBatch batch;
      batch.token_ids.assign(prompt.greedy.begin(), prompt.greedy.begin() + kRows);
      std::vector<int32_t> tokens = prompt.ids;
      tokens.push_back(prompt.greedy[0]);
      llm::BatchEntry& sequence = batch.entries.emplace_back();
      sequence.num_tokens = sequence.num_logits = kRows;
      sequence.num_draft_tokens = kDrafts;
      sequence.num_cached = length;
      sequence.block_table = table;
      sequence.samples = true;
      sequence.num_top_tokens = 2;
      sequence.sampling = {&greedy, tokens, length, {}};
      ASSERT_TRUE(gpu->Submit(batch).ok());
      const auto result = gpu->Collect();
      ASSERT_TRUE(result.ok()) << result.status().message();
      const std::vector<float> logits = *gpu->ReadLogits();
      const auto vocab_size = static_cast<size_t>(gpu->limits().vocab_size);
      ASSERT_EQ(logits.size(), kRows * vocab_size);
      size_t num_accepted = 0;
      bool is_right = true;
      for (size_t row = 0; row < kRows; ++row) {
        const auto got = std::span(logits).subspan(row * vocab_size, vocab_size);
        if (!HasExperts()) {
          EXPECT_LT(RelativeError(got, expected[row]), kExecutorLogitTolerance) << row;
        }
        is_right &= row < kDrafts && llm::ArgMax(got) == prompt.greedy[row + 1];
        num_accepted += is_right ? 1 : 0;
      }
      ASSERT_EQ(result->accepted.size(), 1u);
      EXPECT_EQ(result->accepted[0].size(), num_accepted);
      EXPECT_EQ(result->tokens[0].id,
                llm::ArgMax(std::span(logits).subspan(num_accepted * vocab_size, vocab_size)));
      EXPECT_EQ(result->top_tokens[0].size(), 2 * (num_accepted + 1));
    }
  }
}

TEST_P(ExecutorTest, ARecordedStepEqualsTheSameStepRun) {
  const std::unique_ptr<GpuExecutor> recorded = Load(true), run = Load(false);
  ASSERT_TRUE(recorded != nullptr && run != nullptr);
  const std::vector<int32_t> prompt = {5, 6, 7, 8, 9, 10, 11};
  for (GpuExecutor* executor : {recorded.get(), run.get()}) RunSequence(*executor, prompt, 0, 1);
  for (int32_t step = 0; step < 5; ++step) {
    const std::vector<int32_t> token = {40 + step};
    EXPECT_LT(RelativeError(RunSequence(*recorded, token, 7 + step, 1),
                            RunSequence(*run, token, 7 + step, 1)),
              1e-2);
  }
}

TEST_P(ExecutorTest, MemoryIsFreed) {
  Load();  // memory that the CUDA context keeps
  size_t before = 0, after = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&before, &total), cudaSuccess);
  {
    const std::unique_ptr<GpuExecutor> executor = Load();
    ASSERT_NE(executor, nullptr);
    RunSequence(*executor, std::vector<int32_t>{1, 2, 3}, 0, 1);
    RunSequence(*executor, std::vector<int32_t>{4}, 3, 1);
  }
  ASSERT_EQ(cudaMemGetInfo(&after, &total), cudaSuccess);
  EXPECT_LT(static_cast<double>(before) - static_cast<double>(after), 64e6);
}

// All checkpoints of the CPU's tests.
INSTANTIATE_TEST_SUITE_P(Tiny, ExecutorTest, ::testing::ValuesIn(cpu::testing::AllCheckpoints()),
                         cpu::testing::kNameOfCheckpoint);

class RecordingTest : public ExecutorTest {};

// Fused steps are recorded at once, others when their size has occurred 16 times.
TEST_P(RecordingTest, AStepIsRecordedAfterItsSizeOccurredOftenEnough) {
  GpuExecutorOptions options = SmallOptions();
  for (const bool fuses : {true, false}) {
    options.fuses_decode = fuses;
    const std::unique_ptr<GpuExecutor> made = LoadGpu(Model(), options);
    ASSERT_NE(made, nullptr);
    GpuExecutor& executor = *made;
    const int64_t most = executor.fuses_decode() ? 1 : 16;
    RunSequence(executor, std::vector<int32_t>{5, 6, 7}, 0, 1);
    for (int32_t step = 1; step <= 20; ++step) {
      RunSequence(executor, std::vector<int32_t>{40 + step}, 2 + step, 1);
      EXPECT_EQ(executor.num_graph_steps(), std::max<int64_t>(0, step - most)) << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, RecordingTest, ::testing::Values("llama", "llama-awq"),
                         cpu::testing::kNameOfCheckpoint);

// The checkpoint's model with its layers' matrices quantized to e4m3, with one scale for each row.
struct Fp8Model {
  llm::DecoderModel model;
  std::list<std::vector<uint8_t>> bytes;  // storage that the model views
};

// `in_blocks`: weights have one scale for each block of 128 x 128, otherwise one for each row.
Fp8Model MakeFp8Model(const llm::Checkpoint& checkpoint, bool in_blocks = false) {
  Fp8Model result;
  result.model = std::move(*llm::ReadDecoder(checkpoint, true));
  for (auto& [key, weight] : result.model.weights) {
    if (key.layer == llm::kNoLayer || weight.tensor.shape.size() != 2) continue;
    const int64_t rows = weight.source.num_rows(), columns = weight.tensor.shape[1];
    auto& values = result.bytes.emplace_back(rows * columns);
    const auto element = [&](int64_t row, int64_t c) {
      return llm::ElementAsFloat(weight.tensor, weight.source.SourceRow(row) * columns + c);
    };
    const int64_t block_rows = in_blocks ? llm::kFp8Block : 1,
                  block_columns = in_blocks ? llm::kFp8Block : columns;
    const int64_t scale_rows = (rows + block_rows - 1) / block_rows,
                  scale_columns = (columns + block_columns - 1) / block_columns;
    std::vector<float> factors(scale_rows * scale_columns);
    const auto factor_of = [&](int64_t row, int64_t c) -> float& {
      return factors[row / block_rows * scale_columns + c / block_columns];
    };
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t c = 0; c < columns; ++c) {
        float& factor = factor_of(row, c);  // 0x77 is 240
        factor = std::max({factor, 1e-8f, std::abs(element(row, c)) / 240.0f});
      }
    }
    for (float& factor : factors)  // rounded up to bf16, to which the backend rounds block scales
      factor = std::bit_cast<float>((std::bit_cast<uint32_t>(factor) | 0xffffu) + 1);
    auto& scales = result.bytes.emplace_back(factors.size() * 4);
    std::memcpy(scales.data(), factors.data(), scales.size());
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t c = 0; c < columns; ++c) {
        const float value = element(row, c) / factor_of(row, c), magnitude = std::abs(value);
        const int exponent = std::max(-6, magnitude > 0.0f ? std::ilogb(magnitude) : -6);
        const int steps = static_cast<int>(std::lround(std::ldexp(magnitude, 3 - exponent)));
        values[row * columns + c] =
            static_cast<uint8_t>((value < 0.0f ? 0x80 : 0) + ((exponent + 6) << 3) + steps);
      }
    }
    weight.source = llm::Matrix(weight.source.tensor, rows, columns);
    weight.tensor.type = llm::CheckpointDataType::kF8E4M3;
    weight.tensor.shape = {rows, columns};
    weight.tensor.bytes = values;
    weight.quant.method = in_blocks ? llm::QuantMethod::kFp8Blocks : llm::QuantMethod::kFp8;
    weight.quant.scales.type = llm::CheckpointDataType::kF32;
    weight.quant.scales.shape = {scale_rows, scale_columns};
    weight.quant.scales.bytes = scales;
  }
  return result;
}

class Fp8ExecutorTest : public ExecutorTest {};

TEST_P(Fp8ExecutorTest, LogitsEqualTheCpusWithinBf16) {
  const Fp8Model made = MakeFp8Model(*checkpoint_);
  const auto gpu = LoadGpu(made.model, SmallOptions());
  const auto cpu = TinyModelTest::LoadCpu(made.model);
  ASSERT_TRUE(gpu != nullptr && cpu != nullptr);
  for (const GoldenPrompt& prompt : ReadGolden(directory_)) {
    const auto length = static_cast<int32_t>(prompt.ids.size());
    const int32_t rows = std::min(length, 100);
    EXPECT_LT(RelativeError(RunSequence(*gpu, prompt.ids, 0, rows),
                            RunSequence(*cpu, prompt.ids, 0, rows)),
              kExecutorLogitTolerance)
        << "prompt of " << length;
  }
}

// Inputs are rounded to e4m3, too, except in the portable form.
TEST_P(Fp8ExecutorTest, LogitsWithBlockScalesAreLikeTheCpus) {
  Fp8Model made = MakeFp8Model(*checkpoint_, true);
  for (auto& [key, weight] : made.model.weights) weight.quant.quantizes_input = true;
  const auto gpu = LoadGpu(made.model, SmallOptions());
  const auto cpu = TinyModelTest::LoadCpu(made.model);
  ASSERT_TRUE(gpu != nullptr && cpu != nullptr);
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 120; ++i) prompt.push_back(i * 37 % 509);
  const double tolerance = testing::HasNativeKernels() ? 0.2 : kExecutorLogitTolerance;
  for (const int32_t rows : {100, 12, 3})  // by different kernels
    EXPECT_LT(RelativeError(RunSequence(*gpu, prompt, 0, rows), RunSequence(*cpu, prompt, 0, rows)),
              tolerance)
        << rows << " rows";
}

INSTANTIATE_TEST_SUITE_P(Tiny, Fp8ExecutorTest, ::testing::Values("llama", "qwen2"),
                         cpu::testing::kNameOfCheckpoint);

// Each token uses all experts, so that rounding does not change the selection.
class AllExpertsTest : public ExecutorTest {};

TEST_P(AllExpertsTest, LogitsEqualTheCpusWithinBf16) {
  llm::DecoderModel model = Model();
  model.spec.moe.experts_per_token = model.spec.moe.num_experts;
  const auto gpu = LoadGpu(model, SmallOptions());
  const auto cpu = TinyModelTest::LoadCpu(model);
  ASSERT_TRUE(gpu != nullptr && cpu != nullptr);
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 120; ++i) prompt.push_back(i * 37 % 509);
  const auto expected = RunSequence(*cpu, prompt, 0, 100);
  EXPECT_LT(RelativeError(RunSequence(*gpu, prompt, 0, 100), expected), kExecutorLogitTolerance);
  for (int32_t step = 0; step < 4; ++step) {
    const std::vector<int32_t> token = {11 * step};
    const auto wanted = RunSequence(*cpu, token, 120 + step, 1);
    EXPECT_LT(RelativeError(RunSequence(*gpu, token, 120 + step, 1), wanted),
              kExecutorLogitTolerance)
        << step;
  }
}

// The inputs of the experts are rounded to e4m3 too, with relative errors of about 3 %.
TEST_P(AllExpertsTest, LogitsOfExpertsInFp8AreLikeTheCpus) {
  for (const bool in_blocks : {false, true}) {
    Fp8Model made = MakeFp8Model(*checkpoint_, in_blocks);
    made.model.spec.moe.experts_per_token = made.model.spec.moe.num_experts;
    for (auto& [key, weight] : made.model.weights)
      weight.quant.quantizes_input = key.expert != llm::kNoExpert;
    const auto gpu = LoadGpu(made.model, SmallOptions());
    const auto cpu = TinyModelTest::LoadCpu(made.model);
    ASSERT_TRUE(gpu != nullptr && cpu != nullptr);
    std::vector<int32_t> prompt;
    for (int32_t i = 0; i < 120; ++i) prompt.push_back(i * 37 % 509);
    const auto expected = RunSequence(*cpu, prompt, 0, 100);
    EXPECT_LT(RelativeError(RunSequence(*gpu, prompt, 0, 100), expected), 0.1) << in_blocks;
    const std::vector<int32_t> token = {11};
    const auto wanted = RunSequence(*cpu, token, 120, 1);
    EXPECT_LT(RelativeError(RunSequence(*gpu, token, 120, 1), wanted), 0.1) << in_blocks;
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, AllExpertsTest, ::testing::Values("mixtral", "qwen3_moe"),
                         cpu::testing::kNameOfCheckpoint);

// Experts in int4: the kernel for few rows, and the one for the rows of a prompt.
// Each token uses all experts. Random weights, of sizes that int4 supports.
TEST_P(AllExpertsTest, ATokenInInt4EqualsTheSameInAPrompt) {
  llm::DecoderModel model = Model();
  model.weights.clear();
  model.spec.hidden_size = 256;
  model.spec.head_dim = 64;
  model.spec.moe.intermediate_size = 384;
  model.spec.moe.num_experts = model.spec.moe.experts_per_token = 2;
  GpuExecutorOptions options = SmallOptions();
  options.max_num_tokens = 512;
  options.dummy = DummyWeights{3, WeightFormat::kInt4};
  const auto executor = LoadGpu(model, options);
  ASSERT_NE(executor, nullptr);
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 301; ++i) prompt.push_back(i * 37 % 509);
  const std::vector<float> expected = RunSequence(*executor, prompt, 0, 1);
  const std::vector<int32_t> last = {prompt.back()};
  prompt.pop_back();
  (void)RunSequence(*executor, prompt, 0, 1);
  // Some kernels round a weight times its scale to bf16, others apply the scale to float sums.
  EXPECT_LT(RelativeError(RunSequence(*executor, last, 300, 1), expected), 1.2e-1);
}

// A value that bf16 rounding moves across the border of two e4m3 codes changes by a sixteenth.
constexpr double kQuantizedCacheTolerance = 3e-1;

// Quantized caches, against the CPU's cache of the same format.
class QuantizedCacheTest : public ExecutorTest {};

TEST_P(QuantizedCacheTest, LogitsEqualTheCpusWithinBf16) {
  for (const auto& [format, cpu_format] : {std::pair(CacheFormat::kFp8, cpu::KvFormat::kFp8),
                                           std::pair(CacheFormat::kInt8, cpu::KvFormat::kInt8)}) {
    SCOPED_TRACE(format == CacheFormat::kFp8 ? "fp8" : "int8");
    GpuExecutorOptions options = SmallOptions();
    options.cache_format = format;
    cpu::CpuExecutorOptions cpu_options;
    cpu_options.kv_format = cpu_format;
    const auto gpu = LoadGpu(Model(), options);
    const auto cpu = TinyModelTest::LoadCpu(Model(), cpu_options);
    ASSERT_TRUE(gpu != nullptr && cpu != nullptr);
    for (const GoldenPrompt& prompt : ReadGolden(directory_)) {
      const auto length = static_cast<int32_t>(prompt.ids.size());
      const int32_t rows = std::min(length, 100);
      const auto expected = RunSequence(*cpu, prompt.ids, 0, rows);
      EXPECT_LT(RelativeError(RunSequence(*gpu, prompt.ids, 0, rows), expected),
                kQuantizedCacheTolerance)
          << "prompt of " << length;
      for (size_t step = 0; step + 1 < prompt.greedy.size(); ++step) {
        const auto token = std::span<const int32_t>(prompt.greedy).subspan(step, 1);
        const auto at = length + static_cast<int32_t>(step);
        const auto wanted = RunSequence(*cpu, token, at, 1);
        EXPECT_LT(RelativeError(RunSequence(*gpu, token, at, 1), wanted), kQuantizedCacheTolerance)
            << "step " << step;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, QuantizedCacheTest,
                         ::testing::Values("llama", "gemma2", "gpt2", "mistral-swa", "phi3"),
                         cpu::testing::kNameOfCheckpoint);

// A vocabulary that needs padded rows of logits, with the head tied and untied.
class OddVocabularyTest : public ExecutorTest {};

TEST_P(OddVocabularyTest, LogitsEqualTheCpusWithinBf16) {
  llm::DecoderModel model = Model();
  model.spec.vocab_size = 509;
  for (auto& [key, weight] : model.weights) {
    if (key.kind == llm::WeightKind::kTokenEmbedding || key.kind == llm::WeightKind::kLmHead)
      weight.source.group_rows = 509;
  }
  const auto gpu = LoadGpu(model, SmallOptions());
  const auto cpu = TinyModelTest::LoadCpu(model);
  ASSERT_TRUE(gpu != nullptr && cpu != nullptr);
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 45; ++i) prompt.push_back(i * 37 % 509);
  for (const int32_t rows : {45, 1}) {
    const auto expected = RunSequence(*cpu, prompt, 0, rows);
    EXPECT_LT(RelativeError(RunSequence(*gpu, prompt, 0, rows), expected), kExecutorLogitTolerance)
        << rows;
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, OddVocabularyTest, ::testing::Values("llama", "gpt2"),
                         cpu::testing::kNameOfCheckpoint);

class RefusalTest : public testing::GpuTest<::testing::Test> {};

TEST_F(RefusalTest, UnsupportedFeaturesAreNamedAtLoad) {
  const std::string directory = FindTiny("mistral-swa");
  if (directory.empty()) GTEST_SKIP() << "no test data for mistral-swa";
  const llm::Checkpoint checkpoint = std::move(*llm::Checkpoint::Open(directory));
  const llm::DecoderModel read = std::move(*llm::ReadDecoder(checkpoint, true));
  const auto refusal = [&](auto change) {
    llm::DecoderModel model = read;
    change(model.spec);
    const auto executor = GpuExecutor::Create(std::move(model), {});
    EXPECT_FALSE(executor.ok());
    EXPECT_EQ(executor.status().code(), StatusCode::kUnsupported);
    return std::string(executor.status().message());
  };
  EXPECT_NE(refusal([](auto& spec) { spec.head_dim = 24; }).find("head_dim is 24"),
            std::string::npos);
  EXPECT_NE(refusal([](auto& spec) { spec.moe.num_experts = 5000; }).find("5000 experts"),
            std::string::npos);
}

}  // namespace
}  // namespace nereid::gpu
