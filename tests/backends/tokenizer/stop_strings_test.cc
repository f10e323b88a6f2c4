// Stop strings in a streamed text, compared with a search in the whole text for arbitrary chunks.
#include "backends/tokenizer/lib/decode/stop_strings.h"

#include <gtest/gtest.h>

#include <random>

namespace nereid::tokenizer {
namespace {

struct Outcome {
  std::string text;
  std::optional<size_t> match;
};

// The definition: the stop string that ends first; of those the longest; of equal ones the first.
Outcome Search(const std::string& text, const std::vector<std::string>& stops, bool keep) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::optional<size_t> best;
    for (size_t i = 0; i < stops.size(); ++i) {
      const std::string& stop = stops[i];
      if (stop.empty() || stop.size() > end) continue;
      if (text.compare(end - stop.size(), stop.size(), stop) != 0) continue;
      if (!best || stop.size() > stops[*best].size()) best = i;
    }
    if (best) return {text.substr(0, keep ? end : end - stops[*best].size()), best};
  }
  return {text, std::nullopt};
}

Outcome Stream(const std::vector<std::string>& pieces, const std::vector<std::string>& stops,
               bool keep = false) {
  StopStringMatcher matcher(stops, keep);
  Outcome outcome;
  for (const std::string& piece : pieces) matcher.Push(piece, outcome.text);
  matcher.Finish(outcome.text);
  outcome.match = matcher.match();
  return outcome;
}

TEST(StopStringsTest, MatchAcrossChunksEndsText) {
  const Outcome outcome = Stream({"Hello W", "or", "ld", "!", " more"}, {"World!"});
  EXPECT_EQ(outcome.text, "Hello ");
  EXPECT_EQ(outcome.match, 0u);
  EXPECT_EQ(Stream({"Hello W", "or", "ld", "!", " more"}, {"World!"}, true).text, "Hello World!");
}

TEST(StopStringsTest, TextIsHeldBackWhileItMayMatch) {
  StopStringMatcher matcher({"\n\nUser:", "###"});
  std::string out;
  EXPECT_FALSE(matcher.Push("line\n", out));
  EXPECT_EQ(out, "line");
  EXPECT_FALSE(matcher.Push("\nUs", out));
  EXPECT_EQ(out, "line");
  EXPECT_EQ(matcher.pending_bytes(), 4u);
  EXPECT_FALSE(matcher.Push("ing ##", out));
  EXPECT_EQ(out, "line\n\nUsing ");
  EXPECT_TRUE(matcher.Push("# rest", out));
  EXPECT_EQ(out, "line\n\nUsing ");
  EXPECT_EQ(matcher.match(), 1u);
  EXPECT_TRUE(matcher.Push("###", out));
  matcher.Finish(out);
  EXPECT_EQ(out, "line\n\nUsing ");
}

TEST(StopStringsTest, FinishReleasesHeldBackText) {
  EXPECT_EQ(Stream({"a", "##"}, {"###"}).text, "a##");
  EXPECT_EQ(Stream({"a", ""}, {"", ""}).text, "a");
  EXPECT_EQ(Stream({"abc"}, {}).text, "abc");
}

TEST(StopStringsTest, ChunksOfWholeCharactersStayWhole) {
  StopStringMatcher matcher({"\u00e9\u00e8"});
  std::string out;
  matcher.Push("x\u00ea", out);  // shares its first byte with the stop string
  EXPECT_EQ(out, "x\u00ea");
  matcher.Push("\u00e9", out);
  EXPECT_EQ(out, "x\u00ea");
  matcher.Push("\u00ea", out);
  EXPECT_EQ(out, "x\u00ea\u00e9\u00ea");
}

TEST(StopStringsTest, AgreesWithSearchInWholeText) {
  std::mt19937 random(5);
  const auto word = [&](size_t max) {
    std::string text;
    for (size_t n = random() % (max + 1); n > 0; --n) text += static_cast<char>('a' + random() % 2);
    return text;
  };
  size_t matched = 0;
  for (int round = 0; round < 4000; ++round) {
    std::vector<std::string> stops, pieces;
    for (size_t n = random() % 4; n > 0; --n) stops.push_back(word(6));
    for (size_t n = random() % 10; n > 0; --n) pieces.push_back(word(3));
    std::string whole;
    for (const std::string& piece : pieces) whole += piece;
    for (const bool keep : {false, true}) {
      const Outcome expected = Search(whole, stops, keep), got = Stream(pieces, stops, keep);
      ASSERT_EQ(got.text, expected.text) << whole;
      ASSERT_EQ(got.match.has_value(), expected.match.has_value()) << whole;
      if (got.match) {
        ASSERT_EQ(stops[*got.match], stops[*expected.match]) << whole;
        ++matched;
      }
    }
  }
  EXPECT_GT(matched, 1000u);
}

}  // namespace
}  // namespace nereid::tokenizer
