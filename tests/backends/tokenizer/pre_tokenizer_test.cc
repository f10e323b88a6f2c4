// The components that divide a text, and how they treat delimiters.
#include "backends/tokenizer/lib/pre_tokenize/pre_tokenizer.h"

#include "tests/backends/tokenizer/test_tokenizers.h"

namespace nereid::tokenizer {
namespace {

using Pieces = std::vector<std::string>;

struct Collector final : SpanSink {
  Pieces pieces;
  bool Add(std::string_view piece, bool) override {
    if (!piece.empty()) pieces.emplace_back(piece);
    return true;
  }
};

Pieces Split(const nlohmann::json& spec, std::string_view text, bool at_start = true) {
  const auto chain = PreTokenizer::Make(spec);
  if (!chain.ok()) {
    ADD_FAILURE() << chain.status().message();
    return {};
  }
  Collector collector;
  EXPECT_TRUE(chain->Split(text, at_start, collector));
  return collector.pieces;
}

nlohmann::json SplitOnDash(const char* behavior, bool invert = false) {
  return {{"type", "Split"},
          {"pattern", {{"String", "-"}}},
          {"behavior", behavior},
          {"invert", invert}};
}

nlohmann::json PreTokenizerSequence(std::vector<nlohmann::json> steps) {
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

TEST(PreTokenizerTest, EachBehaviorPlacesDelimiters) {
  const char* text = "The-final--countdown";
  EXPECT_EQ(Split(SplitOnDash("Removed"), text), (Pieces{"The", "final", "countdown"}));
  EXPECT_EQ(Split(SplitOnDash("Isolated"), text),
            (Pieces{"The", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(Split(SplitOnDash("MergedWithPrevious"), text),
            (Pieces{"The-", "final-", "-", "countdown"}));
  EXPECT_EQ(Split(SplitOnDash("MergedWithNext"), text),
            (Pieces{"The", "-final", "-", "-countdown"}));
  EXPECT_EQ(Split(SplitOnDash("Contiguous"), text),
            (Pieces{"The", "-", "final", "--", "countdown"}));
  EXPECT_EQ(Split(SplitOnDash("Removed", true), text), (Pieces{"-", "-", "-"}));
}

TEST(PreTokenizerTest, DigitsSplitIndividuallyOrTogether) {
  EXPECT_EQ(Split({{"type", "Digits"}, {"individual_digits", true}}, "a12\u00bdb"),
            (Pieces{"a", "1", "2", "\u00bd", "b"}));
  EXPECT_EQ(Split({{"type", "Digits"}}, "a12\u00bdb"), (Pieces{"a", "12\u00bd", "b"}));
}

TEST(PreTokenizerTest, ByteLevelPrefixesEveryPretokenOfPreviousStep) {
  const auto spec = PreTokenizerSequence(
      {SplitOnDash("Removed"),
       {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", false}}});
  EXPECT_EQ(Split(spec, "a- b-c"), (Pieces{" a", " b", " c"}));
}

TEST(PreTokenizerTest, MetaspaceMarksWords) {
  const auto metaspace = [](const char* scheme, bool split) -> nlohmann::json {
    return {
        {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", scheme}, {"split", split}};
  };
  EXPECT_EQ(Split(metaspace("always", true), "a b  c"), (Pieces{"▁a", "▁b", "▁", "▁c"}));
  EXPECT_EQ(Split(metaspace("always", false), " a b"), (Pieces{"▁a▁b"}));
  EXPECT_EQ(Split(metaspace("never", true), "a b"), (Pieces{"a", "▁b"}));
  EXPECT_EQ(Split(metaspace("first", true), "a", true), (Pieces{"▁a"}));
  EXPECT_EQ(Split(metaspace("first", true), "a", false), (Pieces{"a"}));
  EXPECT_EQ(Split(PreTokenizerSequence({SplitOnDash("Removed"), metaspace("first", true)}), "a-b"),
            (Pieces{"▁a", "b"}));
}

TEST(PreTokenizerTest, RefusesByName) {
  const std::vector<std::pair<nlohmann::json, std::string>> cases = {
      {{{"type", "Jieba"}}, "Jieba"},
      {{{"type", "Punctuation"}, {"behavior", "Shuffled"}}, "Shuffled"},
      {{{"type", "CharDelimiterSplit"}, {"delimiter", "ab"}}, "delimiter"},
      {{{"type", "FixedLength"}, {"length", 0u}}, "length"},
      {{{"type", "Split"}, {"pattern", {{"String", ""}}}, {"behavior", "Isolated"}}, "Split"},
      {{{"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Shuffled"}}, "Shuffled"},
      {{{"type", "Split"}, {"behavior", "Removed"}}, "Split.pattern"},
      {{{"type", "Metaspace"}, {"replacement", "ab"}}, "replacement"},
      {{{"type", "Metaspace"}, {"replacement", "a"}, {"prepend_scheme", "last"}}, "last"},
      {{{"type", "Digits"}, {"individual_digits", 1}}, "individual_digits"},
      {nlohmann::json("ByteLevel"), ""}};
  for (const auto& [spec, name] : cases) {
    const auto chain = PreTokenizer::Make(spec);
    ASSERT_FALSE(chain.ok()) << spec;
    EXPECT_NE(chain.status().message().find(name), std::string::npos) << chain.status().message();
  }
}

}  // namespace
}  // namespace nereid::tokenizer
