// The engine on the GPU: a request's tokens do not depend on overlap, other requests or the prefix
// cache.
#include "backends/llm_core/engine/engine.h"

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
