// Models that write their reasoning in <think> tags and no calls that another family knows.
#include "backends/tokenizer/lib/chat/parsers/families/families.h"
#include "backends/tokenizer/lib/chat/parsers/staged_parser.h"

namespace nereid::tokenizer::parsers {
namespace {

constexpr std::string_view kThinkMarkers[] = {"<think>", "</think>"};

std::unique_ptr<ChatParser> MakeThink(const ParserOptions& options) {
  ParserOptions without_tools = options;
  without_tools.tools = nullptr;
  return std::make_unique<StagedParser>(without_tools, ThinkTags(), nullptr);
}

}  // namespace

constexpr ParserFamily kThink = {
    "think", "<think> reasoning, no calls", kThinkMarkers,
    [](std::string_view source) { return Contains(source, "</think>"); }, MakeThink};

}  // namespace nereid::tokenizer::parsers
