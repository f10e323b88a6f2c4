// The clean-up of spaces, whole and in streams. The expected texts are those of transformers 4.57.
#include "backends/tokenizer/lib/decode/space_clean_up.h"

#include <random>

#include "tests/backends/tokenizer/test_tokenizers.h"

namespace nereid::tokenizer {
namespace {

TEST(SpaceCleanUpTest, RemovesSpacesAsTheReference) {
  EXPECT_EQ(CleanUpSpaces("I do not know , really . It 's n't ' a ' ok ? yes ! We 've , they 're"),
            "I do not know, really. It'sn't'a'ok? yes! We've, they're");
  EXPECT_EQ(CleanUpSpaces("  .  ' s ' ' ' '"), " .'s''''");
  EXPECT_EQ(CleanUpSpaces(""), "");
}

TEST(SpaceCleanUpTest, PiecesOfAStreamEqualTheWholeText) {
  std::mt19937 random(3);
  const std::string_view letters = "    ''''nntmsverx.,?!";
  for (int round = 0; round < 200000; ++round) {
    std::string text, streamed, piece;
    SpaceCleanUp clean_up(SIZE_MAX);
    for (size_t left = random() % 14; left > 0; --left) {
      piece.clear();
      for (size_t size = random() % 3; size > 0; --size)
        piece += letters[random() % letters.size()];
      text += piece;
      clean_up.PushToken(piece, streamed);
    }
    clean_up.Finish(streamed);
    ASSERT_EQ(streamed, CleanUpSpaces(text)) << "'" << text << "'";
  }
}

TEST(SpaceCleanUpTest, HoldsBackOnlyWhatCanChange) {
  SpaceCleanUp clean_up(4);
  const auto push = [&](std::string_view text) {
    std::string out;
    clean_up.PushToken(text, out);
    return out;
  };
  EXPECT_EQ(push("plain"), "plain");
  EXPECT_EQ(push(" word "), " word");
  EXPECT_EQ(push("n"), "");
  EXPECT_EQ(push("ow"), " now");
  EXPECT_EQ(push("      "), "    ");
  EXPECT_EQ(push("."), " .");
  EXPECT_TRUE(clean_up.is_flushed());
  EXPECT_EQ(push(" "), "");
  EXPECT_EQ(push("") + push(""), "");
  EXPECT_EQ(push(""), " ") << "held back for more tokens than the limit";
}

class CleanUpFolderTest : public TokenizerFolderTest {};

TEST_F(CleanUpFolderTest, TheConfigurationOfTheTokenizerAsksForIt) {
  Write("tokenizer.json", ByteLevelSpec({}).dump());
  const auto load = [&] { return Tokenizer::Load(folder_.string()).value(); };
  EXPECT_FALSE(load()->cleans_up_spaces());
  Write("tokenizer_config.json", R"({"clean_up_tokenization_spaces": false})");
  EXPECT_FALSE(load()->cleans_up_spaces());
  Write("tokenizer_config.json", R"({"clean_up_tokenization_spaces": true})");
  const auto tokenizer = load();
  EXPECT_TRUE(tokenizer->cleans_up_spaces());
  const auto ids = tokenizer->Encode("yes , it 's .").value();
  EXPECT_EQ(tokenizer->Decode(ids), "yes , it 's .");
  const DecodeOptions cleaning = {.cleans_up_spaces = true};
  EXPECT_EQ(tokenizer->Decode(ids, cleaning), "yes, it's.");
  std::string chunks;
  for (size_t n = 0; n < ids.size(); ++n) {
    chunks += DecodeChunk(*tokenizer, cleaning, std::span(ids).first(n),
                          std::span(ids).subspan(n, 1), n + 1 == ids.size());
  }
  EXPECT_EQ(chunks, "yes, it's.");
}

}  // namespace
}  // namespace nereid::tokenizer
