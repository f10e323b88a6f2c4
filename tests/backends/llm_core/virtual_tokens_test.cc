// Numbers of embeddings: equal for equal content, and never equal for different content.
#include "backends/llm_core/prompt/virtual_tokens.h"

#include <gtest/gtest.h>

#include <set>

namespace nereid::llm {
namespace {

constexpr int32_t kVocabOfPrompts = 100;

PromptEmbeddings Embeddings(std::vector<float> rows, std::vector<uint64_t> extra_ids) {
  PromptEmbeddings embeddings;
  embeddings.vocab_size = kVocabOfPrompts;
  embeddings.hidden_size = 2;
  embeddings.rows = std::move(rows);
  embeddings.extra_ids = std::move(extra_ids);
  return embeddings;
}

TEST(VirtualTokensTest, EqualRowsHaveEqualIdsAndOthersHaveNot) {
  VirtualTokens tokens(kVocabOfPrompts);
  PromptEmbeddings first = Embeddings({1, 2, 3, 4, 1, 2}, {0, 0, 0});
  tokens.Assign(first);
  EXPECT_EQ(first.ids, (std::vector<int32_t>{100, 101, 100}));
  PromptEmbeddings second = Embeddings({3, 4, 1, 2, 1, 2.5f}, {0, 7, 0});
  tokens.Assign(second);
  EXPECT_EQ(second.ids, (std::vector<int32_t>{101, 102, 103}));
  EXPECT_EQ(first.cache_key, second.cache_key);
  PromptEmbeddings embeds = Embeddings({1, 2}, {0});
  embeds.is_table = false;  // scaled otherwise by some models
  tokens.Assign(embeds);
  EXPECT_EQ(embeds.ids, (std::vector<int32_t>{104}));
}

TEST(VirtualTokensTest, SetIdsReplacesOnlyThePlacesOfRows) {
  VirtualTokens tokens(kVocabOfPrompts);
  PromptEmbeddings embeddings = Embeddings({1, 2, 3, 4}, {0, 0});
  embeddings.row_of = {-1, 1, 0, -1};
  tokens.Assign(embeddings);
  TokenIds prompt = {5, 105, 100, 6};
  embeddings.SetIds(prompt);
  EXPECT_EQ(prompt, (TokenIds{5, 101, 100, 6}));
  EXPECT_EQ(embeddings.RowAt(1), 1);
  EXPECT_EQ(embeddings.RowAt(4), PromptEmbeddings::kNoRow);  // a token of the output
}

TEST(VirtualTokensTest, NumbersThatStartAgainHaveAnotherKey) {
  VirtualTokens tokens(kVocabOfPrompts, /*end=*/kVocabOfPrompts + 4);
  std::set<std::pair<uint64_t, int32_t>> seen;
  for (int i = 0; i < 20; ++i) {
    PromptEmbeddings embeddings = Embeddings({float(i), 1, float(i), 2, float(i), 3}, {0, 0, 0});
    tokens.Assign(embeddings);
    for (const int32_t id : embeddings.ids) {
      EXPECT_GE(id, kVocabOfPrompts);
      EXPECT_LT(id, kVocabOfPrompts + 4);
      EXPECT_TRUE(seen.emplace(embeddings.cache_key, id).second) << i;
    }
  }
}

TEST(VirtualTokensTest, AProcessDoesNotTakeThePrefixesOfAnother) {
  VirtualTokens first(kVocabOfPrompts), second(kVocabOfPrompts);
  PromptEmbeddings a = Embeddings({1, 2}, {0}), b = Embeddings({3, 4}, {0});
  first.Assign(a);
  second.Assign(b);
  EXPECT_EQ(a.ids, b.ids);
  EXPECT_NE(a.cache_key, b.cache_key);
}

TEST(VirtualTokensTest, ForgottenRowsGetNewNumbers) {
  VirtualTokens tokens(kVocabOfPrompts);
  PromptEmbeddings first = Embeddings({-1, -1}, {0});
  tokens.Assign(first);
  std::vector<float> rows;
  for (size_t i = 0; i < VirtualTokens::kMaxRemembered / 2; ++i) {
    rows.insert(rows.end(), {static_cast<float>(i), 0.0f});
  }
  const std::vector<uint64_t> none(rows.size() / 2, 0);
  PromptEmbeddings many = Embeddings(rows, none);
  tokens.Assign(many);
  PromptEmbeddings again = Embeddings({-1, -1}, {0});
  tokens.Assign(again);  // still remembered, and recent again
  EXPECT_EQ(again.ids, first.ids);
  for (int round = 0; round < 2; ++round) {
    PromptEmbeddings others = Embeddings(rows, std::vector<uint64_t>(none.size(), round + 1));
    tokens.Assign(others);
  }
  tokens.Assign(again);
  EXPECT_NE(again.ids, first.ids);
}

}  // namespace
}  // namespace nereid::llm
