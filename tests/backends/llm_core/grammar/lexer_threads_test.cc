// One grammar serves matchers on several threads, which build its automaton together.
#include <thread>

#include "tests/backends/llm_core/grammar/small_vocabulary.h"

namespace nereid::llm::grammar {
namespace {

TEST(LexerThreads, MatchersOnSeveralThreadsSeeTheSameMasks) {
  const auto grammar =
      *Grammar::FromJsonSchema(R"({"type":"object"})", BytesAnd({"\":", "\",\"", "abc"}));
  const std::string text = R"({"a":[1,2.5,"x\n"],"bc":{"d":null},"e":"fgh"})";
  std::vector<std::vector<uint32_t>> masks(4);
  std::vector<std::thread> threads;
  for (auto& own : masks) {
    threads.emplace_back([&] {
      Matcher matcher(grammar);
      std::vector<uint32_t> mask(grammar->vocabulary().num_mask_words());
      for (const char c : text) {
        matcher.ComputeMask(mask);
        own.insert(own.end(), mask.begin(), mask.end());
        if (!matcher.Accept({&c, 1})) own.clear();
      }
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(masks[0].size(), text.size() * grammar->vocabulary().num_mask_words());
  for (const auto& own : masks) EXPECT_EQ(own, masks[0]);
}

}  // namespace
}  // namespace nereid::llm::grammar
