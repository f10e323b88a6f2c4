// The engine on the GPU: a request's tokens do not depend on overlap, other requests or the prefix
// cache.
#include "backends/llm_core/engine/engine.h"

#include "backends/llm_core/prompt/virtual_tokens.h"
#include "tests/backends/gpu_llm/engine_fixture.h"

namespace nereid::gpu {
namespace {

using testing::Answer;
using testing::GpuEngineTest;

// One at a time, so that every step has the same shape in both runs.
TEST_F(GpuEngineTest, OverlappedStepsGiveTheSameTokens) {
  std::vector<std::vector<llm::TokenIds>> all;
  for (const bool overlaps : {false, true}) {
    Start(overlaps);
    if (HasFatalFailure()) return;
    std::mt19937 random(3);
    std::vector<llm::TokenIds>& answers = all.emplace_back();
    for (int i = 0; i < 40; ++i) answers.push_back(Send(RandomRequest(random)).get().ids);
    engine_.reset();
  }
  EXPECT_EQ(all[0], all[1]);
}

// Bit-identical with batch invariance.
TEST_F(GpuEngineTest, ARequestGetsTheSameTokensAloneAndAmongOthers) {
  for (const CacheFormat format : {CacheFormat::kBf16, CacheFormat::kFp8}) {
    options_.is_batch_invariant = true;
    options_.cache_format = format;
    Start(true);
    if (HasFatalFailure()) return;
    std::mt19937 random(6), again(6);
    std::vector<llm::TokenIds> alone;
    for (int i = 0; i < 40; ++i) alone.push_back(Send(RandomRequest(random)).get().ids);
    engine_.reset();
    Start(true);  // without the cached blocks of earlier prompts
    if (HasFatalFailure()) return;
    std::vector<std::future<Answer>> answers;
    for (int i = 0; i < 40; ++i) answers.push_back(Send(RandomRequest(again)));
    for (int i = 0; i < 40; ++i) EXPECT_EQ(answers[i].get().ids, alone[i]) << i;
    engine_.reset();
  }
}

// The engine releases the blocks between the sinks and the window, and others use them.
TEST_F(GpuEngineTest, WithSinksARequestGetsTheSameTokensAloneAndAmongOthers) {
  windows_ = "80,70";
  num_sinks_ = 4;
  options_.is_batch_invariant = true;
  std::mt19937 random(6), again(6);
  Start(true);
  if (HasFatalFailure()) return;
  std::vector<llm::TokenIds> alone;
  for (int i = 0; i < 40; ++i) alone.push_back(Send(RandomRequest(random)).get().ids);
  engine_.reset();
  max_cache_tokens_ = 12 * 64;
  Start(true);
  if (HasFatalFailure()) return;
  std::vector<std::future<Answer>> answers;
  for (int i = 0; i < 40; ++i) answers.push_back(Send(RandomRequest(again)));
  for (int i = 0; i < 40; ++i) EXPECT_EQ(answers[i].get().ids, alone[i]) << i;
}

// Prompts whose places have rows of the client instead of tokens: in chunks, beside others, with a
// penalty, and again from cached blocks, which another table with the same ids does not share.
TEST_F(GpuEngineTest, PromptsWithEmbeddingsGetTheSameTokensAloneAndAmongOthers) {
  options_.is_batch_invariant = true;
  Start(true);
  if (HasFatalFailure()) return;
  llm::VirtualTokens virtual_tokens(vocab_size_);
  const auto make = [&](uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.0f, 0.05f);
    auto embeddings = std::make_shared<llm::PromptEmbeddings>();
    embeddings->input_name = "prompt_embedding_table";
    embeddings->vocab_size = vocab_size_;
    embeddings->hidden_size = executor_->spec().hidden_size;
    embeddings->extra_ids.assign(150, 0);
    for (int i = 0; i < 150 * embeddings->hidden_size; ++i)
      embeddings->rows.push_back(normal(random));
    auto request = std::make_unique<llm::GenerationRequest>();
    for (int32_t i = 0; i < 200; ++i) {
      request->prompt.push_back(i % 97);
      embeddings->row_of.push_back(i < 150 ? i : llm::PromptEmbeddings::kNoRow);
    }
    virtual_tokens.Assign(*embeddings);
    embeddings->SetIds(request->prompt);
    request->embeddings = std::move(embeddings);
    request->stop.max_tokens = 20;
    request->sampling.frequency_penalty = 0.3f;
    return request;
  };
  std::vector<llm::TokenIds> alone, cached;
  for (uint32_t seed = 0; seed < 4; ++seed) alone.push_back(Send(make(seed)).get().ids);
  for (uint32_t seed = 0; seed < 4; ++seed) cached.push_back(Send(make(seed)).get().ids);
  EXPECT_EQ(cached, alone);
  EXPECT_NE(alone[0], alone[1]);
  EXPECT_GT(engine_->stats().counts.num_reused_blocks, 0);
  engine_.reset();
  Start(true);
  if (HasFatalFailure()) return;
  std::mt19937 random(9);
  std::vector<std::future<Answer>> answers, others;
  for (uint32_t seed = 0; seed < 4; ++seed) {
    others.push_back(Send(RandomRequest(random)));
    answers.push_back(Send(make(seed)));
  }
  for (uint32_t seed = 0; seed < 4; ++seed) EXPECT_EQ(answers[seed].get().ids, alone[seed]);
  for (auto& other : others) other.wait();
}

TEST_F(GpuEngineTest, ARequestOfAMixtureGetsTheSameTokensAloneAndAmongOthers) {
  directory_ = cpu::testing::FindTiny("qwen3_moe");
  if (directory_.empty()) GTEST_SKIP() << "no test data for qwen3_moe";
  options_.is_batch_invariant = true;
  std::mt19937 random(6), again(6);
  Start(true);
  if (HasFatalFailure()) return;
  std::vector<llm::TokenIds> alone;
  for (int i = 0; i < 20; ++i) alone.push_back(Send(RandomRequest(random)).get().ids);
  engine_.reset();
  Start(true);  // without the cached blocks of earlier prompts
  if (HasFatalFailure()) return;
  std::vector<std::future<Answer>> answers;
  for (int i = 0; i < 20; ++i) answers.push_back(Send(RandomRequest(again)));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(answers[i].get().ids, alone[i]) << i;
}

TEST_F(GpuEngineTest, APrefixThatIsCachedGivesTheSameTokens) {
  for (const CacheFormat format : {CacheFormat::kBf16, CacheFormat::kFp8, CacheFormat::kInt8}) {
    options_.is_batch_invariant = true;
    options_.cache_format = format;
    Start(true);
    if (HasFatalFailure()) return;
    std::mt19937 random(7);
    // Whole blocks; a block and one token; more than a chunk.
    for (const size_t length : {64, 65, 128, 191, 300}) {
      llm::TokenIds prompt(length);
      for (int32_t& id : prompt) id = static_cast<int32_t>(random() % vocab_size_);
      std::vector<llm::TokenIds> answers;
      for (int i = 0; i < 2; ++i) {
        auto request = std::make_unique<llm::GenerationRequest>();
        request->prompt = prompt;
        request->stop.max_tokens = 40;
        answers.push_back(Send(std::move(request)).get().ids);
      }
      EXPECT_EQ(answers[0].size(), 40u);
      EXPECT_EQ(answers[0], answers[1]) << length;
    }
    engine_.reset();
  }
}

}  // namespace
}  // namespace nereid::gpu
