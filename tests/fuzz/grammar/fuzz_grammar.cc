// Fuzzes the front ends of grammars: the first byte chooses between JSON schemas, regular
// expressions, rules and choices. What compiles is followed along a fixed text, and both ways of
// computing a mask must agree.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "backends/llm_core/grammar/grammar.h"
#include "backends/llm_core/grammar/matcher.h"

namespace {

using nereid::llm::grammar::Grammar;
using nereid::llm::grammar::GrammarOptions;
using nereid::llm::grammar::Matcher;
using nereid::llm::grammar::Vocabulary;

std::shared_ptr<const Vocabulary> SmallVocabulary() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* more : {"{\"", "\":", "\",", "aa", "ab", "}}", "12", "\xc3\xa9", ""}) {
    tokens.emplace_back(more);
  }
  const auto end = static_cast<int32_t>(tokens.size() - 1);
  return Vocabulary::Make(std::move(tokens), {end}).value();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto vocabulary = SmallVocabulary();
  if (size == 0) return 0;
  const GrammarOptions options{.max_text_bytes = 1 << 16,
                               .max_memory_bytes = size_t{64} << 20,
                               .max_compile_steps = 300'000};
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto grammar = data[0] % 4 == 0   ? Grammar::FromJsonSchema(text, vocabulary, options)
                       : data[0] % 4 == 1 ? Grammar::FromRegex(text, vocabulary, options)
                       : data[0] % 4 == 2
                           ? Grammar::FromEbnf(text, vocabulary, options)
                           : Grammar::FromChoices({std::string(text)}, vocabulary, options);
  if (!grammar.ok()) return 0;
  Matcher matcher(*grammar, {.max_items_per_set = 2000,
                             .max_items = 100'000,
                             .max_work = 200'000,
                             .work_per_step = 100'000});
  std::vector<uint32_t> mask(vocabulary->num_mask_words()), walked = mask;
  for (const char c : std::string_view("{\"a\":[12,\"b\"]}aab")) {
    matcher.ComputeMask(mask);
    matcher.ComputeMaskByWalk(walked);
    if (!matcher.status().ok()) return 0;
    if (mask != walked) std::abort();
    const auto byte = static_cast<uint8_t>(c);
    const bool allowed = mask[byte / 32] >> (byte % 32) & 1;
    const bool accepted = matcher.Accept({&c, 1});
    if (!matcher.status().ok()) return 0;
    if (accepted != allowed) std::abort();
    if (!allowed) return 0;
  }
  return 0;
}
