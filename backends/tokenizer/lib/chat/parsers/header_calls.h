// Finds calls that consist of a header with the function's name, a separator and the arguments as
// JSON, each between markers that are special tokens. [one thread at a time]
#pragma once

#include <string>
#include <string_view>

#include "backends/tokenizer/lib/chat/parsers/text_machine.h"

namespace nereid::tokenizer::parsers {

// The form of a family's calls. The texts of its markers must live
// longer than the parsers that use them.
struct HeaderFormat {
  std::string_view section_begin, section_end;  // around all calls
  std::string_view call_begin;
  std::string_view header_end;  // between the header and the arguments
  Markers call_ends;
  // Finds the name, and the id if the header has one. False if the header makes no call.
  bool (*read_header)(std::string_view header, std::string_view& name, std::string_view& id);
};

class HeaderCalls : public TextMachine {
 public:
  // `format` outlives the machine.
  HeaderCalls(AnswerWriter& writer, const HeaderFormat& format)
      : TextMachine(writer), format_(format) {}

 protected:
  bool Step() override;
  void OnEnd() override;

 private:
  enum class State { kContent, kSectionBegin, kHeader, kArgumentsBegin, kArguments, kCallEnd };

  bool StepContent();
  bool StepSectionBegin();
  bool StepHeader();
  bool StepArgumentsBegin();
  bool StepArguments();
  bool StepCallEnd();
  void Reject();

  const HeaderFormat& format_;
  State state_ = State::kContent;
  std::string held_;    // text that becomes content if no call comes of it
  std::string header_;  // also part of held_
  std::string space_;   // at the end of the arguments so far
};

}  // namespace nereid::tokenizer::parsers
