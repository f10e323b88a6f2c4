// The EAGLE-3 head on the GPU against that on the CPU.
#include "backends/gpu_llm/model/eagle3_layer.h"

#include <random>

#include "backends/cpu_reference/model/eagle3_layer.h"
#include "backends/gpu_llm/gpu_executor.h"
#include "tests/backends/cpu_reference/golden.h"
#include "tests/backends/cpu_reference/random_eagle3_head.h"
#include "tests/backends/gpu_llm/gpu_test.h"

namespace nereid::gpu {
namespace {

using testing::RelativeError;

// One sequence in both heads.
struct Chain {
  std::unique_ptr<llm::HeadCache> caches[2];
  std::vector<int32_t> tokens;
  std::vector<float> hidden[2];
  int32_t first_position = 0;
};

class Eagle3LayerTest : public testing::GpuTest<::testing::Test> {
 protected:
  void SetUp() override {
    testing::GpuTest<::testing::Test>::SetUp();
    if (IsSkipped()) return;
    const std::string directory = cpu::testing::FindTiny("llama");
    if (directory.empty()) GTEST_SKIP() << "no test data for llama";
    target_ = std::make_shared<const llm::Checkpoint>(std::move(*llm::Checkpoint::Open(directory)));
    model_ = std::move(*llm::ReadDecoder(*target_));
    GpuExecutorOptions options;
    options.max_num_sequences = 8;
    options.max_num_tokens = 64;
    options.max_cache_tokens = 1024;
    executor_ = std::move(*GpuExecutor::Create(std::move(*llm::ReadDecoder(*target_)), options));
  }
  llm::Eagle3Head ReadHead() const {
    return std::move(*llm::ReadEagle3Head(*random_head_.checkpoint(), model_.spec));
  }
  std::unique_ptr<Eagle3Layer> MakeLayer(llm::Eagle3Head head, int32_t max_num_entries = 8,
                                         int32_t num_blocks = 64) const {
    Eagle3LayerOptions options;
    options.form = executor_->form();
    options.num_blocks = num_blocks;
    options.max_num_entries = max_num_entries;
    options.token_embedding = executor_->token_embedding();
    options.embedding_scale = model_.spec.embedding_scale;
    auto layer = Eagle3Layer::Create(std::move(head), options);
    EXPECT_TRUE(layer.ok()) << layer.status().message();
    return layer.ok() ? std::move(*layer) : nullptr;
  }

  const cpu::testing::RandomEagle3Head random_head_{11};
  std::shared_ptr<const llm::Checkpoint> target_;
  llm::DecoderModel model_;
  std::unique_ptr<GpuExecutor> executor_;
};

TEST_F(Eagle3LayerTest, LogitsAreThoseOfTheCpu) {
  for (const bool norms_residual : {false, true}) {
    llm::Eagle3Head head = ReadHead();
    head.norm_before_residual = norms_residual;
    const std::unique_ptr<Eagle3Layer> gpu = MakeLayer(head, norms_residual ? 2 : 8);
    ASSERT_NE(gpu, nullptr);
    auto cpu = std::move(
        *cpu::Eagle3Layer::Create(random_head_.checkpoint(), std::move(head), target_, model_, 2));
    llm::DraftHead* const heads[] = {gpu.get(), cpu.get()};
    EXPECT_EQ(gpu->feature_size(), cpu->feature_size());
    EXPECT_EQ(gpu->vocab_size(), cpu->vocab_size());
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    std::vector<Chain> chains(5);
    for (size_t c = 0; c < chains.size(); ++c) {
      chains[c].first_position = static_cast<int32_t>(40 * c);  // behind a cached prefix
      for (int h = 0; h < 2; ++h) chains[c].caches[h] = heads[h]->MakeCache();
    }
    // Rows of the target (some sequences have one, some many), then twice the head's own; again,
    // without the own rows.
    for (int round = 0; round < 6; ++round) {
      const bool is_own = round % 3 != 0;
      std::vector<llm::HeadEntry> entries[2];
      for (size_t c = 0; c < chains.size(); ++c) {
        Chain& chain = chains[c];
        const size_t rows =
            is_own ? 1 : (round == 0 ? std::vector<size_t>{1, 70, 3, 130, 12}[c] : 1 + c % 3);
        chain.tokens.resize(rows);
        for (int32_t& token : chain.tokens) token = static_cast<int32_t>(random() % 512);
        if (!is_own) {
          chain.hidden[0].resize(rows * gpu->feature_size());
          for (float& value : chain.hidden[0])
            value = testing::FromBf16(testing::Bf16Bits(normal(random)));
          chain.hidden[1] = chain.hidden[0];
        }
        for (int h = 0; h < 2; ++h) {
          llm::HeadCache& cache = *chain.caches[h];
          ASSERT_TRUE(cache.Reserve(cache.num_rows() + static_cast<int32_t>(rows)));
          llm::HeadEntry& entry = entries[h].emplace_back();
          entry.tokens = chain.tokens;
          entry.hidden = chain.hidden[h];
          entry.is_own = is_own;
          entry.first_position = chain.first_position + cache.num_rows();
          entry.cache = &cache;
        }
      }
      for (int h = 0; h < 2; ++h) {
        const Status status = heads[h]->Run(entries[h]);
        ASSERT_TRUE(status.ok()) << status.message();
      }
      for (size_t c = 0; c < chains.size(); ++c) {
        SCOPED_TRACE(StrCat("round ", round, ", chain ", c));
        EXPECT_LT(RelativeError(entries[0][c].logits, entries[1][c].logits), 8e-2);
        EXPECT_LT(RelativeError(entries[0][c].next_hidden, entries[1][c].next_hidden), 8e-2);
        EXPECT_EQ(chains[c].caches[0]->num_rows(), chains[c].caches[1]->num_rows());
        for (int h = 0; h < 2; ++h) {
          chains[c].hidden[h] = entries[h][c].next_hidden;
          llm::HeadCache& cache = *chains[c].caches[h];
          if (round % 3 == 2) cache.Truncate(cache.num_rows() - 2);
        }
      }
      if (HasFailure()) return;
    }
  }
}

TEST_F(Eagle3LayerTest, CachesGetNoMoreBlocksThanThereAre) {
  const std::unique_ptr<Eagle3Layer> gpu = MakeLayer(ReadHead(), 8, 3);
  ASSERT_NE(gpu, nullptr);
  auto first = gpu->MakeCache(), second = gpu->MakeCache();
  EXPECT_TRUE(first->Reserve(2 * kBlockTokens));
  EXPECT_FALSE(second->Reserve(2 * kBlockTokens));
  first->Truncate(0);
  EXPECT_TRUE(second->Reserve(3 * kBlockTokens));
  EXPECT_FALSE(first->Reserve(1));
  second.reset();
  EXPECT_TRUE(first->Reserve(3 * kBlockTokens));
}

}  // namespace
}  // namespace nereid::gpu
