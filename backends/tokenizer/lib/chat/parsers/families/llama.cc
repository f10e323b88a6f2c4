// Llama 3 and 4: an answer that is {"name": "f", "parameters": {}}, also behind <|python_tag|>, or
// a list of Python calls, [f(x=1)]; built-in tools are <|python_tag|>f.call(x=1).
#include "backends/tokenizer/lib/chat/parsers/block_calls.h"
#include "backends/tokenizer/lib/chat/parsers/families/families.h"
#include "backends/tokenizer/lib/chat/parsers/staged_parser.h"

namespace nereid::tokenizer::parsers {
namespace {

constexpr std::string_view kLlamaMarkers[] = {"<think>", "</think>", "<|python_tag|>",
                                              "<|python_start|>", "<|python_end|>"};
constexpr std::string_view kLlamaBegins[] = {"<|python_tag|>", "<|python_start|>"};
constexpr std::string_view kLlamaEnds[] = {"<|python_end|>"};
constexpr BlockFormat kLlamaFormat = {.begins = kLlamaBegins,
                                      .ends = kLlamaEnds,
                                      .opens_answer = true,
                                      .has_objects = true,
                                      .has_lists = true,
                                      .has_python_lists = true,
                                      .has_python_calls = true};

// Templates that ask for Python calls show one. The others render one JSON object.
CallForm LlamaCallForm(std::string_view source) {
  if (Contains(source, "func_name1(")) return PythonCallForm();
  return JsonCallForm({.arguments = "parameters", .has_one_call = true});
}

std::unique_ptr<ChatParser> MakeLlama(const ParserOptions& options) {
  return std::make_unique<StagedParser>(options, ThinkTags(), [&](AnswerWriter& writer) {
    return std::make_unique<BlockCalls>(writer, kLlamaFormat, options.tools);
  });
}

}  // namespace

constexpr ParserFamily kLlama = {
    "llama",
    "an answer of JSON or of Python calls, <|python_tag|> (Llama 3 and 4)",
    kLlamaMarkers,
    [](std::string_view source) {
      return Contains(source, "<|start_header_id|>") || Contains(source, "<|header_start|>");
    },
    MakeLlama,
    LlamaCallForm};

}  // namespace nereid::tokenizer::parsers
