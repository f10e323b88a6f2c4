// Which stop words are matched as ids and which in the text, with tokenizers that treat a leading
// space differently.
#include "backends/llm_core/adapter/stop_words.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "backends/llm_core/adapter/stop_string_detector.h"
#include "tests/backends/tokenizer/test_tokenizers.h"

namespace nereid::llm {
namespace {

using Texts = std::vector<std::string>;
using Views = std::vector<std::string_view>;
using TokenizerPointer = std::shared_ptr<const tokenizer::Tokenizer>;

TokenIds Encode(const tokenizer::Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.Encode(text, {.add_special_tokens = false}).value();
}

// A Metaspace pre-tokenizer gives " in" and "in" the same ids.
TokenizerPointer Metaspace() {
  nlohmann::json spec = tokenizer::MetaspaceSpec(
      {"\u2581", "i", "n", "\u2581i", "\u2581in", "M", "s"}, {"\u2581 i", "\u2581i n"});
  const nlohmann::json step = {{"type", "Metaspace"},
                               {"replacement", "\u2581"},
                               {"prepend_scheme", "always"},
                               {"split", true}};
  spec["normalizer"] = nullptr;
  spec["pre_tokenizer"] = step;
  spec["decoder"] = step;
  return tokenizer::Tokenizer::FromJson(spec.dump()).value();
}

// A normalizer that always prepends a mark: " in" has the ids of two marks.
TokenizerPointer Prepending() {
  return tokenizer::Tokenizer::FromJson(
             tokenizer::MetaspaceSpec({"\u2581", "i", "n", "\u2581i", "\u2581in", "M", "s"},
                                      {"\u2581 i", "\u2581i n"})
                 .dump())
      .value();
}

TEST(StopWordsTest, TheTextOfIdsKeepsItsLeadingSpace) {
  const TokenizerPointer metaspace = Metaspace();
  ASSERT_EQ(Encode(*metaspace, " in"), Encode(*metaspace, "in"));
  EXPECT_EQ(TextOfStopWord(*metaspace, Encode(*metaspace, " in")), " in");
  const TokenIds bare = {*metaspace->TokenToId("i"), *metaspace->TokenToId("n")};
  EXPECT_EQ(TextOfStopWord(*metaspace, bare), "in");
  const TokenizerPointer prepending = Prepending();
  for (const char* text : {"in", " in", "  in", "nin"}) {
    EXPECT_EQ(TextOfStopWord(*prepending, Encode(*prepending, text)), text);
  }
  // No text has these ids.
  EXPECT_EQ(TextOfStopWord(*prepending, {*prepending->TokenToId("\u2581i"), bare[1]}), " in");
  const auto bytes = tokenizer::Tokenizer::FromJson(tokenizer::ByteLevelSpec().dump()).value();
  for (const char* text : {"hello", " w", "  ", "\n"}) {
    EXPECT_EQ(TextOfStopWord(*bytes, Encode(*bytes, text)), text);
  }
  EXPECT_EQ(TextOfStopWord(*bytes, {0xC3}), "") << "an incomplete character";
  EXPECT_EQ(TextOfStopWord(*bytes, {*bytes->TokenToId("<|end|>")}), "");
}

TEST(StopWordsTest, ATextIsSearchedAsWrittenWhateverItsIdsMean) {
  const TokenizerPointer tokenizer = Metaspace();
  const TokenIds ids = Encode(*tokenizer, " in");
  const TokenIds other = {*tokenizer->TokenToId("s")};
  StopWords words = CombineStopWords(*tokenizer, {ids, other}, Views{"in", ""}, {}).value();
  EXPECT_EQ(words.ids, (std::vector<TokenIds>{other}));
  EXPECT_EQ(words.texts, (Texts{"in", "s"}));
  words = CombineStopWords(*tokenizer, {ids, other}, Views{"  in"}, {.ids_match_in_text = false})
              .value();
  EXPECT_EQ(words.ids, (std::vector<TokenIds>{ids, other}));
  EXPECT_EQ(words.texts, (Texts{"  in"}));
  words = CombineStopWords(*tokenizer, {ids}, Views{}, {}).value();
  EXPECT_EQ(words.ids, (std::vector<TokenIds>{ids}));
  EXPECT_EQ(words.texts, (Texts{" in"}));
}

TEST(StopWordsTest, SpecialTokensAndBeamSearchesNeedIds) {
  const auto tokenizer = tokenizer::Tokenizer::FromJson(tokenizer::ByteLevelSpec().dump()).value();
  const TokenIds end = {*tokenizer->TokenToId("<|end|>")};
  StopWords words = CombineStopWords(*tokenizer, {end}, Views{"<|end|>", "he"}, {}).value();
  EXPECT_EQ(words.ids, (std::vector<TokenIds>{end, end}));
  EXPECT_EQ(words.texts, (Texts{"he"}));
  words = CombineStopWords(*tokenizer, {}, Views{"he"}, {.is_beam_search = true}).value();
  EXPECT_EQ(words.ids, (std::vector<TokenIds>{Encode(*tokenizer, "he")}));
  EXPECT_EQ(words.texts, Texts());
  EXPECT_FALSE(CombineStopWords(*tokenizer, {}, Views{"a\xff"}, {}).ok());
}

TEST(StopWordsTest, AWordThatIsMatchedAsIdsIsReportedAsItsText) {
  const auto tokenizer = tokenizer::Tokenizer::FromJson(tokenizer::ByteLevelSpec().dump()).value();
  const TokenIds end = Encode(*tokenizer, "<|end|>");
  const StopWords words =
      CombineStopWords(*tokenizer, {end, Encode(*tokenizer, "b")}, Views{"<|end|>"}, {}).value();
  EXPECT_EQ(words.ids, (std::vector<TokenIds>{end, Encode(*tokenizer, "b"), end}));
  EXPECT_EQ(words.id_texts, (Texts{"<|end|>", "b", "<|end|>"}));
}

TEST(StopWordsTest, AWordThatTheCleanUpChangesKeepsItsIds) {
  const auto tokenizer = tokenizer::Tokenizer::FromJson(tokenizer::ByteLevelSpec().dump()).value();
  const TokenIds ids = Encode(*tokenizer, " .");
  EXPECT_EQ(CombineStopWords(*tokenizer, {ids}, Views{" ."}, {})->ids, std::vector<TokenIds>());
  EXPECT_EQ(CombineStopWords(*tokenizer, {ids}, Views{" ."}, {.cleans_up_spaces = true})->ids,
            (std::vector<TokenIds>{ids}));
}

// The text that a client gets for the ids "Minis", with this stop word as text or as ids.
std::string TextBefore(const tokenizer::Tokenizer& tokenizer, const TokenizerPointer& shared,
                       const TokenIds& drawn, const StopWords& words) {
  StopStringDetector detector(std::make_shared<const StopStrings>(
      StopStrings{shared, {}, 0, tokenizer::StopStringMatcher(words.texts), words.texts}));
  for (size_t n = 1; n <= drawn.size(); ++n) {
    const StopResult result = detector.OnToken(std::span(drawn).first(n));
    if (result.finish == FinishReason::kNone) continue;
    TokenIds visible(drawn.begin(), drawn.begin() + result.num_visible);
    const TokenIds more = detector.ReplacementIds(visible);
    visible.insert(visible.end(), more.begin(), more.end());
    return tokenizer.Decode(visible);
  }
  return tokenizer.Decode(drawn);
}

TEST(StopWordsTest, AWordWithASpaceDoesNotStopInsideAnotherWord) {
  const TokenizerPointer tokenizer = Metaspace();
  const TokenIds minis = Encode(*tokenizer, "Minis in s");
  const TokenIds in = Encode(*tokenizer, " in");
  const auto before = [&](std::vector<TokenIds> ids, Views texts) {
    return TextBefore(*tokenizer, tokenizer, minis,
                      CombineStopWords(*tokenizer, std::move(ids), texts, {}).value());
  };
  EXPECT_EQ(before({in}, {" in"}), "Minis");
  EXPECT_EQ(before({in}, {}), "Minis");
  EXPECT_EQ(before({in}, {"in"}), "M");
}

}  // namespace
}  // namespace nereid::llm
