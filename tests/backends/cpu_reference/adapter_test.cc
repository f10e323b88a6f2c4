// LoRA adapters compared with plain algebra: the logits of a sequence with an adapter are those of
// a checkpoint into whose matrices B A * scale was added. For every architecture, with several
// adapters of different ranks in one step.
#include <gtest/gtest.h>

#include <cmath>
#include <list>

#include "backends/cpu_reference/cpu_executor.h"
#include "backends/llm_core/lora/peft_adapter.h"
#include "base/file_content.h"
#include "tests/backends/cpu_reference/golden.h"
#include "tests/backends/llm_core/adapter_files.h"
#include "tests/support/test_folder.h"

namespace nereid::cpu {
namespace {

using llm::testing::FloatTensors;
using testing::FindTiny;
using testing::GoldenPrompt;
using testing::ReadGolden;

using AdapterPointer = std::shared_ptr<const llm::LoraAdapter>;

// A sequence's tokens, its adapter and its number of requested logits.
struct Part {
  std::vector<int32_t> tokens;
  AdapterPointer adapter;
};

std::unique_ptr<CpuExecutor> Load(std::shared_ptr<const llm::Checkpoint> checkpoint) {
  Result<llm::DecoderModel> model = llm::ReadDecoder(*checkpoint, /*supports_quantized=*/true);
  EXPECT_TRUE(model.ok()) << model.status().message();
  CpuExecutorOptions options;
  options.num_threads = 2;
  options.max_num_sequences = 4;
  options.max_num_tokens = 512;
  options.max_positions = 128;
  Result<std::unique_ptr<CpuExecutor>> executor =
      CpuExecutor::Create(std::move(checkpoint), std::move(*model), options);
  EXPECT_TRUE(executor.ok()) << executor.status().message();
  return std::move(*executor);
}

// The logits of all tokens of each part, computed in one step.
std::vector<std::vector<float>> LogitsOf(CpuExecutor& executor, const std::vector<Part>& parts) {
  llm::StepBatch batch;
  std::vector<std::vector<int32_t>> tables;
  for (size_t i = 0; i < parts.size(); ++i) {
    for (int32_t block = 0; block < 8; ++block) {
      if (block == 0) tables.emplace_back();
      tables.back().push_back(static_cast<int32_t>(i) * 8 + block);
    }
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    llm::BatchEntry& entry = batch.entries.emplace_back();
    entry.slot = static_cast<int32_t>(i);
    entry.first_token = static_cast<int32_t>(batch.token_ids.size());
    entry.num_tokens = entry.num_logits = static_cast<int32_t>(parts[i].tokens.size());
    entry.block_table = tables[i];
    batch.token_ids.insert(batch.token_ids.end(), parts[i].tokens.begin(), parts[i].tokens.end());
    if (parts[i].adapter == nullptr) continue;
    entry.adapter = static_cast<int32_t>(batch.adapters.size());
    batch.adapters.push_back(parts[i].adapter);
  }
  EXPECT_TRUE(executor.Submit(batch).ok());
  EXPECT_TRUE(executor.Collect().ok());
  const int64_t vocab = executor.limits().vocab_size;
  std::vector<std::vector<float>> logits;
  int64_t row = 0;
  for (const Part& part : parts) {
    const auto count = static_cast<int64_t>(part.tokens.size());
    const std::span<const float> rows = executor.logits().subspan(row * vocab, count * vocab);
    logits.emplace_back(rows.begin(), rows.end());
    row += count;
  }
  return logits;
}

void ExpectNear(const std::vector<float>& found, const std::vector<float>& expected,
                float tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  float largest = 0.0f;
  for (size_t i = 0; i < found.size(); ++i) {
    largest = std::max(largest, std::abs(found[i] - expected[i]));
  }
  EXPECT_LE(largest, tolerance);
}

// A checkpoint, an adapter for all linear modules that it has as tensors, and the merged weights.
class AdaptedCheckpoint {
 public:
  AdaptedCheckpoint(const std::string& directory, int64_t rank, bool has_rslora, uint32_t seed) {
    checkpoint_ = std::make_shared<const llm::Checkpoint>(*llm::Checkpoint::Open(directory));
    const llm::DecoderModel model = *llm::ReadDecoder(*checkpoint_, true);
    const auto targets = llm::LoraTargets::Of(model.map, model.spec.num_layers());
    const bool is_transposed = model.spec.architecture == "gpt2";
    const double alpha = 3.0;
    scale_ = alpha / (has_rslora ? std::sqrt(rank) : static_cast<double>(rank));
    FloatTensors adapter;
    for (const auto& [name, tensor] : checkpoint_->tensors()) {
      merged_[name] = tensor;
      const std::string suffix = ".weight";
      if (!name.ends_with(suffix) || tensor.shape.size() != 2) continue;
      const std::string module = name.substr(0, name.size() - suffix.size());
      if (!targets.Find(module).ok()) continue;
      const int64_t rows = tensor.shape[is_transposed ? 1 : 0];
      const int64_t columns = tensor.shape[is_transposed ? 0 : 1];
      llm::testing::AddModule(module, rows, columns, rank, ++seed, adapter);
      Merge(name, tensor, is_transposed, adapter, module);
      ++num_modules_;
    }
    llm::testing::WriteAdapter(
        folder_ / "a",
        "{\"r\":" + std::to_string(rank) +
            ",\"lora_alpha\":3,\"use_rslora\":" + (has_rslora ? "true}" : "false}"),
        adapter);
    Result<AdapterPointer> read = llm::ReadPeftAdapter("a", folder_ / "a", targets, 64);
    EXPECT_TRUE(read.ok()) << read.status().message();
    adapter_ = *read;
  }

  std::unique_ptr<CpuExecutor> LoadMerged() const {
    return Load(std::make_shared<const llm::Checkpoint>(llm::Checkpoint::FromParts(
        "merged", checkpoint_->config_json(), checkpoint_->generation_config_json(), merged_)));
  }
  const AdapterPointer& adapter() const { return adapter_; }
  int num_modules() const { return num_modules_; }

 private:
  // W + scale * B A
  void Merge(const std::string& name, const llm::CheckpointTensor& tensor, bool is_transposed,
             const FloatTensors& adapter, const std::string& module) {
    const auto& a = adapter.at("base_model.model." + module + ".lora_A.weight");
    const auto& b = adapter.at("base_model.model." + module + ".lora_B.weight");
    const int64_t rank = a.shape[0], columns = a.shape[1], rows = b.shape[0];
    std::vector<float>& values = values_.emplace_back(rows * columns);
    ASSERT_EQ(tensor.bytes.size(), values.size() * sizeof(float));
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = 0; column < columns; ++column) {
        double change = 0.0;
        for (int64_t i = 0; i < rank; ++i) {
          change += double{b.values[row * rank + i]} * a.values[i * columns + column];
        }
        values[is_transposed ? column * rows + row : row * columns + column] +=
            static_cast<float>(scale_ * change);
      }
    }
    merged_[name].bytes = {reinterpret_cast<const uint8_t*>(values.data()), tensor.bytes.size()};
  }

  TestFolder folder_;
  std::shared_ptr<const llm::Checkpoint> checkpoint_;
  double scale_ = 0.0;
  std::list<std::vector<float>> values_;
  llm::TensorMap merged_;
  AdapterPointer adapter_;
  int num_modules_ = 0;
};

class AdapterTest : public ::testing::TestWithParam<const char*> {};

TEST_P(AdapterTest, LogitsEqualThoseOfMergedWeights) {
  const std::string directory = FindTiny(GetParam());
  if (directory.empty()) GTEST_SKIP() << "no test data for " << GetParam();
  const std::vector<GoldenPrompt> prompts = ReadGolden(directory);
  const AdaptedCheckpoint first(directory, 3, false, 1), second(directory, 8, true, 1000);
  EXPECT_GE(first.num_modules(), 8);
  const auto executor =
      Load(std::make_shared<const llm::Checkpoint>(*llm::Checkpoint::Open(directory)));
  const std::vector<int32_t>& tokens = prompts.back().ids;
  const std::vector<std::vector<float>> mixed = LogitsOf(
      *executor, {{tokens, first.adapter()}, {tokens, nullptr}, {tokens, second.adapter()}});
  ExpectNear(mixed[0], LogitsOf(*first.LoadMerged(), {{tokens, nullptr}})[0], 1e-4f);
  ExpectNear(mixed[2], LogitsOf(*second.LoadMerged(), {{tokens, nullptr}})[0], 1e-4f);
  // In any batch, the bits are those of the sequence alone.
  EXPECT_EQ(mixed[0], LogitsOf(*executor, {{tokens, first.adapter()}})[0]);
  EXPECT_EQ(mixed[1], LogitsOf(*executor, {{tokens, nullptr}})[0]);
  EXPECT_NE(mixed[0], mixed[1]);
}

INSTANTIATE_TEST_SUITE_P(Tiny, AdapterTest, ::testing::ValuesIn(testing::kPlainCheckpoints),
                         testing::kNameOfCheckpoint);

// Adapters that PEFT made, and its own logits.
class PeftGoldenTest : public ::testing::TestWithParam<const char*> {};

TEST_P(PeftGoldenTest, LogitsAndGreedyTokensEqualThoseOfPeft) {
  const std::string folder = FindTiny(GetParam()), base = FindTiny("llama");
  if (folder.empty() || base.empty()) GTEST_SKIP() << "no test data for " << GetParam();
  const auto checkpoint = std::make_shared<const llm::Checkpoint>(*llm::Checkpoint::Open(base));
  const llm::DecoderModel model = *llm::ReadDecoder(*checkpoint);
  const Result<AdapterPointer> adapter = llm::ReadPeftAdapter(
      GetParam(), folder, llm::LoraTargets::Of(model.map, model.spec.num_layers()), 64);
  ASSERT_TRUE(adapter.ok()) << adapter.status().message();
  const auto executor = Load(checkpoint);
  const int64_t vocab = executor->limits().vocab_size;
  for (const GoldenPrompt& prompt : ReadGolden(folder)) {
    std::vector<int32_t> tokens = prompt.ids;
    for (size_t step = 0; step < prompt.greedy.size() && tokens.size() < 128; ++step) {
      const std::vector<float> logits = LogitsOf(*executor, {{tokens, *adapter}})[0];
      const auto last = std::span(logits).last(vocab);
      for (size_t i = 0; step == 0 && i < prompt.logits_first32.size(); ++i) {
        EXPECT_NEAR(last[i], prompt.logits_first32[i], 1e-4f) << "logit " << i;
      }
      tokens.push_back(llm::ArgMax(last));
      ASSERT_EQ(tokens.back(), prompt.greedy[step]) << "step " << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, PeftGoldenTest, ::testing::Values("lora-llama", "lora-llama-all"),
                         [](const auto& info) {
                           return std::string(info.param) == "lora-llama" ? "attention" : "all";
                         });

}  // namespace
}  // namespace nereid::cpu
