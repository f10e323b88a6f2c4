// Stop strings in the text of a sequence, compared with a plain search in the whole text.
#include "backends/llm_core/adapter/stop_string_detector.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "backends/llm_core/engine/stop_criteria.h"
#include "tests/backends/tokenizer/test_tokenizers.h"

namespace nereid::llm {
namespace {

using llm::FinishReason;
using llm::StopResult;
using llm::TokenIds;

struct Outcome {
  TokenIds ids;  // emitted ids, the replacement ids included
  std::string text;
  std::string found;  // stop string
  FinishReason finish = FinishReason::kNone;
};

std::shared_ptr<const tokenizer::Tokenizer> ByteLevel() {
  const std::string json =
      tokenizer::ByteLevelSpec({"h e", "l l", "he ll", "hell o", "Ġ w", "Ġw o", "o Ġw"}).dump();
  return tokenizer::Tokenizer::FromJson(json).value();
}

Outcome Watch(const std::shared_ptr<const tokenizer::Tokenizer>& tokenizer,
              const std::vector<std::string>& stops, const TokenIds& drawn, int32_t min_tokens = 0,
              bool includes_stop = false) {
  const auto texts = std::make_shared<const StopStrings>(StopStrings{
      tokenizer, {}, min_tokens, tokenizer::StopStringMatcher(stops, includes_stop), stops});
  StopStringDetector watch(texts);
  Outcome outcome;
  int32_t num_visible = 0;
  for (size_t n = 1; n <= drawn.size(); ++n) {
    const StopResult verdict = watch.OnToken(std::span(drawn).first(n));
    EXPECT_GE(verdict.num_visible, num_visible) << "what was shown is taken back";
    num_visible = verdict.num_visible;
    outcome.finish = verdict.finish;
    if (outcome.finish != FinishReason::kNone) break;
  }
  const bool was_stopped = outcome.finish == FinishReason::kStop;
  outcome.ids.assign(drawn.begin(), was_stopped ? drawn.begin() + num_visible : drawn.end());
  if (was_stopped) {
    const TokenIds tail = watch.ReplacementIds(outcome.ids);
    outcome.ids.insert(outcome.ids.end(), tail.begin(), tail.end());
  }
  outcome.text = tokenizer->Decode(outcome.ids);
  if (was_stopped) outcome.found = watch.found();
  return outcome;
}

TEST(StopStringDetector, FindsAStringAcrossTokenBoundaries) {
  const auto tokenizer = ByteLevel();
  const TokenIds drawn = tokenizer->Encode("hello world", {.add_special_tokens = false}).value();
  ASSERT_LT(drawn.size(), 11u);
  for (const char* stop : {"llo wor", "o w", "ell", "world", "h", "d"}) {
    const Outcome outcome = Watch(tokenizer, {stop}, drawn);
    EXPECT_EQ(outcome.finish, FinishReason::kStop) << stop;
    EXPECT_EQ(outcome.text,
              std::string("hello world").substr(0, std::string("hello world").find(stop)));
  }
  EXPECT_EQ(Watch(tokenizer, {"worm", "hello?"}, drawn).finish, FinishReason::kNone);
}

TEST(StopStringDetector, AnIncludedStringEndsTheTextWhereverItsTokensEnd) {
  const auto tokenizer = ByteLevel();
  const std::string text = "hello world";
  const TokenIds drawn = tokenizer->Encode(text, {.add_special_tokens = false}).value();
  for (const std::string stop : {"llo wor", "o w", "ell", "world", "h", "d", "hello"}) {
    const Outcome outcome = Watch(tokenizer, {"none", stop}, drawn, 0, true);
    EXPECT_EQ(outcome.finish, FinishReason::kStop) << stop;
    EXPECT_EQ(outcome.found, stop);
    EXPECT_EQ(outcome.text, text.substr(0, text.find(stop) + stop.size()));
  }
}

TEST(StopStringDetector, HoldsBackOnlyPossibleMatches) {
  const auto tokenizer = ByteLevel();
  const auto texts = std::make_shared<const StopStrings>(
      StopStrings{tokenizer, {}, 0, tokenizer::StopStringMatcher({"ab\n\n"}), {}});
  StopStringDetector watch(texts);
  const TokenIds drawn = tokenizer->Encode("xab\nab\nz", {.add_special_tokens = false}).value();
  std::vector<int32_t> visible;
  for (size_t n = 1; n <= drawn.size(); ++n) {
    visible.push_back(watch.OnToken(std::span(drawn).first(n)).num_visible);
  }
  EXPECT_EQ(visible, (std::vector<int32_t>{1, 1, 1, 1, 4, 4, 4, 8}));
}

TEST(StopStringDetector, StringsBeforeMinTokensDoNotCount) {
  const auto tokenizer = ByteLevel();
  const TokenIds drawn = tokenizer->Encode("a.b.c.d", {.add_special_tokens = false}).value();
  EXPECT_EQ(Watch(tokenizer, {"."}, drawn, 0).text, "a");
  EXPECT_EQ(Watch(tokenizer, {"."}, drawn, 2).text, "a.b");
  EXPECT_EQ(Watch(tokenizer, {"."}, drawn, 4).text, "a.b.c");
}

TEST(StopStringDetector, CutsBetweenCharactersOfSeveralTokens) {
  const auto tokenizer = ByteLevel();
  const std::string text = "a\u00e9\u6f22\U0001F600z";
  const TokenIds drawn = tokenizer->Encode(text, {.add_special_tokens = false}).value();
  EXPECT_EQ(Watch(tokenizer, {"\u6f22"}, drawn).text, "a\u00e9");
  EXPECT_EQ(Watch(tokenizer, {"\U0001F600z"}, drawn).text, "a\u00e9\u6f22");
  EXPECT_EQ(Watch(tokenizer, {"z"}, drawn).text, "a\u00e9\u6f22\U0001F600");
}

// For random ids and strings, the emitted text ends before the first complete stop string.
TEST(StopStringDetector, AgreesWithASearchInTheWholeText) {
  const auto tokenizer = ByteLevel();
  std::mt19937 random(7);
  const auto below = [&](size_t end) { return random() % end; };
  const std::string letters = "helo w";
  int num_stopped = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stops(1 + below(3));
    for (std::string& stop : stops) {
      for (size_t left = 1 + below(4); left > 0; --left) stop += letters[below(letters.size())];
    }
    TokenIds drawn;
    std::string text;
    for (size_t left = 1 + below(12); left > 0; --left) {
      const int32_t merged = 256 + static_cast<int32_t>(below(7));
      const int32_t byte = static_cast<unsigned char>(letters[below(letters.size())]);
      drawn.push_back(below(2) == 0 ? merged : byte);
    }
    text = tokenizer->Decode(drawn);
    size_t end = text.npos, begin = 0;
    for (const std::string& stop : stops) {
      const size_t found = text.find(stop);
      if (found == text.npos) continue;
      const size_t stop_end = found + stop.size();
      if (end != text.npos && (stop_end > end || (stop_end == end && found >= begin))) continue;
      end = stop_end;
      begin = found;
    }
    const Outcome outcome = Watch(tokenizer, stops, drawn);
    EXPECT_EQ(outcome.finish == FinishReason::kStop, end != text.npos);
    EXPECT_EQ(outcome.text, end == text.npos ? text : text.substr(0, begin)) << text;
    num_stopped += end != text.npos;
  }
  EXPECT_GT(num_stopped, 1000);
}

TEST(StopStringDetector, CombineReturnsTheStricterResult) {
  using enum FinishReason;
  const auto combined = [](StopResult rules, StopResult other) {
    const StopResult made = llm::Combine(rules, other);
    return std::pair(made.finish, made.num_visible);
  };
  EXPECT_EQ(combined({kNone, 5}, {kNone, 3}), std::pair(kNone, 3));
  EXPECT_EQ(combined({kLength, 5}, {kNone, 3}), std::pair(kLength, 5));
  EXPECT_EQ(combined({kLength, 5}, {kStop, 3}), std::pair(kStop, 3));
  EXPECT_EQ(combined({kStop, 4}, {kNone, 3}), std::pair(kStop, 4));
  EXPECT_EQ(combined({kStop, 4}, {kStop, 2}), std::pair(kStop, 2));
  EXPECT_EQ(combined({kNone, 5}, {kStop, 2}), std::pair(kStop, 2));
}

}  // namespace
}  // namespace nereid::llm
