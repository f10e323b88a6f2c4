// Stop strings in a sequence's text, against a plain search in the whole of it.
#include "backends/llm_core/adapter/stop_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "backends/llm_core/engine/stop_criteria.h"
#include "tests/backends/tokenizer/test_tokenizers.h"

namespace nereid::llm_adapter {
namespace {

using llm::FinishReason;
using llm::StopVerdict;
using llm::TokenIds;

struct Outcome {
  TokenIds ids;  // what is put out, the tail with it
  std::string text;
  FinishReason finish = FinishReason::kNone;
};

std::shared_ptr<const tokenizer::Tokenizer> ByteLevel() {
  const std::string json =
      tokenizer::ByteLevelSpec({"h e", "l l", "he ll", "hell o", "Ġ w", "Ġw o", "o Ġw"}).dump();
  return tokenizer::Tokenizer::FromJson(json).value();
}

Outcome Watch(const std::shared_ptr<const tokenizer::Tokenizer>& tokenizer,
              const std::vector<std::string>& stops, const TokenIds& drawn,
              int32_t min_tokens = 0) {
  const auto texts = std::make_shared<const StopTexts>(
      StopTexts{tokenizer, true, min_tokens, tokenizer::StopStringMatcher(stops)});
  StopText watch(texts);
  Outcome outcome;
  int32_t num_visible = 0;
  for (size_t n = 1; n <= drawn.size(); ++n) {
    const StopVerdict verdict = watch.OnToken(std::span(drawn).first(n));
    EXPECT_GE(verdict.num_visible, num_visible) << "what was shown is taken back";
    num_visible = verdict.num_visible;
    outcome.finish = verdict.finish;
    if (outcome.finish != FinishReason::kNone) break;
  }
  const bool was_stopped = outcome.finish == FinishReason::kStop;
  outcome.ids.assign(drawn.begin(), was_stopped ? drawn.begin() + num_visible : drawn.end());
  if (was_stopped) {
    const TokenIds tail = watch.Tail(outcome.ids);
    outcome.ids.insert(outcome.ids.end(), tail.begin(), tail.end());
  }
  outcome.text = tokenizer->Decode(outcome.ids);
  return outcome;
}

TEST(StopText, FindsAStringAcrossTokenBorders) {
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

TEST(StopText, HoldsBackOnlyWhatMayYetMatch) {
  const auto tokenizer = ByteLevel();
  const auto texts = std::make_shared<const StopTexts>(
      StopTexts{tokenizer, true, 0, tokenizer::StopStringMatcher({"ab\n\n"})});
  StopText watch(texts);
  const TokenIds drawn = tokenizer->Encode("xab\nab\nz", {.add_special_tokens = false}).value();
  std::vector<int32_t> visible;
  for (size_t n = 1; n <= drawn.size(); ++n) {
    visible.push_back(watch.OnToken(std::span(drawn).first(n)).num_visible);
  }
  EXPECT_EQ(visible, (std::vector<int32_t>{1, 1, 1, 1, 4, 4, 4, 8}));
}

TEST(StopText, StringsBeforeTheLeastLengthDoNotCount) {
  const auto tokenizer = ByteLevel();
  const TokenIds drawn = tokenizer->Encode("a.b.c.d", {.add_special_tokens = false}).value();
  EXPECT_EQ(Watch(tokenizer, {"."}, drawn, 0).text, "a");
  EXPECT_EQ(Watch(tokenizer, {"."}, drawn, 2).text, "a.b");
  EXPECT_EQ(Watch(tokenizer, {"."}, drawn, 4).text, "a.b.c");
}

TEST(StopText, CutsBetweenCharactersOfSeveralTokens) {
  const auto tokenizer = ByteLevel();
  const std::string text = "a\u00e9\u6f22\U0001F600z";
  const TokenIds drawn = tokenizer->Encode(text, {.add_special_tokens = false}).value();
  EXPECT_EQ(Watch(tokenizer, {"\u6f22"}, drawn).text, "a\u00e9");
  EXPECT_EQ(Watch(tokenizer, {"\U0001F600z"}, drawn).text, "a\u00e9\u6f22");
  EXPECT_EQ(Watch(tokenizer, {"z"}, drawn).text, "a\u00e9\u6f22\U0001F600");
}

// Any ids, any strings: what is put out is the text before the string that ends first.
TEST(StopText, AgreesWithASearchInTheWholeText) {
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

TEST(StopText, TwoJudgesOfATokenAgreeOnTheStricter) {
  using enum FinishReason;
  const auto combined = [](StopVerdict rules, StopVerdict other) {
    const StopVerdict made = llm::Combine(rules, other);
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
}  // namespace nereid::llm_adapter
