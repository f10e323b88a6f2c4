// The parser of all families whose answers consist of one stretch of reasoning, content and calls,
// in this order: finds the reasoning, and passes what follows it to a machine that finds the
// calls. [one thread at a time]
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "backends/tokenizer/lib/chat/parsers/answer_writer.h"
#include "backends/tokenizer/lib/chat/parsers/chat_parser.h"
#include "backends/tokenizer/lib/chat/parsers/text_machine.h"

namespace nereid::tokenizer::parsers {

// How a family marks its reasoning. The texts must outlive all parsers.
struct ReasoningFormat {
  Markers opens, closes;
  // Markers that end the reasoning and belong to what follows it.
  Markers ends_before = {};
  // Markers around the content, which are dropped from it.
  Markers wrappers = {};
};

// <think> ... </think>
const ReasoningFormat& ThinkTags();

class StagedParser : public ChatParser {
 public:
  using MakeCalls = std::function<std::unique_ptr<TextMachine>(AnswerWriter& writer)>;

  // `make_calls` is called once if the client offers functions. `reasoning` outlives the parser.
  StagedParser(const ParserOptions& options, const ReasoningFormat& reasoning,
               const MakeCalls& make_calls, CallIdStyle id_style = CallIdStyle::kPrefixed);
  ~StagedParser() override;

  void Push(std::string_view text, AnswerDelta& delta) override;
  bool IsReasoning() const override;
  void Finish(AnswerDelta& delta) override;

 private:
  class Splitter;

  AnswerWriter writer_;
  std::unique_ptr<TextMachine> calls_;  // null: all is content
  std::unique_ptr<Splitter> splitter_;
};

}  // namespace nereid::tokenizer::parsers
