// Fuzzes the parsers of answers: the first byte chooses the family, the second one whether the
// prompt has opened the reasoning and functions are offered, the third one seeds the places where
// the rest is cut. No parser may crash, and the text must give the same whole and in pieces.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "backends/tokenizer/lib/chat/parsers/chat_parser.h"
#include "backends/tokenizer/lib/chat/parsers/parser_family.h"

namespace {

using nereid::tokenizer::AnswerDelta;
using nereid::tokenizer::ParserFamilies;
using nereid::tokenizer::ParserFamily;
using nereid::tokenizer::ParserOptions;
using nereid::tokenizer::ToolCallDelta;
using nereid::tokenizer::ToolSchemas;

constexpr char kTools[] = R"([{"name": "f", "parameters": {"properties": {"s": {"type": "string"},
    "n": {"type": "integer"}, "o": {"type": "object"}}}}, {"name": "g"}])";

// The concatenated deltas, with marks where calls begin.
struct Sum {
  std::string reasoning, content, calls;
  size_t num_calls = 0;

  void Add(const AnswerDelta& delta) {
    reasoning += delta.reasoning;
    content += delta.content;
    for (const ToolCallDelta& call : delta.tool_calls) {
      if (call.name.empty() != call.id.empty()) std::abort();
      if (!call.name.empty()) calls += "\n" + call.id + " " + call.name + " ";
      if (!call.name.empty() && call.index != num_calls++) std::abort();
      if (call.index + 1 != num_calls) std::abort();
      calls += call.arguments;
    }
  }
  bool operator==(const Sum&) const = default;
};

Sum Parse(const ParserFamily& family, const ParserOptions& options, std::string_view text,
          uint32_t seed) {
  const auto parser = family.make(options);
  Sum sum;
  while (!text.empty()) {
    seed = seed * 1664525 + 1013904223;
    const size_t size = (seed >> 24) % 9;
    AnswerDelta delta;
    parser->Push(text.substr(0, size), delta);
    sum.Add(delta);
    text.remove_prefix(std::min(size, text.size()));
  }
  AnswerDelta delta;
  parser->Finish(delta);
  sum.Add(delta);
  return sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  static const std::shared_ptr<const ToolSchemas> kSchemas = *ToolSchemas::Parse(kTools);
  const ParserFamily& family = *ParserFamilies()[data[0] % ParserFamilies().size()];
  const ParserOptions options = {.prompt_end = (data[1] & 1) != 0 ? "<think>\n" : "",
                                 .tools = (data[1] & 2) != 0 ? nullptr : kSchemas,
                                 .id_seed = 1};
  const std::string_view text(reinterpret_cast<const char*>(data + 3), size - 3);
  const auto parser = family.make(options);
  AnswerDelta delta;
  parser->Push(text, delta);
  parser->Finish(delta);
  Sum whole;
  whole.Add(delta);
  if (whole != Parse(family, options, text, data[2])) std::abort();
  return 0;
}
