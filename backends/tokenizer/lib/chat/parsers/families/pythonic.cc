// Models that answer with a list of Python calls, [f(x=1), g()], without markers. Chosen
// by name only.
#include "backends/tokenizer/lib/chat/parsers/block_calls.h"
#include "backends/tokenizer/lib/chat/parsers/families/families.h"
#include "backends/tokenizer/lib/chat/parsers/staged_parser.h"

namespace nereid::tokenizer::parsers {
namespace {

constexpr BlockFormat kPythonicFormat = {.opens_answer = true, .has_python_lists = true};

std::unique_ptr<ChatParser> MakePythonic(const ParserOptions& options) {
  return std::make_unique<StagedParser>(options, ThinkTags(), [&](AnswerWriter& writer) {
    return std::make_unique<BlockCalls>(writer, kPythonicFormat, options.tools);
  });
}

}  // namespace

constexpr ParserFamily kPythonic = {
    "pythonic",   "an answer that is a list of Python calls",
    {},           [](std::string_view) { return false; },
    MakePythonic, [](std::string_view) { return PythonCallForm(); }};

}  // namespace nereid::tokenizer::parsers
