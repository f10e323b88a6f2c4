// Seed-OSS: <seed:tool_call><function=f><parameter=x>1</parameter></function></seed:tool_call>.
#include "backends/tokenizer/lib/chat/parsers/families/families.h"
#include "backends/tokenizer/lib/chat/parsers/staged_parser.h"
#include "backends/tokenizer/lib/chat/parsers/tagged_calls.h"

namespace nereid::tokenizer::parsers {
namespace {

constexpr std::string_view kSeedMarkers[] = {"<seed:think>", "</seed:think>", "<seed:tool_call>",
                                             "</seed:tool_call>"};
constexpr std::string_view kSeedOpens[] = {"<seed:think>"};
constexpr std::string_view kSeedCloses[] = {"</seed:think>"};
constexpr ReasoningFormat kSeedReasoning = {kSeedOpens, kSeedCloses};
constexpr TaggedFormat kSeedFormat = {.begin = "<seed:tool_call>",
                                      .end = "</seed:tool_call>",
                                      .name_begin = "<function=",
                                      .name_end = ">",
                                      .key_begin = "<parameter=",
                                      .key_end = ">",
                                      .value_begin = "",
                                      .value_end = "</parameter>",
                                      .call_end = "</function>"};

std::unique_ptr<ChatParser> MakeSeed(const ParserOptions& options) {
  return std::make_unique<StagedParser>(options, kSeedReasoning, [&](AnswerWriter& writer) {
    return std::make_unique<TaggedCalls>(writer, kSeedFormat, options.tools);
  });
}

}  // namespace

constexpr ParserFamily kSeed = {
    "seed_oss",
    "<function=...> and <parameter=...> tags in <seed:tool_call>, <seed:think> reasoning "
    "(Seed-OSS)",
    kSeedMarkers,
    [](std::string_view source) { return Contains(source, "<seed:tool_call>"); },
    MakeSeed,
    [](std::string_view) {
      return TaggedCallForm(kSeedFormat, {.has_blocks = true, .reasoning_end = "</seed:think>\n"});
    },
    {"<seed:think>", "</seed:think>"}};

}  // namespace nereid::tokenizer::parsers
