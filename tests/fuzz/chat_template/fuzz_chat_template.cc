// Fuzzes the template engine: parses arbitrary bytes as a template and renders it with a small
// conversation. Neither may crash, leak or exceed the limits, and the marks of the result must be
// sorted ranges within it.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "backends/tokenizer/lib/chat/jinja/template.h"

namespace {

using nereid::tokenizer::ByteRange;
using nereid::tokenizer::MarkedText;
using nereid::tokenizer::jinja::Dict;
using nereid::tokenizer::jinja::FromJson;
using nereid::tokenizer::jinja::RenderLimits;
using nereid::tokenizer::jinja::Template;
using nereid::tokenizer::jinja::Value;

const Dict& Conversation() {
  static const Dict kContext = [] {
    const auto messages = nlohmann::ordered_json::parse(
        R"([{"role": "user", "content": "é <|im_start|> \"x\""}, {"role": "assistant", "n": 1.5}])");
    Dict context;
    context.Set(Value("messages"), std::move(FromJson(messages, /*is_input=*/true)).value());
    context.Set(Value("bos_token"), Value("<s>"));
    return context;
  }();
  return kContext;
}

void CheckMarks(const MarkedText& text) {
  size_t end = 0;
  for (const ByteRange& range : text.input_ranges()) {
    if (range.begin < end || range.begin >= range.end || range.end > text.size()) std::abort();
    end = range.end;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto parsed = Template::Parse({reinterpret_cast<const char*>(data), size});
  if (!parsed.ok()) return 0;
  RenderLimits limits;
  limits.max_bytes = 1 << 22;
  limits.max_output_bytes = 1 << 20;
  limits.max_steps = 20'000;
  limits.max_depth = 300;
  if (const auto text = (*parsed)->Render(Conversation(), std::tm{}, limits); text.ok()) {
    CheckMarks(*text);
  }
  return 0;
}
