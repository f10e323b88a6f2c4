// Decoding: each chain of components, and streams.
#include "backends/tokenizer/lib/decode/decoder.h"

#include <random>

#include "tests/backends/tokenizer/test_tokenizers.h"

namespace nereid::tokenizer {
namespace {

using nlohmann::json;

const json kMetaspace = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "always"}};
const json kByteFallback = {{"type", "ByteFallback"}};
const json kFuse = {{"type", "Fuse"}};
const json kReplace = {{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}};

json Strip(unsigned start, unsigned stop) {
  return {{"type", "Strip"}, {"content", " "}, {"start", start}, {"stop", stop}};
}
json DecoderSequence(std::vector<json> steps) {
  return {{"type", "Sequence"}, {"decoders", std::move(steps)}};
}

// Decodes `tokens` one by one. The output must be valid UTF-8 after each token.
std::string Decode(const json& spec, const std::vector<std::string>& tokens) {
  const auto token_of_id = [&](int32_t id) -> std::optional<TokenDecoder::Token> {
    return TokenDecoder::Token{tokens[id], tokens[id] == "<s>"};
  };
  const auto decoder = TokenDecoder::Make(spec, static_cast<int32_t>(tokens.size()), token_of_id);
  if (!decoder.ok()) {
    ADD_FAILURE() << decoder.status().message();
    return "";
  }
  std::string text;
  DecodeState state(*decoder, /*skip_special_tokens=*/true, SIZE_MAX);
  for (size_t id = 0; id < tokens.size(); ++id) {
    state.Push(static_cast<int32_t>(id), text);
    EXPECT_TRUE(IsValidUtf8(text)) << "behind token " << id;
  }
  state.Finish(text);
  return text;
}

TEST(DecoderTest, ByteLevelJoinsBytesAcrossTokens) {
  const json byte_level = {{"type", "ByteLevel"}};
  EXPECT_EQ(Decode(byte_level, {"Hello", "Ġ", "Ã", "©", "<s>", "Ã"}), "Hello \u00e9\uFFFD");
  EXPECT_EQ(Decode(byte_level, {"a b", "\u4e2d"}),
            "a b\u4e2d");  // not in the printable form: unchanged
}

TEST(DecoderTest, ByteFallbackDecodesWholeRuns) {
  const json spec = DecoderSequence({kReplace, kByteFallback, kFuse, Strip(1, 0)});
  EXPECT_EQ(Decode(spec, {"▁Hi", "<0xE4>", "<0xB8>", "<0xAD>", "▁x"}), "Hi\u4e2d x");
  EXPECT_EQ(Decode(spec, {"<0xE4>", "<0xB8>", "a"}), "\uFFFD\uFFFDa");
  EXPECT_EQ(Decode(spec, {"<0xE4>", "<0xB8>", "<0xAD>", "<0xFF>"}), "\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(Decode(spec, {"<0xe4>", "<0xB8>", "<s>", "<0xad>", "<0xZZ>"}), "\u4e2d<0xZZ>");
  EXPECT_EQ(Decode(spec, {"<s>", "▁", "▁a"}), " a");
}

TEST(DecoderTest, OnlyFirstTokenLosesItsMark) {
  EXPECT_EQ(Decode(kMetaspace, {"▁a▁", "▁b", "▁"}), "a b ");
  EXPECT_EQ(Decode(DecoderSequence({kByteFallback, kMetaspace}), {"<0x41>", "▁b"}), "A b");
  EXPECT_EQ(Decode(DecoderSequence({kMetaspace, kByteFallback, kFuse}), {"<0xFF>", "▁b"}),
            "\uFFFD b");
}

TEST(DecoderTest, StripAppliesToTokensBeforeFuseAndToTextAfterIt) {
  EXPECT_EQ(Decode(DecoderSequence({Strip(1, 1)}), {" a ", "  b", " "}), "a b");
  EXPECT_EQ(Decode(DecoderSequence({kFuse, Strip(2, 1)}), {" ", "  a ", " ", "b ", " "}), " a  b ");
  EXPECT_EQ(Decode(DecoderSequence({kFuse, kReplace, Strip(1, 0)}), {"▁a", "▁b"}), "a b");
}

TEST(DecoderTest, WithoutDecoderTokensAreJoinedWithSpaces) {
  EXPECT_EQ(Decode(nullptr, {"a", "<s>", "b"}), "a b");
}

TEST(DecoderTest, RefusesByName) {
  const std::vector<std::pair<json, std::string>> cases = {
      {{{"type", "WordPiece"}}, "WordPiece.prefix"},
      {{{"type", "Morse"}}, "Morse"},
      {DecoderSequence({kByteFallback, {{"type", "CTC"}}}), "CTC"},
      {DecoderSequence({kFuse, kByteFallback}), "ByteFallback"},
      {DecoderSequence({kByteFallback, {{"type", "ByteLevel"}}}), "ByteLevel"},
      {DecoderSequence({kFuse, kMetaspace}), "Metaspace"},
      {DecoderSequence(
           {kFuse, {{"type", "Replace"}, {"pattern", {{"Regex", "a"}}}, {"content", ""}}}),
       "Replace"},
      {{{"type", "Strip"}, {"content", "ab"}, {"start", 1u}, {"stop", 0u}}, "Strip.content"},
      {{{"type", "Strip"}, {"content", " "}, {"start", -1}, {"stop", 0u}}, "Strip.start"},
      {{{"type", "Sequence"}}, "decoders"}};
  for (const auto& [spec, name] : cases) {
    const auto steps = DecoderSteps::Make(spec);
    ASSERT_FALSE(steps.ok()) << spec;
    EXPECT_NE(steps.status().message().find(name), std::string::npos) << steps.status().message();
  }
}

TEST(DecoderTest, PendingLimitReleasesHeldBackText) {
  const auto tokenizer = MustLoad(ByteLevelSpec({}));
  IncrementalDecoder bytes(*tokenizer, {}, /*max_pending_ids=*/4);
  std::string text;
  const int32_t end = *tokenizer->TokenToId("<|end|>");
  bytes.Push(std::vector<int32_t>{'a', 0xC3, end, end}, text);
  EXPECT_EQ(text, "a");
  bytes.Push(std::vector<int32_t>{end, 0xA9, 'b'}, text);
  EXPECT_EQ(text,
            "a\uFFFD\uFFFDb");  // nothing is lost, but the bytes of the character no longer combine

  const auto fallback = MustLoad(MetaspaceSpec({"▁"}, {}));
  IncrementalDecoder run(*fallback, {}, /*max_pending_ids=*/4);
  text.clear();
  const auto byte = [](int b) { return 3 + b; };
  run.Push(std::vector<int32_t>{byte('a'), byte('b'), byte('c')}, text);
  EXPECT_EQ(text, "");
  run.Push(std::vector<int32_t>{byte(0xC3)}, text);
  EXPECT_EQ(text, "abc");
  run.Push(std::vector<int32_t>{byte(0xA9), byte('d')}, text);
  EXPECT_EQ(text, "abc\u00e9d");
}

TEST(TokenBytesTest, AreWhatATokenAddsInsideAText) {
  const auto byte_level = MustLoad(ByteLevelSpec());
  EXPECT_EQ(byte_level->TokenBytes(260), " w");
  EXPECT_EQ(byte_level->TokenBytes(0xe4), "\xe4");  // a part of a character
  EXPECT_EQ(byte_level->TokenBytes(261), "<|end|>");
  const auto metaspace = MustLoad(MetaspaceSpec({"▁a", "é"}, {}));
  EXPECT_EQ(metaspace->TokenBytes(259), " a");
  EXPECT_EQ(metaspace->TokenBytes(260), "é");
  EXPECT_EQ(metaspace->TokenBytes(3 + 0xe4), "\xe4");
  EXPECT_EQ(metaspace->TokenBytes(1), "<s>");
  for (const int32_t id : {-1, 1000}) EXPECT_EQ(metaspace->TokenBytes(id), "");
}

}  // namespace
}  // namespace nereid::tokenizer
