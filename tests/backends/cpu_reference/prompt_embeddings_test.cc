// Embeddings in the place of tokens: a row that equals a token's own embedding gives the logits of
// that token, bit for bit, for every architecture and however the prompt is divided into steps.
#include <gtest/gtest.h>

#include <cstring>
#include <utility>

#include "backends/cpu_reference/cpu_executor.h"
#include "backends/llm_core/prompt/prompt_embeddings.h"
#include "tests/backends/cpu_reference/golden.h"

namespace nereid::cpu {
namespace {

using testing::FindTiny;

constexpr int32_t kTableRows = 3;

// The model's embedding of a token, as in the checkpoint.
std::vector<float> EmbeddingOf(const llm::Checkpoint& checkpoint, int32_t token) {
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (!name.ends_with("embed_tokens.weight") && !name.ends_with("wte.weight") &&
        !name.ends_with("embed_in.weight")) {
      continue;
    }
    std::vector<float> row(static_cast<size_t>(tensor.shape[1]));
    EXPECT_EQ(tensor.bytes.size(), static_cast<size_t>(tensor.shape[0]) * row.size() * 4) << name;
    std::memcpy(row.data(), tensor.bytes.data() + row.size() * 4 * token, row.size() * 4);
    return row;
  }
  ADD_FAILURE() << "no embedding";
  return {};
}

class PromptEmbeddingsTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string directory = FindTiny(GetParam());
    if (directory.empty()) GTEST_SKIP() << "no test data for " << GetParam();
    checkpoint_ = std::make_shared<const llm::Checkpoint>(*llm::Checkpoint::Open(directory));
    CpuExecutorOptions options;
    options.num_threads = 2;
    options.max_num_sequences = 2;
    options.max_positions = 64;
    executor_ = *CpuExecutor::Create(checkpoint_, *llm::ReadDecoder(*checkpoint_), options);
  }

  // The logits of the last token of `ids`, in steps of at most `chunk` tokens.
  std::vector<float> Run(const std::vector<int32_t>& ids, const llm::PromptEmbeddings* embeddings,
                         int32_t chunk) {
    const auto length = static_cast<int32_t>(ids.size());
    const std::vector<int32_t> table = {1, 0, 3, 2};
    for (int32_t first = 0; first < length; first += chunk) {
      llm::StepBatch batch;
      llm::BatchEntry& entry = batch.entries.emplace_back();
      entry.num_cached = first;
      entry.num_tokens = std::min(chunk, length - first);
      entry.num_logits = first + entry.num_tokens == length ? 1 : 0;
      entry.num_prompt = length;
      entry.block_table = table;
      entry.prompt_embeddings = embeddings;
      batch.token_ids.assign(ids.begin() + first, ids.begin() + first + entry.num_tokens);
      EXPECT_TRUE(executor_->Submit(batch).ok());
      EXPECT_TRUE(executor_->Collect().ok());
    }
    return {executor_->logits().begin(), executor_->logits().end()};
  }

  std::shared_ptr<const llm::Checkpoint> checkpoint_;
  std::unique_ptr<CpuExecutor> executor_;
};

TEST_P(PromptEmbeddingsTest, ARowLikeATokenHasTheLogitsOfTheToken) {
  const llm::DecoderSpec& spec = executor_->spec();
  const std::vector<int32_t> tokens = {9, 4, 7, 30, 4, 11, 9, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7};
  llm::PromptEmbeddings embeddings;
  embeddings.vocab_size = spec.vocab_size;
  embeddings.hidden_size = spec.hidden_size;
  embeddings.extra_ids.assign(kTableRows, 0);
  const int32_t replaced[kTableRows] = {4, 7, 9};
  for (const int32_t token : replaced) {
    const std::vector<float> row = EmbeddingOf(*checkpoint_, token);
    embeddings.rows.insert(embeddings.rows.end(), row.begin(), row.end());
  }
  std::vector<int32_t> ids = tokens;
  for (int32_t& id : ids) {
    const int32_t* const found = std::find(replaced, replaced + kTableRows, id);
    const auto row = static_cast<int32_t>(found - replaced);
    embeddings.row_of.push_back(row < kTableRows ? row : llm::PromptEmbeddings::kNoRow);
    if (row < kTableRows) id = spec.vocab_size + 1000 + row;
  }
  const std::vector<float> expected = Run(tokens, nullptr, 32);
  EXPECT_EQ(Run(ids, &embeddings, 32), expected);
  EXPECT_EQ(Run(ids, &embeddings, 5), expected);
  EXPECT_EQ(Run(ids, &embeddings, 1), expected);
  const float first = std::exchange(embeddings.rows[0], 1.0f);
  EXPECT_NE(Run(ids, &embeddings, 32), expected);
  embeddings.rows[0] = first;
  // As inputs_embeds of transformers, the rows of some models are not multiplied again.
  embeddings.is_table = false;
  const bool is_same = spec.embedding_scale == 1.0f || spec.scales_input_embeddings;
  EXPECT_EQ(is_same, std::string(GetParam()) != "gemma3");
  if (!is_same) {
    for (float& value : embeddings.rows) value *= spec.embedding_scale;
  }
  EXPECT_EQ(Run(ids, &embeddings, 32), expected);
}

INSTANTIATE_TEST_SUITE_P(Tiny, PromptEmbeddingsTest,
                         ::testing::Values("gemma2", "gemma3", "gpt2", "gpt_bigcode", "gpt_neox",
                                           "llama", "mixtral", "mistral-swa", "phi3", "qwen2",
                                           "qwen3", "starcoder2"));

}  // namespace
}  // namespace nereid::cpu
