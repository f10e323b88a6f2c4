// Which sequences may share cached blocks.
#include "backends/llm_core/engine/cache_salt.h"

#include <gtest/gtest.h>

#include "backends/llm_core/prompt/prompt_embeddings.h"

namespace nereid::llm {
namespace {

Sequence SequenceOf(uint64_t salt, int32_t num_prompt = 4) {
  Sequence sequence;
  sequence.request = std::make_shared<GenerationRequest>();
  sequence.request->cache_salt = salt;
  sequence.num_prompt = num_prompt;
  return sequence;
}

TEST(CacheSaltTest, SequencesOfTheSameSaltShareBlocks) {
  EXPECT_EQ(CacheSaltOf(SequenceOf(0), 0), CacheSaltOf(SequenceOf(0), 0));
  EXPECT_NE(CacheSaltOf(SequenceOf(1), 0), CacheSaltOf(SequenceOf(2), 0));
  EXPECT_EQ(CacheSaltOf(SequenceOf(1), 0) & kSaltOfThisProcess, 0u);
}

TEST(CacheSaltTest, KindsOfKeysAreToldApart) {
  Sequence longer = SequenceOf(0);
  longer.uses_long_rope = true;
  EXPECT_NE(CacheSaltOf(longer, 0), CacheSaltOf(SequenceOf(0), 0));
  // A dynamic rope depends on the length of a prompt beyond the trained context.
  EXPECT_EQ(CacheSaltOf(SequenceOf(0, 7), 8), CacheSaltOf(SequenceOf(0, 8), 8));
  EXPECT_NE(CacheSaltOf(SequenceOf(0, 9), 8), CacheSaltOf(SequenceOf(0, 10), 8));
}

TEST(CacheSaltTest, EmbeddingsAreThoseOfThisProcess) {
  auto embeddings = std::make_shared<PromptEmbeddings>();
  embeddings->cache_key = 5;
  Sequence sequence = SequenceOf(0);
  sequence.request->embeddings = embeddings;
  EXPECT_NE(CacheSaltOf(sequence, 0), CacheSaltOf(SequenceOf(0), 0));
  EXPECT_EQ(CacheSaltOf(sequence, 0) & kSaltOfThisProcess, kSaltOfThisProcess);
}

}  // namespace
}  // namespace nereid::llm
