// SentencePiece models, serialized here field by field: loading, merging by score, refusals.
#include "backends/tokenizer/lib/parse/protobuf_reader.h"
#include "tests/backends/tokenizer/test_tokenizers.h"

namespace nereid::tokenizer {
namespace {

// Serializes a length-delimited field.
std::string Bytes(int field, const std::string& content) {
  return std::string{static_cast<char>(field << 3 | 2), static_cast<char>(content.size())} +
         content;
}
std::string Number(int field, int value) {
  std::string tag;
  for (int key = field << 3; true; key >>= 7) {
    tag.push_back(static_cast<char>((key & 0x7F) | (key > 0x7F ? 0x80 : 0)));
    if (key <= 0x7F) break;
  }
  return tag + static_cast<char>(value);
}
std::string Piece(const std::string& text, float score, int type = 1) {
  std::string number(4, '\0');
  std::memcpy(number.data(), &score, 4);
  return Bytes(1, Bytes(1, text) + '\x15' + number + Number(3, type));
}

// <unk> <s> </s>, then the letters and some merges. Scores rank the merges: -1 before -2.
std::string Model(const std::string& trainer = Number(3, 2),
                  const std::string& normalizer = Number(4, 0)) {
  return Piece("<unk>", 0, 2) + Piece("<s>", 0, 3) + Piece("</s>", 0, 3) + Piece("▁", -9) +
         Piece("a", -9) + Piece("b", -9) + Piece("ab", -1) + Piece("▁a", -2) + Piece("bb", -2) +
         Bytes(2, trainer) + Bytes(3, normalizer);
}

TEST(SentencePieceTest, MergesByScoreFromTheLeft) {
  const auto loaded = Tokenizer::FromSentencePiece(Model());
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  const Tokenizer& tokenizer = **loaded;
  EXPECT_EQ(Ids(tokenizer, "ab"), (std::vector<int32_t>{3, 6}));
  EXPECT_EQ(Ids(tokenizer, "a bbb"), (std::vector<int32_t>{7, 3, 8, 5}));
  EXPECT_EQ(Ids(tokenizer, "axyb", true), (std::vector<int32_t>{1, 7, 0, 5}));
  EXPECT_EQ(Ids(tokenizer, "a</s>"), (std::vector<int32_t>{7, 2}));
  EXPECT_EQ(Ids(tokenizer, ""), (std::vector<int32_t>{}));
  EXPECT_EQ(tokenizer.Decode(std::vector<int32_t>{1, 7, 3, 6}), "a ab");
  EXPECT_EQ(tokenizer.special_ids().eos, 2);
  EXPECT_EQ(tokenizer.special_ids().unk, 0);
}

TEST(SentencePieceTest, UnigramMaximizesScoreSum) {
  const auto loaded = Tokenizer::FromSentencePiece(Model(Number(3, 1), Number(4, 1)));
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ(Ids(**loaded, "  ab   bb "), (std::vector<int32_t>{3, 6, 3, 8}));
  EXPECT_EQ(Ids(**loaded, "axyb", true), (std::vector<int32_t>{1, 7, 0, 5}));
  EXPECT_EQ(Ids(**loaded, "   "), (std::vector<int32_t>{}));
}

TEST(SentencePieceTest, DecodeKeepsSpacesOfUserDefinedPieces) {
  const auto loaded = Tokenizer::FromSentencePiece(
      Piece("<unk>", 0, 2) + Piece("▁▁", 0, 4) + Piece(" x", 0, 4) + Piece("▁a", -1) +
      Piece("▁", -2) + Bytes(2, Number(3, 1)) + Bytes(3, Number(4, 1)));
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  const auto text = [&](const std::vector<int32_t>& ids) { return (*loaded)->Decode(ids); };
  EXPECT_EQ(text({2, 3}), " x a");  // expected texts from sentencepiece 0.2.3
  EXPECT_EQ(text({1, 3}), "  a");
  EXPECT_EQ(text({1}), " ");
  EXPECT_EQ(text({4, 4, 3, 3}), "a a");
  EXPECT_EQ(text({4, 2}), " x");
}

TEST(SentencePieceTest, OffsetsOfManySpacesTakeLinearTime) {
  const auto loaded = Tokenizer::FromSentencePiece(Model(Number(3, 1), Number(4, 1)));
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  std::string marks;  // a quadratic implementation would take far longer
  for (int i = 0; i < 300'000; ++i) marks += "▁";
  const auto encoding = (*loaded)->EncodeDetailed(marks, {.add_special_tokens = false});
  ASSERT_TRUE(encoding.ok()) << encoding.status().message();
  EXPECT_TRUE(encoding->ids.empty());
}

TEST(SentencePieceTest, RefusesUnsupportedModelsByName) {
  const auto refusal = [](const std::string& model) {
    const auto loaded = Tokenizer::FromSentencePiece(model);
    return loaded.ok() ? std::string("loaded") : loaded.status().message();
  };
  EXPECT_NE(refusal(Model(Number(3, 3))).find("Word"), std::string::npos);
  EXPECT_NE(refusal(Model(Number(3, 2), Number(5, 0))).find("escape_whitespaces"),
            std::string::npos);
  EXPECT_NE(refusal(Model(Number(3, 2), Number(4, 0) + Bytes(2, "xyz"))).find("character map"),
            std::string::npos);
  EXPECT_NE(refusal(Model(Number(3, 1)) + Piece("z", 0, 5)).find("loaded"), std::string::npos);
  EXPECT_NE(refusal(Model() + Piece("z", 0, 5)).find("unused"), std::string::npos);
  EXPECT_NE(refusal(Model() + Piece("\xFF", 0)).find("not UTF-8"), std::string::npos);
  EXPECT_NE(refusal("").find("not a sentencepiece model"), std::string::npos);
  EXPECT_NE(refusal("IQ== 0\nIg== 1\n").find("not a sentencepiece model"), std::string::npos);
}

TEST(SentencePieceTest, TruncatedFilesDoNotCrash) {
  const std::string whole = Model();
  for (size_t size = 0; size < whole.size(); ++size) {
    (void)Tokenizer::FromSentencePiece(whole.substr(0, size)).ok();
  }
}

TEST(ProtobufReaderTest, StopsAtMalformedFields) {
  for (const std::string& bytes : {std::string("\x80", 1),
                                   std::string("\x0a\x05"
                                               "ab",
                                               4),
                                   std::string("\x03", 1), std::string("\x0d\x01", 2),
                                   std::string(11, '\xFF'), std::string("\x00\x00", 2)}) {
    ProtobufReader reader(bytes);
    while (reader.Next()) {
    }
    EXPECT_FALSE(reader.ok());
  }
}

}  // namespace
}  // namespace nereid::tokenizer
