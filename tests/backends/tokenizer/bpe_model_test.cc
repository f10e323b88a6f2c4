// Merging: ranks, ties, long pre-tokens, unknown characters, byte fallback.
#include "backends/tokenizer/lib/model/bpe_model.h"

#include <random>

#include "tests/backends/tokenizer/test_tokenizers.h"

namespace nereid::tokenizer {
namespace {

// The letters a to d and some merges of them, ranked in this order.
struct Letters {
  TokenTable vocabulary;
  std::vector<MergeRule> rules;

  Letters() {
    for (const char* letter : {"a", "b", "c", "d"}) Add(letter);
    Merge("a", "b");
    Merge("c", "d");
    Merge("ab", "cd");
    Merge("b", "b");
    Merge("a", "a");
    Merge("aa", "aa");
    Merge("d", "ab");
  }
  void Add(const std::string& token) {
    vocabulary.Add(token, static_cast<uint32_t>(vocabulary.num_entries()));
  }
  void Merge(const std::string& left, const std::string& right) {
    Add(left + right);
    rules.push_back({*vocabulary.Find(left), *vocabulary.Find(right),
                     *vocabulary.Find(left + right), static_cast<uint32_t>(rules.size())});
  }
};

// The definition of BPE: repeatedly merges the adjacent pair with the lowest rank, the leftmost
// first.
std::vector<int32_t> MergeNaively(const Letters& letters, std::string_view text) {
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(*letters.vocabulary.Find(std::string_view(&c, 1)));
  while (true) {
    const MergeRule* best = nullptr;
    size_t at = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      for (const MergeRule& rule : letters.rules) {
        if (rule.left != ids[i] || rule.right != ids[i + 1]) continue;
        if (best == nullptr || rule.rank < best->rank) best = &rule, at = i;
      }
    }
    if (best == nullptr) return ids;
    ids[at] = best->merged;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

TEST(BpeModelTest, ShortAndLongPretokensMatchNaiveMerge) {
  const Letters letters;
  const BpeModel model(letters.vocabulary, letters.rules, {});
  ModelScratch scratch;
  std::mt19937 random(3);
  for (const size_t length : {0, 1, 2, 3, 5, 20, 63, 64, 65, 66, 200}) {
    for (int i = 0; i < 60; ++i) {
      std::string text;
      for (size_t n = 0; n < length; ++n) text += "abcd"[random() % 4];
      std::vector<int32_t> ids;
      model.Encode(text, scratch, ids);
      ASSERT_EQ(ids, MergeNaively(letters, text)) << text;
    }
  }
}

TEST(BpeModelTest, EqualRanksMergeFromTheLeft) {
  Letters letters;
  for (MergeRule& rule : letters.rules) rule.rank = 0;
  const BpeModel model(letters.vocabulary, letters.rules, {});
  ModelScratch scratch;
  for (const size_t repeats : {1, 40}) {  // covers both algorithms
    std::string text;
    for (size_t n = 0; n < repeats; ++n) text += "abb";
    std::vector<int32_t> ids;
    model.Encode(text, scratch, ids);
    EXPECT_EQ(ids, MergeNaively(letters, text));
  }
}

TEST(BpeModelTest, WholeTokenIsUsedOnlyIfMergesProduceIt) {
  Letters letters;
  letters.Add("bca");  // no merge produces it
  ModelScratch scratch;
  std::vector<int32_t> ids;
  const BpeModel by_merges(letters.vocabulary, letters.rules, {});
  for (int twice = 0; twice < 2; ++twice) {  // the second pass uses the memo
    ids.clear();
    by_merges.Encode("bca", scratch, ids);
    EXPECT_EQ(ids.size(), 3u);
    ids.clear();
    by_merges.Encode("abcd", scratch, ids);
    EXPECT_EQ(ids, (std::vector<int32_t>{*letters.vocabulary.Find("abcd")}));
  }
  ids.clear();
  BpeModel(letters.vocabulary, letters.rules, {.ignore_merges = true}).Encode("bca", scratch, ids);
  EXPECT_EQ(ids.size(), 1u);
}

TEST(BpeModelTest, UnknownCharactersFollowTheOptions) {
  Letters letters;
  letters.Add("?");
  const int32_t unk = *letters.vocabulary.Find("?");
  ModelScratch scratch;
  const auto encode = [&](BpeOptions options, std::string_view text) {
    std::vector<int32_t> ids;
    BpeModel(letters.vocabulary, letters.rules, options).Encode(text, scratch, ids);
    return ids;
  };
  EXPECT_EQ(encode({}, "axyb"), (std::vector<int32_t>{4}));  // unknown characters are dropped: "ab"
  EXPECT_EQ(encode({.unk_id = unk}, "axyb"), (std::vector<int32_t>{0, unk, unk, 1}));
  EXPECT_EQ(encode({.fuse_unk = true, .unk_id = unk}, "axyb"), (std::vector<int32_t>{0, unk, 1}));
  letters.Add("<0xC3>");
  letters.Add("<0xA9>");
  EXPECT_EQ(encode({.byte_fallback = true, .unk_id = unk}, "a\u00e9b"),
            (std::vector<int32_t>{0, unk + 1, unk + 2, 1}));
  EXPECT_EQ(encode({.byte_fallback = true, .unk_id = unk}, "\u00e8"), (std::vector<int32_t>{unk}));
}

TEST(BpeModelTest, AppliesMergesAcrossWordStarts) {
  // The token "a▁" makes adjacent words dependent on each other.
  const auto tokenizer = MustLoad(MetaspaceSpec({"▁", "a", "b", "a▁", "▁a"}, {"a ▁", "▁ a"}));
  EXPECT_EQ(Ids(*tokenizer, "a a"), (std::vector<int32_t>{259, 262, 260}));
  const auto plain = MustLoad(MetaspaceSpec({"▁", "a", "b", "▁a", "▁▁"}, {"▁ a", "▁ ▁"}));
  EXPECT_EQ(Ids(*plain, "a  a"), (std::vector<int32_t>{262, 259, 262}));
}

TEST(BpeModelTest, HandlesMegabytePretoken) {
  const Letters letters;
  const BpeModel model(letters.vocabulary, letters.rules, {});
  ModelScratch scratch;
  std::vector<int32_t> ids;
  model.Encode(std::string(1'000'000, 'a'), scratch, ids);
  EXPECT_EQ(ids.size(), 250'000u);
}

}  // namespace
}  // namespace nereid::tokenizer
