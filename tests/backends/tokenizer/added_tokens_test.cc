// Added tokens: where they match, which spaces they include and which ids they get.
#include "backends/tokenizer/lib/pre_tokenize/added_tokens.h"

#include "tests/backends/tokenizer/test_tokenizers.h"

namespace nereid::tokenizer {
namespace {

using nlohmann::json;
using Strings = std::vector<std::string>;

class AddedTokensFolderTest : public TokenizerFolderTest {};

AddedToken Token(std::string content, int32_t id) {
  AddedToken token;
  token.content = std::move(content);
  token.id = id;
  token.normalized = false;
  return token;
}

// Returns the sections of text as they are and added tokens as <id>.
Strings Split(std::vector<AddedToken> tokens, std::string_view text) {
  const auto added = AddedTokens::FromList(std::move(tokens), Normalizer());
  std::vector<AddedTokens::Split> splits;
  added->SplitRaw(text, splits);
  Strings result;
  for (const auto& split : splits) {
    result.push_back(split.id < 0 ? std::string(text.substr(split.begin, split.end - split.begin))
                                  : "<" + std::to_string(split.id) + ">");
  }
  return result;
}

TEST(AddedTokensTest, MatchesLeftmostLongest) {
  const auto tokens = [] { return std::vector{Token("ab", 1), Token("abcd", 2), Token("bcx", 3)}; };
  EXPECT_EQ(Split(tokens(), "abcx abcd"), (Strings{"<1>", "cx ", "<2>"}));
  EXPECT_EQ(Split(tokens(), "abab"), (Strings{"<1>", "<1>"}));
  EXPECT_EQ(Split(tokens(), "xabc"), (Strings{"x", "<1>", "c"}));
  EXPECT_EQ(Split(tokens(), ""), Strings{});
}

TEST(AddedTokensTest, IncludesSpacesOnStrippedSides) {
  AddedToken left = Token("[L]", 1), right = Token("[R]", 2);
  left.lstrip = true;
  right.rstrip = true;
  EXPECT_EQ(Split({left, right}, "a \u3000[L] b [R] \nc"),
            (Strings{"a", "<1>", " b ", "<2>", "c"}));
  EXPECT_EQ(Split({left, right}, "[R]  [L]"), (Strings{"<2>", "<1>"}));
}

TEST(AddedTokensTest, SingleWordMatchesOnlyWithoutAdjacentWordCharacters) {
  AddedToken word = Token("cat", 1);
  word.single_word = true;
  EXPECT_EQ(Split({word}, "cat"), (Strings{"<1>"}));
  EXPECT_EQ(Split({word}, "a cat, cats"), (Strings{"a ", "<1>", ", cats"}));
  EXPECT_EQ(Split({word}, "\u00e9cat"), (Strings{"\u00e9cat"}));
}

TEST(AddedTokensTest, NormalizedTokensMatchNormalizedText) {
  auto spec = MetaspaceSpec({"▁", "a"}, {});
  spec["added_tokens"].push_back({{"content", "a b"}, {"normalized", true}});
  const auto tokenizer = MustLoad(spec);
  // The normal form is "▁a▁b". It occurs at the start of a text, but not after another character.
  EXPECT_EQ(Ids(*tokenizer, "a b"), (std::vector<int32_t>{261}));
  EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{261}), "a b");
  EXPECT_NE(Ids(*tokenizer, "xa b").back(), 261);
}

TEST(AddedTokensTest, TokensOutsideVocabularyGetIdsAfterIt) {
  auto spec = ByteLevelSpec({});
  spec["added_tokens"] = {{{"id", 999}, {"content", "<new>"}}, {{"id", 7}, {"content", "a"}}};
  const auto tokenizer = MustLoad(spec);
  EXPECT_EQ(tokenizer->TokenToId("<new>"), 256);
  EXPECT_EQ(tokenizer->TokenToId("a"), 'a');
  EXPECT_EQ(tokenizer->vocab_size(), 257);
  EXPECT_EQ(tokenizer->IdToToken(256), "<new>");
  EXPECT_EQ(tokenizer->IdToToken(257), std::nullopt);
}

// Expected ids from tokenizers 0.23: new ids follow the largest id of an added token if that is
// larger than the number of vocabulary entries.
TEST_F(AddedTokensFolderTest, NewIdsFollowLargestAddedIdInVocabularyWithGaps) {
  const auto expect = [&](const json& vocab, const json& added, int32_t pad) {
    const json model = {{"type", "WordLevel"}, {"unk_token", "a"}, {"vocab", vocab}};
    Write("tokenizer.json", json{{"model", model}, {"added_tokens", added}}.dump());
    Write("tokenizer_config.json", R"({"pad_token": "[PAD]", "mask_token": "[MASK]"})");
    const auto tokenizer = Load();
    ASSERT_NE(tokenizer, nullptr);
    EXPECT_EQ(tokenizer->TokenToId("[PAD]"), pad) << vocab << added;
    EXPECT_EQ(tokenizer->TokenToId("[MASK]"), pad + 1);
    EXPECT_EQ(tokenizer->Decode(std::vector<int32_t>{4}), pad > 4 ? "d" : "");
  };
  const auto token = [](const char* content) { return json{{"content", content}}; };
  expect({{"a", 0}, {"b", 1}, {"d", 4}, {"<x>", 5}}, json::array({token("<x>")}), 6);
  expect({{"a", 0}, {"b", 1}, {"d", 4}, {"<x>", 9}}, json::array({token("<x>")}), 10);
  expect({{"a", 0}, {"b", 1}, {"d", 4}, {"<x>", 2}}, json::array({token("<x>")}), 4);
  expect({{"a", 0}, {"b", 1}, {"d", 4}}, json::array(), 3);
}

TEST(AddedTokensTest, HandlesMegabyteOfNearMisses) {
  std::string text;
  while (text.size() < 1'000'000) text += "<|en";
  EXPECT_EQ(Split({Token("<|end|>", 1), Token("<|en<|en<|en!", 2)}, text), (Strings{text}));
}

}  // namespace
}  // namespace nereid::tokenizer
