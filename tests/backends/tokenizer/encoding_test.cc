// The truncation and padding settings of tokenizer.json, and which of them are refused.
// test_components.py compares the results with the reference library.
#include "backends/tokenizer/lib/post_process/encoding.h"

#include "tests/backends/tokenizer/test_tokenizers.h"

namespace nereid::tokenizer {
namespace {

using nlohmann::json;

json Cut(uint64_t max_length, uint64_t stride, const char* side = "Right",
         const char* strategy = "LongestFirst") {
  return {
      {"max_length", max_length}, {"stride", stride}, {"direction", side}, {"strategy", strategy}};
}

json Fill(json strategy) {
  return {{"strategy", std::move(strategy)},
          {"direction", "Right"},
          {"pad_to_multiple_of", nullptr},
          {"pad_id", 7u},
          {"pad_type_id", 0u},
          {"pad_token", "x"}};
}

std::string FaultOf(const json& truncation, const json& padding) {
  json spec = ByteLevelSpec();
  spec["truncation"] = truncation;
  spec["padding"] = padding;
  const auto made = Tokenizer::FromJson(spec.dump());
  return made.ok() ? "" : made.status().message();
}

TEST(Encoding, EncodeTruncatesOnlyOnRequest) {
  json spec = ByteLevelSpec();
  for (const char* side : {"Right", "Left"}) {
    spec["truncation"] = Cut(3, 1, side);
    const auto tokenizer = Tokenizer::FromJson(spec.dump()).value();
    const auto whole = tokenizer->Encode("xyz abc").value();
    ASSERT_EQ(whole.size(), 7u);
    const auto cut = tokenizer->Encode("xyz abc", {.truncate = true}).value();
    EXPECT_EQ(cut, tokenizer->EncodeDetailed("xyz abc").value().ids);
    EXPECT_EQ(cut.front(), side[0] == 'R' ? whole[0] : whole[4]);
    EXPECT_EQ(cut.size(), 3u);
  }
}

TEST(Encoding, OverflowingWindowsShareStride) {
  json spec = ByteLevelSpec();
  spec["truncation"] = Cut(3, 1);
  const auto tokenizer = Tokenizer::FromJson(spec.dump()).value();
  const Encoding encoding = tokenizer->EncodeDetailed("abcdefg").value();
  ASSERT_EQ(encoding.overflowing.size(), 2u);
  EXPECT_EQ(encoding.overflowing[0].offsets.front(), (TextSpan{2, 3}));
  EXPECT_EQ(encoding.overflowing[1].offsets.back(), (TextSpan{6, 7}));
}

TEST(Encoding, BatchIsPaddedToSameLength) {
  json spec = ByteLevelSpec();
  spec["padding"] = Fill("BatchLongest");
  const auto tokenizer = Tokenizer::FromJson(spec.dump()).value();
  const std::string_view texts[] = {"a", "abcd", ""};
  const std::vector<Encoding> batch = tokenizer->EncodeBatch(texts).value();
  for (const Encoding& encoding : batch) {
    EXPECT_EQ(encoding.ids.size(), 4u);
    EXPECT_EQ(encoding.offsets.size(), 4u);
  }
}

TEST(Encoding, RefusesInvalidSettingsWithBothValues) {
  EXPECT_EQ(FaultOf(Cut(4, 3), nullptr), "");
  EXPECT_NE(FaultOf(Cut(4, 4), nullptr).find("a stride of 4 with a max_length of 4"),
            std::string::npos);
  EXPECT_NE(FaultOf(Cut(4, 0, "Up"), nullptr).find("expected Left or Right, got 'Up'"),
            std::string::npos);
  EXPECT_NE(FaultOf(Cut(4, 0, "Left", "Shortest"), nullptr).find("got 'Shortest'"),
            std::string::npos);
  EXPECT_NE(FaultOf(json::array(), nullptr).find("truncation: expected an object, got array"),
            std::string::npos);
  EXPECT_NE(FaultOf(nullptr, Fill("Shortest")).find("padding.strategy"), std::string::npos);
  EXPECT_NE(FaultOf(nullptr, Fill({{"Fixed", 1u << 30}})).find("padding: a length of 1073741824"),
            std::string::npos);
}

TEST(Encoding, OnlySecondStrategyFailsForSingleText) {
  json spec = ByteLevelSpec();
  spec["truncation"] = Cut(3, 0, "Right", "OnlySecond");
  const auto tokenizer = Tokenizer::FromJson(spec.dump()).value();
  EXPECT_TRUE(tokenizer->EncodeDetailed("abc").ok());
  EXPECT_NE(tokenizer->EncodeDetailed("abcd").status().message().find("OnlySecond"),
            std::string::npos);
  EXPECT_FALSE(tokenizer->Encode("abcd", {.truncate = true}).ok());
}

TEST(Encoding, RefusesHugeResults) {
  json spec = ByteLevelSpec();
  spec["truncation"] = Cut(4096, 4095);
  const std::string text(1u << 14, 'x');
  const auto overlapping = Tokenizer::FromJson(spec.dump()).value()->EncodeDetailed(text);
  EXPECT_NE(overlapping.status().message().find(
                "16384 tokens make 12289 windows of 4096 with a stride of 4095"),
            std::string::npos)
      << overlapping.status().message();
  spec["truncation"] = Cut(2, 0);
  spec["padding"] = Fill({{"Fixed", 1u << 20}});
  const auto padded = Tokenizer::FromJson(spec.dump()).value();
  EXPECT_NE(padded->EncodeDetailed(text).status().message().find(
                "padding: 8192 encodings of 1048576 tokens"),
            std::string::npos);
  EXPECT_TRUE(padded->Encode(text).ok());
}

TEST(Encoding, LongTextHasOffsets) {
  const auto tokenizer = Tokenizer::FromJson(ByteLevelSpec().dump()).value();
  const std::string text(1u << 14, 'x');
  const Encoding encoding = tokenizer->EncodeDetailed(text).value();
  ASSERT_EQ(encoding.ids.size(), text.size());
  EXPECT_EQ(encoding.offsets.back(), (TextSpan{(1u << 14) - 1, 1u << 14}));
}

// Expected lengths from the reference, except for the last case: the reference treats a negative
// length as unlimited.
TEST(Encoding, PairIsTruncatedByStrategy) {
  json spec = ByteLevelSpec({});
  const auto fault = [&](const json& truncation) {
    spec["truncation"] = truncation;
    const auto pair = MustLoad(spec)->EncodePair("abc", "defg");
    return pair.ok() ? std::to_string(pair->ids.size()) : pair.status().message();
  };
  EXPECT_EQ(fault(Cut(5, 0)), "5");
  EXPECT_EQ(fault(Cut(5, 0, "Right", "OnlyFirst")), "5");
  EXPECT_NE(fault(Cut(4, 0, "Right", "OnlyFirst")).find("the first text has 3 tokens, but 3"),
            std::string::npos);
  EXPECT_NE(fault(Cut(5, 3)).find("a stride of 3 over windows of 2"), std::string::npos);
  spec["post_processor"] = {
      {"type", "RobertaProcessing"}, {"cls", {"B", 66u}}, {"sep", {"E", 69u}}};
  EXPECT_NE(fault(Cut(3, 0)).find("a max_length of 3, but two texts have 4"), std::string::npos);
}

TEST(Encoding, PostProcessorThatCannotProcessPairsIsNamed) {
  json spec = ByteLevelSpec({});
  const json text = {{"Sequence", {{"id", "A"}, {"type_id", 0u}}}};
  spec["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single", {text}},
                            {"pair", {text, text}},
                            {"special_tokens", json::object()}};
  const auto tokenizer = MustLoad(spec);
  EXPECT_EQ(Ids(*tokenizer, "a", true), (std::vector<int32_t>{'a'}));
  const auto pair = tokenizer->EncodePair("a", "b");
  ASSERT_FALSE(pair.ok());
  EXPECT_NE(pair.status().message().find(".pair: expected each text once, got A 2 times"),
            std::string::npos);
}

TEST(Encoding, RefusesTooManyWindowPairs) {
  json spec = ByteLevelSpec({});
  spec["truncation"] = Cut(2, 0);
  const std::string text(8192, 'x');
  const auto pair = MustLoad(spec)->EncodePair(text, text);
  ASSERT_FALSE(pair.ok());
  EXPECT_NE(pair.status().message().find("67108864 pairs of windows"), std::string::npos);
}

}  // namespace
}  // namespace nereid::tokenizer
